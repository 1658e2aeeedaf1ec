# SPDX-License-Identifier: Apache-2.0
"""Rollouts of a GPU's pool whose policy torch computes: those of kernels, where sums are none."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rollouts
from rollouts import Collector, EnvError, RolloutBatch, SpecError, TorchPolicy
from rollouts.policy import SquashedGaussianHead
from rollouts.recurrent import RecurrentTorchPolicy
from rollouts.returns import Gae, Nstep

pytestmark = pytest.mark.system

GAE = Gae(gamma=0.99, gae_lambda=0.95)
ARRAYS = (
    *("obs", "action", "reward", "terminated", "truncated", "bootstrap_value", "log_prob"),
    *("value", "last_obs", "last_value", "env_id", "episode_return", "episode_length"),
)


class Table(nn.Module):
    """Looks up logits and value: torch and native code have no sum to differ in."""

    def __init__(self, num_obs: int, num_actions: int) -> None:
        super().__init__()
        self.actor, self.critic = nn.Embedding(num_obs, num_actions), nn.Embedding(num_obs, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(obs), self.critic(obs)


class Scaled(nn.Module):
    """Takes numbers of the observation times a weight."""

    def __init__(self, num_outputs: int, *, is_box: bool) -> None:
        super().__init__()
        self.num_outputs, self.is_box = num_outputs, is_box
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.log_std = nn.Parameter(torch.tensor([-0.5]))

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        params = (obs[:, : self.num_outputs] * self.scale,)
        params += (self.log_std,) if self.is_box else ()
        return *params, obs[:, 1] * self.scale


def make_env(env_id: str, num_envs: int, **options: Any) -> Any:
    return rollouts.make_vec(
        env_id, num_envs, device="cpu-emulation", seed=3, autoreset_mode="same_step", **options
    )


def assert_same(found: RolloutBatch[torch.Tensor], expected: RolloutBatch[torch.Tensor]) -> None:
    for name in ARRAYS:
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert found.extras.keys() == expected.extras.keys()
    for name, tensor in found.extras.items():
        assert torch.equal(tensor, expected.extras[name]), name


@pytest.mark.parametrize("returns", (GAE, Nstep(gamma=0.9, n=3)))
def test_torch_and_kernels_give_the_same_rollouts(returns: Gae | Nstep) -> None:
    collectors = []
    for engine in ("native", "torch"):
        env = make_env("Taxi-v3", 150, max_episode_steps=7)
        torch.manual_seed(0)
        policy = TorchPolicy(Table(500, 6), env.single_action_space, seed=5)
        collectors.append(
            Collector(
                env, policy, 20, engine=engine, returns=returns, outputs=("entropy", "logits")
            )
        )
    for _ in range(3):
        expected, found = (one.collect() for one in collectors)
        assert_same(found, expected)
        # every limit of an episode is valued
        assert int((found.bootstrap_value != 0).sum()) == int(found.truncated.sum()) > 100
        for one in collectors:
            with torch.no_grad():
                one.policies[""].module.critic.weight.mul_(0.9)
    for one in collectors:
        one.synchronize()


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("TagContinuous-v0", {"num_runners": 20, "tagging_distance": 0.2, "grid_length": 3.0}),
        ("simple_spread_v3", {"continuous_actions": True}),
    ],
)
def test_so_do_groups_of_agents(env_id: str, options: dict[str, Any]) -> None:
    collectors = []
    for engine in ("native", "torch"):
        env = make_env(env_id, 5, max_episode_steps=9, **options)
        policies = {}
        for name, group in env.groups.items():
            space = group.single_action_space
            is_box = isinstance(space, gymnasium.spaces.Box)
            size = int(np.prod(space.shape)) if is_box else int(space.nvec.sum())
            policies[name] = TorchPolicy(Scaled(size, is_box=is_box), space, seed=5)
            if is_box:
                policies[name].head = SquashedGaussianHead.of(space)
        collectors.append(Collector(env, policies, 14, engine=engine, returns=GAE))
    for _ in range(3):
        expected, found = (one.collect() for one in collectors)
        assert found.keys() == expected.keys()
        for name, rollout in found.items():
            assert_same(rollout, expected[name])
            assert (rollout.bootstrap_value != 0).any()


class Convolution(nn.Module):
    """Native code reads no convolution."""

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten())
        self.actor, self.critic = nn.Linear(8 * 25, num_actions), nn.Linear(8 * 25, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        image = obs[:, : 7 * 7 * 3].float().reshape(-1, 7, 7, 3)
        hidden = self.body(image.permute(0, 3, 1, 2))
        return self.actor(hidden), self.critic(hidden)[:, 0]


def test_what_native_code_cannot_read_goes_to_torch() -> None:
    env = make_env("MiniGrid-Empty-5x5-v0", 6, max_steps=5)
    module = Convolution(7)
    policy = TorchPolicy(module, env.single_action_space)
    with pytest.raises(SpecError, match="cannot act on the device"):
        Collector(env, policy, 8, engine="native")
    found = Collector(env, policy, 8, returns=GAE).collect()
    # the environment itself cuts off
    assert found.truncated.any() and (found.bootstrap_value[found.truncated] != 0).all()
    logits, value = module(found.obs.flatten(0, 1))
    assert torch.allclose(found.value.flatten(), value, atol=1e-5)
    log_prob = logits.log_softmax(-1).gather(1, found.action.flatten()[:, None])[:, 0]
    assert torch.allclose(found.log_prob.flatten(), log_prob, atol=1e-5)


def test_a_module_of_another_precision_keeps_it() -> None:
    env = make_env("CartPole-v1", 6)

    class Narrow(Table):
        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            with torch.autocast("cpu", torch.bfloat16):
                hidden = obs @ self.critic.weight.T
            assert hidden.dtype == torch.bfloat16
            return hidden[:, :2], hidden[:, 2]

    module = Narrow(4, 2)
    module.critic = nn.Embedding(3, 4)
    found = Collector(
        env, TorchPolicy(module, env.single_action_space), 4, engine="torch"
    ).collect()
    assert found.value.dtype == torch.float32
    assert torch.equal(found.value, found.value.bfloat16().float())


def test_a_value_that_is_not_finite_is_named_afterwards() -> None:
    env = make_env("Taxi-v3", 4)
    policy = TorchPolicy(Table(500, 6), env.single_action_space)
    collector = Collector(env, policy, 3, engine="torch")
    with torch.no_grad():
        policy.module.critic.weight.fill_(float("nan"))
    collector.collect()
    with pytest.raises(EnvError, match="environment 0 got a policy whose value or log_prob"):
        collector.synchronize()


class TooMany(Table):
    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        logits, value = super().forward(obs)
        return torch.cat([logits, logits], 1), value


def test_what_does_not_fit_is_refused() -> None:
    env = make_env("Taxi-v3", 4)
    space = env.single_action_space
    with pytest.raises(SpecError, match="engine is 'jax', expected 'auto', 'native' or 'torch'"):
        Collector(env, TorchPolicy(Table(500, 6), space), 3, engine="jax")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"gives \[12, 1\] numbers for a row, expected \[6, 1\]"):
        Collector(env, TorchPolicy(TooMany(500, 6), space), 3, engine="torch").collect()
    with pytest.raises(
        SpecError, match="RecurrentTorchPolicy of a module without memory, expected a TorchPolicy"
    ):
        policy = RecurrentTorchPolicy(Table(500, 6), space)
        Collector(env, policy, 3, engine="torch")
