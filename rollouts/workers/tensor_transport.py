# SPDX-License-Identifier: Apache-2.0
"""TensorTransport: the names of the transports that send tensors between actors. No Ray.

`on_ray.direct_transports` opens the transports.
"""

from __future__ import annotations

import importlib.util
from typing import Literal, get_args

from rollouts.errors import SpecError
from rollouts.features import Cell, check
from rollouts.support.field_checks import check_one_of

TensorTransport = Literal["auto", "object_store", "cuda_ipc", "nixl"]
Device = Literal["cuda", "cpu-emulation"]


def check_transport(device: Device | None, tensor_transport: TensorTransport) -> None:
    """Raises SpecError where a value is unknown, or the two contradict each other."""
    if device is not None:
        check_one_of("collect.device", device, get_args(Device))
    check_name("collect.tensor_transport", tensor_transport)
    if device is None:
        asked = f"collect.tensor_transport={tensor_transport!r}"
        check("RolloutCoordinator", [asked], Cell("native", None))
    if device == "cpu-emulation" and tensor_transport == "cuda_ipc":
        raise SpecError(
            "collect.tensor_transport is 'cuda_ipc' with device='cpu-emulation', expected "
            "'object_store' or 'nixl': there is no GPU"
        )


def check_name(field: str, tensor_transport: TensorTransport) -> None:
    """Raises SpecError where a transport is unknown, or would kill the learner if a worker died."""
    if str(tensor_transport) == "nccl":
        raise SpecError(
            f"{field} is 'nccl', whose transfers Ray cannot abort: it would kill the learner with "
            "every worker that dies; expected 'nixl', 'cuda_ipc' or 'object_store'"
        )
    check_one_of(field, tensor_transport, get_args(TensorTransport))


def chosen(tensor_transport: TensorTransport, device: Device | None) -> TensorTransport:
    """Returns the transport; "auto" is NIXL where it is installed here and the device is a GPU."""
    if tensor_transport != "auto":
        return tensor_transport
    return "nixl" if device == "cuda" and is_installed("nixl") else "object_store"


def is_installed(tensor_transport: TensorTransport) -> bool:
    """Tells whether the package is installed that a transport needs in addition to Ray."""
    return tensor_transport != "nixl" or importlib.util.find_spec("nixl") is not None


def stays_in_its_process(tensor_transport: TensorTransport) -> bool:
    """Tells whether tensors stay in the process that made them until another process has them."""
    return tensor_transport in ("cuda_ipc", "nixl")


def lends_memory(tensor_transport: TensorTransport) -> bool:
    """Tells whether tensors arrive in memory that the sending process still owns."""
    return tensor_transport == "cuda_ipc"
