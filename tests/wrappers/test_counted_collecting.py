# SPDX-License-Identifier: Apache-2.0
"""Native rollouts that update running statistics: step by step, as Gymnasium's wrappers do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from wrapped_reference import SEED, Normalizing, gymnasium_pool

import rollouts
from rollouts import Collector, RunningStatistics
from rollouts.collecting.evaluation import evaluate
from rollouts.policy import TorchPolicy
from rollouts.recurrent import RecurrentTorchPolicy

NUM_ENVS = 40  # several chunks, the last of which is not full
STEPS = 25
LIMIT = 12  # steps, so that episodes are cut
NORMALIZED: dict[str, Any] = {"normalize_observation": {"clip": 10.0}, "normalize_reward": True}


class Net(torch.nn.Module):
    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Linear(num_inputs, 16), torch.nn.Tanh())
        self.actor = torch.nn.Linear(16, num_outputs)
        self.critic = torch.nn.Linear(16, 1)
        self.log_std = torch.nn.Parameter(torch.zeros(num_outputs))

    def heads(self, hidden: torch.Tensor) -> Any:
        mean = self.actor(hidden)
        return mean, self.log_std.expand_as(mean), self.critic(hidden)[..., 0]

    def forward(self, obs: torch.Tensor) -> Any:
        return self.heads(self.body(obs.float()))


class Remembering(Net):
    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__(num_inputs, num_outputs)
        self.cell = torch.nn.GRUCell(num_inputs, 16)

    def initial_state(self) -> tuple[torch.Tensor]:
        return (torch.zeros(16),)

    def forward(self, obs: torch.Tensor, state: tuple[torch.Tensor]) -> Any:  # type: ignore[override]
        hidden = self.cell(obs.float(), state[0])
        return *self.heads(hidden), (hidden,)


def pool(env_id: str, num_threads: int = 2, **wrappers: Any) -> rollouts.VectorEnv:
    options: dict[str, Any] = {**NORMALIZED, **wrappers}
    options |= {"seed": SEED, "autoreset_mode": "same_step", "max_episode_steps": LIMIT}
    return rollouts.make_vec(env_id, NUM_ENVS, num_threads=num_threads, **options)


def policy_of(env: Any, network: Any = Net) -> Any:
    (num_inputs,), (num_outputs,) = (
        env.single_observation_space.shape, env.single_action_space.shape,
    )  # fmt: skip
    made = RecurrentTorchPolicy if network is Remembering else TorchPolicy
    return made(network(num_inputs, num_outputs), env.single_action_space, seed=1)


def arrays_of(batch: Any) -> Iterator[tuple[str, Any]]:
    for name in ("obs", "action", "log_prob", "value", "reward", "terminated", "truncated",
                 "bootstrap_value", "last_value", "episode_return", "episode_length"):  # fmt: skip
        yield name, getattr(batch, name)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "InvertedPendulum-v5"])
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_a_native_rollout_counts_each_step_as_a_received_batch(
    env_id: str, num_threads: int
) -> None:
    with pool(env_id, num_threads) as env, pool(env_id, 1) as stepped:
        collector = Collector(env, policy_of(env), STEPS, engine="native")
        space = env.single_action_space
        obs, _ = stepped.reset()
        ended = 0
        for _ in range(2):
            batch = collector.collect()
            assert collector.engine == "native"
            for t in range(STEPS):
                np.testing.assert_array_equal(batch.obs[t], obs)
                action = np.clip(batch.action[t], space.low, space.high)
                obs, reward, terminated, truncated, _ = stepped.step(action)
                np.testing.assert_array_equal(batch.reward[t], reward.astype(np.float32))
                np.testing.assert_array_equal(batch.terminated[t], terminated)
                np.testing.assert_array_equal(batch.truncated[t], truncated)
                ended += int((terminated | truncated).sum())
            np.testing.assert_array_equal(batch.last_obs, obs)
        assert ended
        for name in ("observation_statistics", "reward_statistics"):
            ours, theirs = getattr(env, name), getattr(stepped, name)
            np.testing.assert_array_equal(ours.mean, theirs.mean)
            np.testing.assert_array_equal(ours.var, theirs.var)
            assert ours.count == theirs.count


def test_a_native_rollout_has_the_bits_of_gymnasiums_formulas() -> None:
    env_id = "InvertedPendulum-v5"  # its observations are float64, as Gymnasium's statistics
    with pool(env_id, normalize_observation=True) as env:
        bare = gymnasium_pool(env_id, NUM_ENVS, "same_step", LIMIT)
        theirs = Normalizing((4,), NUM_ENVS)
        batch = Collector(env, policy_of(env), STEPS, engine="native").collect()
        np.testing.assert_array_equal(batch.obs[0], theirs.see(bare.reset()[0]))
        for t in range(STEPS - 1):
            action = np.clip(batch.action[t], -3, 3).astype(np.float32)
            obs, reward, terminated, _, _ = bare.step(action)
            np.testing.assert_array_equal(batch.obs[t + 1], theirs.see(obs))
            scaled = theirs.rewards(reward, terminated)
            np.testing.assert_array_equal(batch.reward[t], scaled.astype(np.float32))
        bare.close()


@pytest.mark.parametrize("network", [Net, Remembering])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_waiting_for_each_step_changes_nothing_else(network: Any, num_threads: int) -> None:
    # so many rows have been counted that no batch changes their mean or variance
    settled = {
        "observation": RunningStatistics(np.full(3, 0.125), np.full(3, 0.5), 2.0**100),
        "reward": RunningStatistics(np.zeros(()), np.full((), 4.0), 2.0**100),
    }
    with pool("Pendulum-v1", num_threads) as counting, pool("Pendulum-v1", 2) as frozen:
        for env in (counting, frozen):
            env.observation_statistics = settled["observation"]
            env.reward_statistics = settled["reward"]
        frozen.update_statistics = False
        collectors = [
            Collector(env, policy_of(env, network), STEPS, engine="native", keep_final_obs=True)
            for env in (counting, frozen)
        ]
        for _ in range(3):
            ours, theirs = (collector.collect() for collector in collectors)
            for (name, got), (_, want) in zip(arrays_of(ours), arrays_of(theirs), strict=True):
                np.testing.assert_array_equal(got, want, err_msg=name)
            assert ours.final_obs is not None
            np.testing.assert_array_equal(ours.final_obs, theirs.final_obs)
            if network is Remembering:
                np.testing.assert_array_equal(ours.policy_state, theirs.policy_state)


def test_freezing_and_counting_again_keep_the_native_engine() -> None:
    with pool("Pendulum-v1") as env:
        collector = Collector(env, policy_of(env), STEPS, engine="native")
        collector.collect()
        env.update_statistics = False
        count = env.observation_statistics.count
        collector.collect()
        assert collector.engine == "native" and env.observation_statistics.count == count
        env.update_statistics = True
        collector.collect()
        assert env.observation_statistics.count == count + STEPS * NUM_ENVS


def test_an_evaluation_counts_nothing_and_leaves_the_pool_counting() -> None:
    with pool("Pendulum-v1") as env:
        policy = policy_of(env)
        Collector(env, policy, STEPS).collect()
        before = env.observation_statistics
        evaluate(env, policy, NUM_ENVS)
        assert env.observation_statistics.count == before.count
        np.testing.assert_array_equal(env.observation_statistics.var, before.var)
        assert env.update_statistics
