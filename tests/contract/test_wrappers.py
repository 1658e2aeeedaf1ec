# SPDX-License-Identifier: Apache-2.0
"""Gymnasium's wrappers see in a pool what they see in Gymnasium's own SyncVectorEnv.

The reference steps pools of one environment each, and resets them by itself: autoreset,
the layout of infos and the order of rows are Gymnasium's there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import performance
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import (
    NormalizeObservation,
    NormalizeReward,
    RecordEpisodeStatistics,
    TransformReward,
)

import rollouts

NUM_ENVS = 4
SEED = 3
STEPS = 60
# the limit cuts episodes; those of the first and the third also end by themselves
CASES = [("CartPole-v1", 17), ("Pendulum-v1", 9), ("FrozenLake-v1", 12)]
MODES = ["next_step", "same_step", "disabled"]

every_case = pytest.mark.parametrize(("env_id", "limit"), CASES)
every_mode = pytest.mark.parametrize("mode", MODES)


class OneEnvironment(gymnasium.Env[Any, Any]):
    """Environment `index` of the pool, alone."""

    def __init__(self, env_id: str, index: int, limit: int) -> None:
        self.pool = rollouts.make_vec(
            env_id,
            1,
            num_threads=1,
            seed=SEED,
            autoreset_mode="disabled",
            env_id_offset=index,
            max_episode_steps=limit,
        )
        self.observation_space = self.pool.single_observation_space
        self.action_space = self.pool.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        obs, info = self.pool.reset(seed=seed)
        return obs[0], {name: values[0] for name, values in info.items()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.pool.step(np.asarray(action)[None])
        row = {name: values[0] for name, values in info.items()}
        return obs[0], reward[0], terminated[0], truncated[0], row

    def close(self) -> None:
        self.pool.close()


class Reference(SyncVectorEnv):
    """SyncVectorEnv that leaves the caller's options alone.

    It takes reset_mask out of the dict, so that RecordEpisodeStatistics around it would
    count a reset of some environments as one of all.
    """

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        return super().reset(seed=seed, options=options and dict(options))


def make_ours(env_id: str, limit: int, mode: str) -> rollouts.VectorEnv:
    return rollouts.make_vec(
        env_id,
        NUM_ENVS,
        num_threads=2,
        seed=SEED,
        autoreset_mode=mode,
        max_episode_steps=limit,
    )


def make_reference(env_id: str, limit: int, mode: str) -> Reference:
    makers = [lambda index=i: OneEnvironment(env_id, index, limit) for i in range(NUM_ENVS)]
    return Reference(makers, autoreset_mode=AutoresetMode[mode.upper()])


def assert_same(ours: object, theirs: object, where: str) -> None:
    """Equal in every bit, down to the entries of dicts and of arrays of objects."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict)
        assert ours.keys() == theirs.keys(), where
        for name in theirs:
            if name != "t":  # seconds since the episode began
                assert_same(ours[name], theirs[name], f"{where}[{name!r}]")
        return
    if theirs is None:
        assert ours is None, where
        return
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, where
    if theirs.dtype == object:
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other, where)
    else:
        np.testing.assert_array_equal(ours, theirs, err_msg=where)


def comparable(info: dict[str, Any], mode: str) -> dict[str, Any]:
    """Drops the marks, all True, that SyncVectorEnv adds for keys that every row has.

    In the same-step mode our return and length are those of the episode that the step
    belongs to; SyncVectorEnv has the next episode's there, and ours in final_info.
    """
    left_out = {"_env_id", "_episode_return", "_episode_length", "_prob"}
    if mode == "same_step":
        left_out |= {"episode_return", "episode_length"}
    return {name: value for name, value in info.items() if name not in left_out}


def play_both(
    wrap: Callable[[VectorEnv], VectorEnv], env_id: str, limit: int, mode: str
) -> tuple[VectorEnv, VectorEnv]:
    """Steps a pool and the reference, both wrapped, through the same actions and compares."""
    ours = wrap(make_ours(env_id, limit, mode))
    theirs = wrap(make_reference(env_id, limit, mode))
    with closing(ours), closing(theirs):
        ours.action_space.seed(1)
        assert_same(ours.reset()[0], theirs.reset()[0], "first obs")
        ends = 0
        for step in range(STEPS):
            actions = ours.action_space.sample()
            *columns, info = ours.step(actions)
            *expected, expected_info = theirs.step(actions)
            for name, column, values in zip(
                ("obs", "reward", "terminated", "truncated"), columns, expected, strict=True
            ):
                assert_same(column, values, f"{name} of step {step}")
            assert_same(
                comparable(info, mode), comparable(expected_info, mode), f"info of step {step}"
            )
            ended = columns[2] | columns[3]
            ends += int(ended.sum())
            if mode == "disabled" and ended.any():
                first = ours.reset(options={"reset_mask": ended.copy()})[0]
                assert_same(first, theirs.reset(options={"reset_mask": ended.copy()})[0], "reset")
        assert ends > NUM_ENVS
    return ours, theirs


@every_case
@every_mode
def test_pool_alone_equals_gymnasiums_vector_environment(
    env_id: str, limit: int, mode: str
) -> None:
    play_both(lambda env: env, env_id, limit, mode)


@every_case
@every_mode
def test_episode_statistics_are_those_of_gymnasiums_vector_environment(
    env_id: str, limit: int, mode: str
) -> None:
    ours, theirs = play_both(RecordEpisodeStatistics, env_id, limit, mode)
    assert ours.episode_count == theirs.episode_count > 0
    assert list(ours.return_queue) == list(theirs.return_queue)
    assert list(ours.length_queue) == list(theirs.length_queue)


@every_case
def test_normalised_observations_are_those_of_gymnasiums_vector_environment(
    env_id: str, limit: int
) -> None:
    # the wrapper refuses the other modes
    ours, theirs = play_both(NormalizeObservation, env_id, limit, "next_step")
    assert_same(ours.obs_rms.mean, theirs.obs_rms.mean, "mean")
    assert_same(ours.obs_rms.var, theirs.obs_rms.var, "variance")
    assert ours.obs_rms.count > STEPS


@every_case
@every_mode
def test_normalised_rewards_are_those_of_gymnasiums_vector_environment(
    env_id: str, limit: int, mode: str
) -> None:
    ours, theirs = play_both(NormalizeReward, env_id, limit, mode)
    assert_same(ours.return_rms.var, theirs.return_rms.var, "variance")
    assert ours.return_rms.count > STEPS


@every_case
@every_mode
def test_transformed_rewards_leave_the_pools_own_as_they_are(
    env_id: str, limit: int, mode: str
) -> None:
    def wrap(env: VectorEnv) -> VectorEnv:
        return TransformReward(env, lambda reward: 2.5 * reward - 1)

    play_both(wrap, env_id, limit, mode)
    with (
        closing(wrap(make_ours(env_id, limit, "same_step"))) as wrapped,
        make_ours(env_id, limit, "same_step") as plain,
    ):
        plain.action_space.seed(1)
        wrapped.reset()
        plain.reset()
        total = np.zeros(NUM_ENVS)
        for _ in range(STEPS):
            actions = plain.action_space.sample()
            _, transformed, terminated, truncated, info = wrapped.step(actions)
            reward = plain.step(actions)[1]
            np.testing.assert_array_equal(transformed, 2.5 * reward - 1)
            total += reward
            np.testing.assert_array_equal(info["episode_return"], total)
            total[terminated | truncated] = 0


@every_mode
def test_stacked_wrappers_work_together(mode: str) -> None:
    def wrap(env: VectorEnv) -> VectorEnv:
        return NormalizeReward(TransformReward(RecordEpisodeStatistics(env), np.tanh))

    play_both(wrap, "CartPole-v1", 17, mode)


@every_mode
@pytest.mark.skipif(
    not hasattr(performance, "benchmark_vector_step"),
    reason="needs gymnasium 1.4: gymnasium.utils.performance.benchmark_vector_step",
)
def test_gymnasiums_benchmark_runs(mode: str) -> None:
    with make_ours("CartPole-v1", 5, mode) as env:
        rate = performance.benchmark_vector_step(env, target_duration=0.1, seed=1)
        assert math.isfinite(rate) and rate > 0
        # it goes through ends of episodes and leaves the environment usable
        env.reset()
        env.step(env.action_space.sample())
