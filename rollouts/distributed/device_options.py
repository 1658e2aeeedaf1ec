# SPDX-License-Identifier: Apache-2.0
"""Workers whose pools are a GPU's: what is asked for, and whether that fits together."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Literal, get_args

from rollouts.errors import SpecError
from rollouts.support.field_checks import check_one_of

if TYPE_CHECKING:
    from rollouts.distributed.options import CollectOptions, Inference, Placement

TensorTransport = Literal["auto", "object_store", "cuda_ipc", "nixl"]
Device = Literal["cuda", "cpu-emulation"]


def check_transport(device: Device | None, tensor_transport: TensorTransport) -> None:
    """Raises SpecError where a value is unknown, or the two contradict each other."""
    if device is not None:
        check_one_of("collect.device", device, get_args(Device))
    check_name("collect.tensor_transport", tensor_transport)
    if device is None and tensor_transport not in ("auto", "object_store"):
        raise SpecError(
            f"collect.tensor_transport is {tensor_transport!r} without collect.device: fragments "
            "of C++ pools are arrays of the host, which travel through the object store; leave "
            "tensor_transport out"
        )
    if device == "cpu-emulation" and tensor_transport == "cuda_ipc":
        raise SpecError(
            "collect.tensor_transport is 'cuda_ipc' with device='cpu-emulation', expected "
            "'object_store' or 'nixl': there is no GPU"
        )


def check_name(field: str, tensor_transport: TensorTransport) -> None:
    """Raises SpecError where a transport is unknown, or none that a learner outlives."""
    if str(tensor_transport) == "nccl":
        raise SpecError(
            f"{field} is 'nccl', whose transfers Ray cannot abort: it would kill the learner with "
            "every worker that dies; expected 'nixl', 'cuda_ipc' or 'object_store'"
        )
    check_one_of(field, tensor_transport, get_args(TensorTransport))


def transport_of(collect: CollectOptions) -> TensorTransport:
    """Returns what is used: "auto" is NIXL where that is installed here and tensors are a GPU's."""
    if collect.tensor_transport != "auto":
        return collect.tensor_transport
    has_nixl = collect.device == "cuda" and importlib.util.find_spec("nixl") is not None
    return "nixl" if has_nixl else "object_store"


def check_device(
    collect: CollectOptions,
    placement: Placement,
    inference: Inference | None,
    num_workers: int,
) -> None:
    """Raises SpecError where workers with a GPU's pool cannot do what else is asked for."""
    if collect.device is None:
        return
    given = f"collect.device is {collect.device!r}"
    if num_workers == 0:
        raise SpecError(
            f"{given} with num_workers=0, expected at least 1 worker: in this process use "
            "rollouts.Collector"
        )
    if inference is not None:
        raise SpecError(f"{given} with inference, expected one of them: policies are on devices")
    if collect.device == "cuda" and not placement.num_gpus:
        raise SpecError(
            f"{given} and placement.num_gpus is 0, so that Ray would hide all GPUs from the "
            "workers: expected placement=Placement(num_gpus=1), or a fraction"
        )
    unfit = ("batch_size", "mask_actions", "pack_frame_stacks")
    for name in (*unfit, "make_env", "make_collector"):
        if getattr(collect, name):
            raise SpecError(
                f"{given}, where collect.{name} cannot be had: leave one of them out; see "
                "rollouts.Collector"
            )
