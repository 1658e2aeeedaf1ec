# SPDX-License-Identifier: Apache-2.0
"""Running statistics of a pool: freezing, setting, sharing, asynchronous batches, saved states."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wrapped_reference import Normalizing, random_actions

import rollouts
from rollouts import ProtocolError, RunningStatistics, SpecError

NORMALIZED: dict[str, Any] = {"normalize_observation": True, "normalize_reward": True}


def make(num_envs: int = 6, **arguments: Any) -> rollouts.VectorEnv:
    return rollouts.make_vec("Pendulum-v1", num_envs, seed=5, max_episode_steps=20, **arguments)


def walk(env: Any, steps: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(steps):
        obs, reward, *_ = env.step(random_actions(env.action_space, rng))
        rows.append(np.concatenate([obs.ravel(), reward]))
    return rows


def equal(one: RunningStatistics, other: RunningStatistics) -> bool:
    same = np.array_equal(one.mean, other.mean) and np.array_equal(one.var, other.var)
    return bool(same) and one.count == other.count


def test_frozen_statistics_scale_and_do_not_change() -> None:
    with make(**NORMALIZED, num_threads=2) as env, make() as bare:
        env.reset(), walk(env, 30)
        env.update_statistics = False
        before, before_reward = env.observation_statistics, env.reward_statistics
        obs = env.reset(seed=9)[0]
        shown = bare.reset(seed=9)[0]
        rng = np.random.default_rng(1)
        for _ in range(50):
            want = (shown - before.mean) / np.sqrt(before.var + 1e-8)
            np.testing.assert_array_equal(obs, want.astype(np.float32))
            action = random_actions(env.action_space, rng)
            obs, reward, *_ = env.step(action)
            shown, plain, *_ = bare.step(action)
            np.testing.assert_array_equal(reward, plain / np.sqrt(before_reward.var + 1e-8))
        assert equal(env.observation_statistics, before)
        assert equal(env.reward_statistics, before_reward)


def test_statistics_that_are_set_take_the_place_of_the_old() -> None:
    with make(**NORMALIZED) as one, make(**NORMALIZED) as other:
        one.reset(), walk(one, 40)
        other.reset()
        other.observation_statistics = one.observation_statistics
        other.reward_statistics = one.reward_statistics
        one.update_statistics = other.update_statistics = False
        one.reset(seed=2), other.reset(seed=2)
        for mine, theirs in zip(walk(one, 30), walk(other, 30), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_statistics_survive_a_checkpoint() -> None:
    with make(normalize_observation={"epsilon": 1e-6, "clip": 5.0}) as env:
        env.reset(), walk(env, 10)
        statistics = env.observation_statistics
        assert equal(RunningStatistics.from_state_dict(statistics.state_dict()), statistics)
        assert equal(pickle.loads(pickle.dumps(statistics)), statistics)
        with pickle.loads(pickle.dumps(env)) as fresh:
            # the arguments travel, what was counted does not
            assert fresh.observation_statistics.count == 1e-4


def test_a_clip_limits_observations() -> None:
    with make(normalize_observation={"clip": 0.5}) as env:
        env.reset()
        rows = walk(env, 30)
        highest = max(np.abs(row[: 6 * 3]).max() for row in rows)
        assert highest == 0.5


def test_asynchronous_batches_count_as_they_are_received() -> None:
    with (
        make(8, batch_size=3, num_threads=2, **NORMALIZED) as env,
        rollouts.make_vec("Pendulum-v1", 8, seed=5, max_episode_steps=20) as bare,
    ):
        # what each environment shows is known beforehand: an equal pool is stepped alongside
        reference = Normalizing((3,), 8)
        rng = np.random.default_rng(0)
        returns = np.zeros(8)
        shown = {env_id: row.copy() for env_id, row in enumerate(bare.reset()[0])}
        pending: dict[int, float] = {}
        env.async_reset()
        for _ in range(200):
            obs, reward, terminated, _, info = env.recv()
            ids = info["env_id"]
            steps = [env_id for env_id in ids if env_id in pending]
            for env_id in steps:
                returns[env_id] = returns[env_id] * 0.99 + pending[env_id]
            want = reference.see(np.stack([shown[env_id] for env_id in ids]))
            np.testing.assert_array_equal(obs, want)
            if steps:
                reference.returns.update(np.array([returns[env_id] for env_id in steps]))
            # rows of a reset may lie beside rows of steps
            plain = np.array([pending.pop(env_id, 0.0) for env_id in ids])
            np.testing.assert_array_equal(reward, plain / np.sqrt(reference.returns.var + 1e-8))
            assert not terminated.any()
            action = random_actions(env.action_space, rng)
            env.send(action)
            rows, rewards, *_ = bare.step(action, ids)
            for env_id, row, gained in zip(ids, rows, rewards, strict=True):
                shown[int(env_id)], pending[int(env_id)] = row.copy(), float(gained)


def test_rows_in_arrays_of_the_caller_are_scaled_too() -> None:
    with make(**NORMALIZED) as env, make(**NORMALIZED) as usual:
        env.reset(), usual.reset()
        rng = np.random.default_rng(0)
        out = {"obs": np.zeros((6, 3), np.float32), "reward": np.zeros(6)}
        for _ in range(30):
            action = random_actions(env.action_space, rng)
            obs, reward, *_ = env.step(action, out=out)
            want_obs, want_reward, *_ = usual.step(action)
            assert obs is out["obs"]
            np.testing.assert_array_equal(obs, want_obs)
            np.testing.assert_array_equal(reward, want_reward)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Hopper-v5"])
def test_saved_states_hold_stacks_and_returns(env_id: str, mode: str) -> None:
    wrappers = {"time_aware": "fraction", "frame_stack": 3, **NORMALIZED}
    with rollouts.make_vec(env_id, 4, seed=1, autoreset_mode=mode, **wrappers) as env:
        env.reset(), walk(env, 25)
        kept = env.observation_statistics, env.reward_statistics
        states = env.get_state()
        first = walk(env, 40, seed=7)
        env.set_state(None, states)
        env.observation_statistics, env.reward_statistics = kept
        for before, after in zip(first, walk(env, 40, seed=7), strict=True):
            np.testing.assert_array_equal(before, after)
        with rollouts.make_vec(env_id, 4, autoreset_mode=mode) as bare:
            with pytest.raises(SpecError, match="state 0"):
                bare.set_state(None, states)
            bare.reset()
            with pytest.raises(SpecError, match="state 0"):
                env.set_state(None, bare.get_state())


def test_shared_statistics_are_those_of_all_pools_together() -> None:
    pools = [make(4, env_id_offset=4 * i, **NORMALIZED) for i in range(3)]
    with make(12, **NORMALIZED) as whole:
        common = whole.observation_statistics
        whole.reset(), walk(whole, 50)
        rng = np.random.default_rng(0)
        for pool in pools:
            pool.reset()
        for _ in range(50):
            action = random_actions(whole.action_space, rng)
            for i, pool in enumerate(pools):
                pool.step(action[4 * i : 4 * i + 4])
        for pool in pools:
            common = common.merged(pool.engine.statistics.take_new()["observation"])
            assert pool.engine.statistics.take_new()["observation"].count == 0
            pool.close()
        together = whole.observation_statistics
        # another order of additions
        np.testing.assert_allclose(common.mean, together.mean, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(common.var, together.var, rtol=1e-12)
        assert common.count == pytest.approx(together.count, rel=1e-15)


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20), min_size=2, max_size=6))
@settings(max_examples=50, deadline=None)
def test_merging_gives_the_statistics_of_all_rows(batches: list[list[float]]) -> None:
    merged = RunningStatistics(np.zeros(()), np.zeros(()), 0)
    for batch in batches:
        rows = np.array(batch)
        merged = merged.merged(RunningStatistics(rows.mean(), rows.var(), len(rows)))
    rows = np.concatenate([np.array(batch) for batch in batches])
    assert merged.count == len(rows)
    np.testing.assert_allclose(merged.mean, rows.mean(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(merged.var, rows.var(), rtol=1e-9, atol=1e-6)


def test_statistics_are_refused_where_they_do_not_fit() -> None:
    good = RunningStatistics(np.zeros(3), np.ones(3), 10)
    with make(normalize_observation=True) as env:
        env.reset()
        for bad in (
            RunningStatistics(np.zeros(4), np.ones(4), 10),
            RunningStatistics(np.zeros(3), -np.ones(3), 10),
            RunningStatistics(np.full(3, np.nan), np.ones(3), 10),
            RunningStatistics(np.zeros(3), np.ones(3), 0),
            "statistics",
        ):
            with pytest.raises(SpecError, match="observation_statistics"):
                env.observation_statistics = bad  # type: ignore[assignment]
        with pytest.raises(SpecError, match="normalize_reward=True"):
            _ = env.reward_statistics
        env.send(env.action_space.sample())
        with pytest.raises(ProtocolError, match="in flight"):
            env.update_statistics = False
        env.observation_statistics = good
        env.recv()
        env.update_statistics = False
        env.send(env.action_space.sample())
        with pytest.raises(ProtocolError, match="frozen"):
            env.observation_statistics = good
    with pytest.raises(rollouts.ClosedError):
        _ = env.observation_statistics
    with make() as bare, pytest.raises(SpecError, match="normalize_observation"):
        bare.update_statistics = False
