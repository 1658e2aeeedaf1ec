# SPDX-License-Identifier: Apache-2.0
"""Options of collecting that a Collector has too reach the Collector of a worker."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest
import torch
from acted_worker import worker_config
from torch import nn

import rollouts
from rollouts import Collector, TorchPolicy
from rollouts.errors import RolloutsError
from rollouts.returns import Gae
from rollouts.workers import CollectOptions, RolloutWorker


def test_a_worker_s_collector_gets_every_option_of_its_own() -> None:
    returns = Gae(gamma=0.9, gae_lambda=0.8)
    options = CollectOptions(keep_final_obs=True, returns=returns, batch_size=2)
    given = options.of_collector
    assert (given["keep_final_obs"], given["returns"]) == (True, returns)
    keywords = {*inspect.signature(rollouts.Collector).parameters}
    ours = {one for one in CollectOptions.__dataclass_fields__ if one in keywords}
    assert {*given} == ours
    assert {*keywords} - ours == {"env", "policy", "rollout_length", "prefetch", "record"}
    assert "batch_size" not in given


@pytest.mark.parametrize(
    "wrong",
    (
        {"num_torch_threads": 0},
        {"engine": "jax"},
        {"outputs": 5},
        {"outputs": (name for name in ("entropy",))},
        {"returns": 0.99},
        {"keep_final_obs": 1},
        {"mask_actions": "yes"},
        {"cuda_graph": None},
        {"policy_dtype": "float16"},
        {"policy_dtype": "bfloat16", "engine": "torch"},
    ),
    ids=",".join,
)
def test_a_worker_refuses_the_values_that_a_collector_refuses(wrong: dict[str, Any]) -> None:
    env = rollouts.make_vec("CartPole-v1", 2, autoreset_mode="same_step")
    with pytest.raises(RolloutsError) as here:
        Collector(env, make_net(env), 2, **wrong)
    with pytest.raises(type(here.value)) as there:
        CollectOptions(**wrong)
    assert str(there.value).startswith("collect.")
    assert str(there.value).replace("collect.", "") == str(here.value)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 16), nn.Linear(16, 3)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.head(torch.tanh(self.body(obs)))
        return out[:, :2], out[:, 2:]


def make_net(spec: Any) -> TorchPolicy:
    return TorchPolicy(Net(), spec.single_action_space, seed=1)


@pytest.mark.parametrize(
    "options",
    ({"cuda_graph": True}, {"policy_dtype": "bfloat16"}, {"outputs": ("logits",)}, {}),
    ids=str,
)
def test_workers_on_a_device_collect_as_a_collector_there(options: dict[str, Any]) -> None:
    pool: dict[str, Any] = {"device": "cpu-emulation", "seed": 3, "autoreset_mode": "same_step"}
    config = replace(
        worker_config(),
        id="CartPole-v1",
        num_envs=6,
        rollout_length=5,
        seed=3,
        collect=CollectOptions(device="cpu-emulation", **options),
    )
    worker = RolloutWorker(config, make_net)
    env = rollouts.make_vec("CartPole-v1", 6, **pool)
    policy = make_net(env)
    policy.noise_seed = config.noise_seed
    collector = Collector(env, policy, 5, **options)
    for _ in range(3):
        ours, fragment = collector.collect(), worker.collect(None)
        theirs: Any = fragment.payload
        for name in ("obs", "action", "value", "reward", "terminated", "last_value"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
        assert ours.extras.keys() == theirs.extras.keys()
    collector.close()
