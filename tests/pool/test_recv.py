# SPDX-License-Identifier: Apache-2.0
"""Results of recv, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

import rollouts
from rollouts import _native
from rollouts.batch import STEP_ARRAYS


def zeros(rows: int) -> np.ndarray:
    return np.zeros(rows, dtype=np.int64)


def test_the_core_returns_arrays_in_the_order_of_step_batch() -> None:
    assert _native.STEP_ARRAYS == STEP_ARRAYS


def test_recv_with_nothing_in_flight_raises_at_once(sync_env, async_env) -> None:
    with pytest.raises(rollouts.ProtocolError, match="never return"):
        sync_env.recv()
    for _ in range(3):
        async_env.recv()
    with pytest.raises(rollouts.ProtocolError, match="never return"):
        async_env.recv()


def test_async_recv_with_too_few_in_flight_raises_at_once(async_env) -> None:
    for _ in range(3):
        ids = async_env.recv()[4]["env_id"]
    async_env.send(zeros(1), ids[:1])
    with pytest.raises(rollouts.ProtocolError, match="2 environments and 1 are in flight"):
        async_env.recv()
    async_env.send(zeros(1), ids[1:])
    assert sorted(async_env.recv()[4]["env_id"]) == sorted(ids)


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), -0.001])
def test_bad_timeouts_are_refused(sync_env, timeout_s: float) -> None:
    sync_env.send(zeros(6))
    with pytest.raises(rollouts.SpecError, match="timeout_s"):
        sync_env.recv(timeout_s)
    sync_env.recv(1e300)


def test_recv_that_times_out_loses_nothing() -> None:
    # so much work that one thread has not finished it when recv looks
    num_envs = 200_000
    with rollouts.make_vec(
        "Pendulum-v1", num_envs, batch_size=num_envs - 1, num_threads=1, seed=1
    ) as env:
        env.async_reset()
        with pytest.raises(TimeoutError, match="200000 environments are in flight"):
            env.recv(timeout_s=0)
        assert env.num_in_flight == num_envs
        assert len(env.recv()[0]) == num_envs - 1


def test_sync_pool_steps_a_subset_in_the_order_sent(sync_env) -> None:
    obs, _, _, _, info = sync_env.step([1, 0, 1], env_id=[14, 10, 12])
    assert info["env_id"].tolist() == [14, 10, 12]
    assert obs.shape == (3, 4)
    assert info["episode_length"].tolist() == [1, 1, 1]
    everyone = sync_env.step(zeros(6))[4]
    assert everyone["env_id"].tolist() == list(range(10, 16))
    assert everyone["episode_length"].tolist() == [2, 1, 2, 1, 2, 1]


@pytest.mark.parametrize("num_envs", [6, 2000])
def test_one_recv_returns_all_partial_sends(num_envs: int) -> None:
    generator = np.random.default_rng(1)
    with rollouts.make_vec("CartPole-v1", num_envs, num_threads=3, seed=1) as env:
        env.reset()
        for _ in range(20):
            order = generator.permutation(num_envs)
            first, second = order[: num_envs // 3], order[num_envs // 3 : num_envs - 1]
            env.send(zeros(len(first)), first)
            env.send(zeros(len(second)), second)
            info = env.recv()[4]
            np.testing.assert_array_equal(info["env_id"], order[:-1])


def test_empty_send_is_allowed_and_sends_nothing(sync_env) -> None:
    sync_env.send(zeros(0), np.zeros(0, np.int32))
    assert sync_env.num_in_flight == 0


def test_reset_discards_what_is_in_flight(async_env) -> None:
    obs, info = async_env.reset(seed=3)
    assert obs.shape == (2, 4)
    assert not info["episode_length"].any()
    rest = [async_env.recv()[4] for _ in range(2)]
    ids = np.concatenate([info["env_id"], *(one["env_id"] for one in rest)])
    assert sorted(ids.tolist()) == list(range(6))


def test_async_send_without_env_id_takes_those_of_the_last_recv(async_env) -> None:
    ids = async_env.recv()[4]["env_id"].copy()
    async_env.send(zeros(2))
    with pytest.raises(rollouts.ProtocolError, match=rf"env_id {ids[0]} in row 0"):
        async_env.send(zeros(2))


def test_recv_batch_returns_the_arrays_of_recv() -> None:
    with rollouts.make_vec("CartPole-v1", 3, autoreset_mode="same_step") as env:
        env.reset(seed=1)
        env.send(zeros(3))
        batch = env.recv_batch()
        env.reset(seed=1)
        obs, reward, terminated, truncated, info = env.step(zeros(3))
        np.testing.assert_array_equal(batch.obs, obs)
        np.testing.assert_array_equal(batch.reward, reward)
        np.testing.assert_array_equal(batch.terminated, terminated)
        np.testing.assert_array_equal(batch.truncated, truncated)
        np.testing.assert_array_equal(batch.env_id, info["env_id"])
        np.testing.assert_array_equal(batch.episode_return, info["episode_return"])
        np.testing.assert_array_equal(batch.episode_length, info["episode_length"])
        assert batch.final_obs is not None and batch.final_obs.shape == obs.shape
