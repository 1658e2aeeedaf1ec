# SPDX-License-Identifier: Apache-2.0
"""Options of workers with a GPU's pool that do not fit are refused before anything starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from acted_worker import worker_config
from torch import nn

from rollouts import (
    CollectOptions,
    Inference,
    Placement,
    RolloutCoordinator,
    TorchPolicy,
)
from rollouts.distributed.checks import check_joined
from rollouts.distributed.device_options import transport_of
from rollouts.distributed.worker import build_collector
from rollouts.errors import ProtocolError, SpecError
from rollouts.learner.fragment import FragmentInfo
from rollouts.learner.inbox import FragmentInbox

EMULATION: Any = "cpu-emulation"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "collect.device is 'gpu'"),
        ({"tensor_transport": "nixl"}, "'nixl' without collect.device"),
        ({"device": EMULATION, "tensor_transport": "nccl"}, "whose transfers Ray cannot abort"),
        ({"device": EMULATION, "tensor_transport": "pigeon"}, "tensor_transport is 'pigeon'"),
        ({"device": EMULATION, "tensor_transport": "cuda_ipc"}, "there is no GPU"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        CollectOptions(**options)


def test_the_object_store_is_what_is_used_without_a_gpu() -> None:
    assert transport_of(CollectOptions(device=EMULATION)) == "object_store"
    assert transport_of(CollectOptions(device=EMULATION, tensor_transport="nixl")) == "nixl"


def make_policy(spec: Any) -> Any:
    raise AssertionError("is not asked for a policy")


@pytest.mark.parametrize(
    ("options", "collect", "message"),
    [
        ({"num_workers": 0}, {}, "rollouts.DeviceCollector"),
        ({"inference": Inference()}, {}, "with inference"),
        ({}, {"device": "cuda"}, r"expected placement=Placement\(num_gpus=1\)"),
        ({}, {"mask_actions": True}, "collect.mask_actions cannot be had"),
        ({}, {"batch_size": 2}, "collect.batch_size cannot be had"),
    ],
)
def test_what_such_workers_cannot_do(
    options: dict[str, Any], collect: dict[str, Any], message: str
) -> None:
    arguments: dict[str, Any] = {"num_workers": 1, **options}
    with pytest.raises(SpecError, match=message):
        RolloutCoordinator(
            "CartPole-v1",
            make_policy,
            num_envs_per_worker=2,
            rollout_length=2,
            placement=Placement(),
            collect=CollectOptions(**{"device": EMULATION, **collect}),
            **arguments,
        )


def test_tensors_are_not_joined() -> None:
    check_joined(CollectOptions())
    with pytest.raises(ProtocolError, match=r"get_fragments\(\)\[0\]\.payload"):
        check_joined(CollectOptions(device=EMULATION))


def fragment() -> tuple[FragmentInfo, Any]:
    numbers: dict[str, Any] = dict.fromkeys(
        ("worker_id", "incarnation", "seq_no", "num_steps", "min_policy_version"), 1
    )
    info = FragmentInfo(**numbers, max_policy_version=1, collect_s=0.0, nbytes=1)
    return info, object()


def test_an_inbox_gives_what_is_settled_alone() -> None:
    inbox = FragmentInbox()
    info, payload = fragment()
    assert inbox.receive("a", info, payload, False) is None
    assert inbox.num_fragments == 0
    with pytest.raises(TimeoutError, match="no fragment was handed over within"):
        inbox.take()
    inbox.settle("a", True)
    taken = inbox.take()
    assert taken.info is info and taken.payload is payload


def test_what_was_taken_back_does_not_arrive_later() -> None:
    inbox = FragmentInbox()
    info, payload = fragment()
    inbox.settle("a", False)
    assert inbox.receive("a", info, payload, False) is None
    inbox.receive("b", info, payload, False)
    inbox.settle("b", False)
    assert inbox.num_fragments == 0
    # nothing of either is kept
    assert not inbox._arrived and not inbox._taken_back


def test_what_cannot_be_kept_is_said() -> None:
    inbox = FragmentInbox()
    info, payload = fragment()
    said = inbox.receive("a", info, payload, True)
    assert said is not None and "copied" in said


class Net(nn.Linear):
    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = super().forward(obs)
        return out[:, :2], out[:, 2]


def make_net(spec: Any) -> TorchPolicy:
    return TorchPolicy(Net(4, 3), spec.single_action_space, seed=1)


def collecting(**changes: Any) -> Any:
    settings: dict[str, Any] = {"num_envs": 4, "rollout_length": 3, "device": EMULATION, **changes}
    return build_collector(replace(worker_config(), env_id="CartPole-v1", **settings), make_net)


@pytest.mark.parametrize("copies", (False, True))
def test_workers_send_by_ipc_what_they_never_write_again(copies: bool) -> None:
    worker = collecting(travels_as_copy=copies)
    rollout: Any = worker.collect()
    ring = worker.collect.__self__._collector._ring
    own = [one.groups[""].tensors["reward"] for one in ring._sets]
    assert (rollout.reward.data_ptr() in {one.data_ptr() for one in own}) is not copies
    worker.env.close()


@pytest.mark.parametrize("way", ({"travels_on_host": True}, {"travels_as_copy": True}, {}), ids=str)
def test_what_episodes_ended_with_travels_with_a_devices_rollout(way: dict[str, bool]) -> None:
    worker = collecting(rollout_length=60, keep_final_obs=True, **way)
    rollout: Any = worker.collect()
    ended = rollout.terminated | rollout.truncated
    assert rollout.final_obs.shape == rollout.obs.shape and ended.any()
    # a cart that left the track, or a pole that fell
    x, _, angle, _ = rollout.final_obs[ended].T
    assert ((abs(x) > 2.4) | (abs(angle) > 0.2095)).all()
    worker.env.close()
