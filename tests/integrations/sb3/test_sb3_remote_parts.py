# SPDX-License-Identifier: Apache-2.0
"""Rollouts of several workers side by side: what callbacks and buffers are told of episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from rollouts.integrations.sb3 import RolloutsVecEnv
from rollouts.integrations.sb3.remote import episodes_of
from rollouts.integrations.sb3.remote_replay import _Rollout

import rollouts
from rollouts import PolicyOutput

NUM_STEPS = 20


class Pushes:
    """Always pushes to the right, so that poles fall soon; marks steps as an actor does."""

    policy_version = 0

    def act(self, obs: Any) -> PolicyOutput:
        zeros = np.zeros(len(obs), np.float32)
        kept = np.ones(len(obs), np.int64)
        return PolicyOutput(kept, zeros, zeros, extras={"kept": kept})

    def value(self, obs: Any) -> Any:
        return np.zeros(len(obs), np.float32)


def batches_of_workers() -> list[Any]:
    """Rollouts of two workers, with two and three environments."""
    found = []
    for num_envs, first in ((2, 0), (3, 2)):
        env = rollouts.make_vec(
            "CartPole-v1", num_envs, seed=1, env_id_offset=first, autoreset_mode="same_step"
        )
        with env:
            policy: Any = Pushes()
            collector = rollouts.Collector(env, policy, NUM_STEPS, keep_final_obs=True)
            found.append(collector.collect())
    return found


def one_by_one(batches: list[Any]) -> list[tuple[int, int, float, int, Any]]:
    """(t, column, return, length, last observation) of each episode, by time and column."""
    found = []
    first = 0
    for batch in batches:
        ended = batch.terminated | batch.truncated
        for column in range(ended.shape[1]):
            total, length = 0.0, 0
            finals = dict(zip(zip(*np.nonzero(ended), strict=True), batch.final_obs, strict=True))
            for t in range(NUM_STEPS):
                total, length = total + float(batch.reward[t, column]), length + 1
                if ended[t, column]:
                    found.append((t, first + column, total, length, finals[t, column]))
                    total, length = 0.0, 0
        first += ended.shape[1]
    return sorted(found, key=lambda one: one[:2])


def test_episodes_of_workers_are_listed_by_time_and_then_by_column() -> None:
    batches = batches_of_workers()
    expected = one_by_one(batches)
    assert len(expected) > 5
    env = RolloutsVecEnv("CartPole-v1", 5, seed=1)
    told = episodes_of(env, batches)
    assert [(one["r"], one["l"]) for one in told] == [(one[2], one[3]) for one in expected]
    env.close()


def test_a_replay_is_told_of_each_episode_at_the_step_that_ended_it() -> None:
    batches = batches_of_workers()
    env = RolloutsVecEnv("CartPole-v1", 5, seed=1)
    rollout = _Rollout.of(batches, env)
    for t, column, total, length, last in one_by_one(batches):
        info = rollout.infos(t)[column]
        assert (info["episode"]["r"], info["episode"]["l"]) == (total, length)
        np.testing.assert_array_equal(info["terminal_observation"], last)
        np.testing.assert_array_equal(rollout.next_obs(t)[column], last)
    env.close()
