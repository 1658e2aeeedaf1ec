# SPDX-License-Identifier: Apache-2.0
"""Options of workers with a GPU's pool that do not fit are refused before anything starts."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import nn

import rollouts
from rollouts import (
    CollectOptions,
    Collector,
    Inference,
    Placement,
    RolloutCoordinator,
    TorchPolicy,
)
from rollouts.errors import ProtocolError, SpecError
from rollouts.learner.fragment import FragmentInfo
from rollouts.learner.inbox import FragmentInbox
from rollouts.workers.argument_checks import check_joined
from rollouts.workers.worker import collect_on_device

EMULATION: Any = "cpu-emulation"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "collect.device is 'gpu'"),
        ({"tensor_transport": "nixl"}, "'nixl' cannot be had of environments on the host"),
        ({"device": EMULATION, "tensor_transport": "nccl"}, "whose transfers Ray cannot abort"),
        ({"device": EMULATION, "tensor_transport": "pigeon"}, "tensor_transport is 'pigeon'"),
        ({"device": EMULATION, "tensor_transport": "cuda_ipc"}, "there is no GPU"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        CollectOptions(**options)


def test_the_object_store_is_what_is_used_without_a_gpu() -> None:
    for given, used in (("auto", "object_store"), ("nixl", "nixl")):
        options = CollectOptions(device=EMULATION, tensor_transport=cast(Any, given))
        assert options.decided(num_workers=2).tensor_transport == used


def make_policy(spec: Any) -> Any:
    raise AssertionError("is not asked for a policy")


@pytest.mark.parametrize(
    ("options", "collect", "message"),
    [
        ({"num_workers": 0}, {}, "rollouts.Collector"),
        ({"inference": Inference()}, {}, "inference cannot be had of a pool on a"),
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


def make_collector(num_steps: int, **options: Any) -> Any:
    env: Any = rollouts.make_vec(
        "CartPole-v1", 4, device=EMULATION, seed=0, autoreset_mode="same_step"
    )
    return Collector(env, make_net(env), num_steps, **options)


@pytest.mark.parametrize("transport", ("cuda_ipc", "nixl"))
def test_workers_send_by_ipc_what_they_never_write_again(transport: Any) -> None:
    collector = make_collector(3)
    rollout: Any = collect_on_device(collector, transport)
    own = [one.groups[""].tensors["reward"] for one in collector._strategy._ring.sets.owners]
    is_own = rollout.reward.data_ptr() in {one.data_ptr() for one in own}
    assert is_own is (transport == "nixl")
    collector.env.close()


@pytest.mark.parametrize("transport", ("object_store", "cuda_ipc", "nixl"))
def test_what_episodes_ended_with_travels_with_a_devices_rollout(transport: Any) -> None:
    collector = make_collector(60, keep_final_obs=True)
    rollout: Any = collect_on_device(collector, transport)
    ended = rollout.terminated | rollout.truncated
    assert rollout.final_obs.shape == rollout.obs.shape and ended.any()
    # a cart that left the track, or a pole that fell
    x, _, angle, _ = rollout.final_obs[ended].T
    assert ((abs(x) > 2.4) | (abs(angle) > 0.2095)).all()
    collector.env.close()
