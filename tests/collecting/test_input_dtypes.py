# SPDX-License-Identifier: Apache-2.0
"""Obvious networks of float32 over observations of every dtype: cast, or explained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra torch")

import torch
from torch import Tensor, nn

import rollouts
from rollouts import Collector, SpecError, TorchPolicy
from rollouts.collecting.evaluation import evaluate
from rollouts.recurrent import RecurrentTorchPolicy


class Net(nn.Module):
    def __init__(self, num_obs: int, space: Any) -> None:
        super().__init__()
        self.is_box = hasattr(space, "low")
        size = int(np.prod(space.shape)) if self.is_box else int(space.n)
        self.actor, self.critic = nn.Linear(num_obs, size), nn.Linear(num_obs, 1)
        self.log_std = nn.Parameter(torch.zeros(size))

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        params = (self.actor(obs), self.log_std) if self.is_box else (self.actor(obs),)
        return *params, self.critic(obs)


class Remembering(Net):
    def initial_state(self) -> tuple[Tensor]:
        return (torch.zeros(1),)

    def forward(self, obs: Tensor, state: Any) -> Any:  # type: ignore[override]
        return *super().forward(obs), (state[0] + 1,)


def make_env(env_id: str, **options: Any) -> Any:
    return rollouts.make_vec(env_id, 2, seed=1, autoreset_mode="same_step", **options)


def policy_of(env: Any, num_obs: int | None = None, dtype: Any = torch.float32) -> TorchPolicy:
    size = int(np.prod(env.single_observation_space.shape)) if num_obs is None else num_obs
    return TorchPolicy(Net(size, env.single_action_space).to(dtype), env.single_action_space)


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "CheetahRun-v1"])
def test_a_network_of_float32_collects_float64(env_id: str, engine: Any) -> None:
    env = make_env(env_id)
    policy = policy_of(env)
    batch = Collector(env, policy, 6, engine=engine).collect()
    assert batch.obs.dtype == np.float64
    # a learner's call
    with torch.no_grad():
        value = policy.module(policy.as_input(batch.obs))[-1][..., 0]
    np.testing.assert_allclose(batch.value, value, rtol=1e-5, atol=1e-5)
    env.close()


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_policy_with_memory_collects_float64(engine: Any) -> None:
    env = make_env("HalfCheetah-v5")
    net = Remembering(17, env.single_action_space)
    policy = RecurrentTorchPolicy(net, env.single_action_space)
    batch = Collector(env, policy, 6, engine=engine).collect()
    assert batch.obs.dtype == np.float64
    env.close()


def test_evaluation_takes_float64() -> None:
    env = make_env("HalfCheetah-v5", max_episode_steps=5)
    assert len(evaluate(env, policy_of(env), 2).returns) == 2
    env.close()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_network_of_another_precision_gets_its_own(dtype: torch.dtype) -> None:
    env = make_env("CartPole-v1")
    policy = policy_of(env, dtype=dtype)
    obs = np.zeros((2, 4), np.float32)
    assert policy.as_input(obs).dtype is dtype
    if dtype is torch.float64:
        policy.act(obs)
        assert policy.value(obs).shape == (2,)
    env.close()


def test_whole_numbers_reach_an_embedding_as_they_are() -> None:
    env = make_env("FrozenLake-v1")

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = nn.Embedding(16, 4), nn.Embedding(16, 1)

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            return self.actor(obs), self.critic(obs)

    Collector(env, TorchPolicy(Table(), env.single_action_space), 6, engine="torch").collect()
    env.close()


@pytest.mark.parametrize("engine", ["auto", "native", "torch"])
@pytest.mark.parametrize(
    ("env_id", "says"),
    [
        ("MiniGrid-Empty-5x5-v0", r"uint8.*obs / 255.*obs_dtype"),
        ("Blackjack-v1", r"int64.*obs\.float\(\).*Embedding"),
    ],
)
def test_bytes_and_other_whole_numbers_are_explained(env_id: str, says: str, engine: Any) -> None:
    env = make_env(env_id)
    with pytest.raises(SpecError, match=says):
        Collector(env, policy_of(env), 6, engine=engine).collect()
    assert env.stats().env_steps == 0
    with pytest.raises(SpecError, match=says):
        evaluate(env, policy_of(env), 2)
    env.close()


def test_pixels_that_are_not_divided_are_explained() -> None:
    env = make_env("ALE/Pong-v5")

    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = nn.Conv2d(4, 7, 84)

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            outputs = self.network(obs).flatten(1)
            return outputs[:, :6], outputs[:, 6]

    with pytest.raises(SpecError, match=r"uint8.*obs / 255"):
        Collector(env, TorchPolicy(Images(), env.single_action_space), 6).collect()
    env.close()


@pytest.mark.parametrize("engine", ["auto", "native", "torch"])
def test_another_input_size_names_layer_and_sizes(engine: Any) -> None:
    env = make_env("CartPole-v1")
    says = "an observation has 4 numbers, its first linear layer 'actor' reads 5"
    with pytest.raises(SpecError, match=says):
        Collector(env, policy_of(env, num_obs=5), 6, engine=engine).collect()
    env.close()


@pytest.mark.parametrize("engine", ["auto", "native", "torch"])
def test_another_input_size_of_agents_names_their_group(engine: Any) -> None:
    env = make_env("simple_spread_v3")
    ((name, group),) = env.groups.items()
    policy = TorchPolicy(Net(5, group.single_action_space), group.single_action_space)
    says = f"group '{name}': the module fails.*'actor' reads 5"
    with pytest.raises(SpecError, match=says):
        Collector(env, policy, 6, engine=engine).collect()
    env.close()


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_device_casts_halves(engine: str) -> None:
    env = make_env("CartPole-v1", device="cpu-emulation", obs_dtype="float16")
    policy = policy_of(env)
    if engine == "native":
        with pytest.raises(SpecError, match="observations are float16, expected float32"):
            rollouts.Collector(env, policy, 4, engine="native")
    else:
        rollouts.Collector(env, policy, 4, engine="torch").collect()
    env.close()
