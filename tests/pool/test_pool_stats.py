# SPDX-License-Identifier: Apache-2.0
"""VectorEnv.stats(): counts that balance, times that are ordered, resets that clear."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

import rollouts
from rollouts.envs.stats import TimePercentiles

N = 8


def steps(env: rollouts.VectorEnv, count: int) -> None:
    for _ in range(count):
        env.step(np.zeros(env.batch_size, np.int32))


def in_order(times: TimePercentiles) -> bool:
    return 0 <= times.p50 <= times.p90 <= times.p99 <= times.max


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("num_envs", [N, 3000])
def test_counts_balance_in_synchronous_mode(num_envs: int, num_threads: int) -> None:
    with rollouts.make_vec("CartPole-v1", num_envs, num_threads=num_threads, seed=1) as env:
        env.reset()
        assert env.stats().env_steps == 0
        steps(env, 100)
        stats = env.stats()
        assert (stats.env_steps, stats.num_recvs) == (100 * num_envs, 101)
        assert (stats.num_in_flight, stats.num_env_errors) == (0, 0)
        assert stats.buffer_bytes == env.buffer_bytes > 0
        # chosen rounds are timed whole, so every environment as often as the others
        assert stats.step_time_s.count % num_envs == 0
        assert 0 < stats.step_time_s.count <= stats.env_steps


def test_rounds_of_some_environments_are_counted_too() -> None:
    with rollouts.make_vec("CartPole-v1", 3000, num_threads=2, seed=1) as env:
        env.reset()
        for count in (1, 10, 2900):
            env.step(np.zeros(count, np.int32), np.arange(count))
        assert env.stats().env_steps == 2911
        env.reset(options={"reset_mask": np.arange(3000) < 7})
        assert env.stats().env_steps == 2911


def test_every_step_of_an_emulator_is_timed() -> None:
    with rollouts.make_vec("ALE/Pong-v5", 3, num_threads=2, seed=1) as env:
        env.reset()
        steps(env, 10)
        stats = env.stats()
        assert stats.env_steps == stats.step_time_s.count == 30
        # sends of the reset wait as well
        assert stats.queue_wait_s.count == 33
        assert stats.batch_wait_s.count == stats.num_recvs == 11
        assert in_order(stats.step_time_s)
        # no mean is above the largest, but for the width of its bucket
        assert stats.env_step_time_s.min() > 0
        assert stats.env_step_time_s.max() <= stats.step_time_s.max * 1.04
        # a recv waits for the slowest environment at least
        assert stats.batch_wait_s.max >= stats.step_time_s.p50


def test_an_emulator_is_slower_than_a_cart_pole() -> None:
    stats = []
    for env_id in ("CartPole-v1", "ALE/Pong-v5"):
        with rollouts.make_vec(env_id, 2, num_threads=1, seed=1) as env:
            env.reset()
            steps(env, 200)
            stats.append(env.stats())
    # a busy machine makes single steps longer, of a mean too, but not half of them
    assert stats[0].step_time_s.p50 < stats[1].env_step_time_s.min()


def test_environments_queue_where_one_thread_serves_many() -> None:
    with rollouts.make_vec("ALE/Pong-v5", 6, batch_size=2, num_threads=1, seed=1) as env:
        env.reset()
        steps(env, 50)
        stats = env.stats()
        assert stats.num_recvs == 51
        assert stats.num_in_flight == 4
        # received, and begun or not: what is in flight may have been computed
        assert 2 * 51 - 6 <= stats.env_steps <= 2 * 50
        assert in_order(stats.queue_wait_s) and in_order(stats.batch_wait_s)
        # six are sent at once, and each waits while the one before it is stepped
        assert stats.queue_wait_s.p90 > stats.step_time_s.p50


def test_light_asynchronous_environments_are_all_timed_some_day() -> None:
    with rollouts.make_vec("CartPole-v1", 64, batch_size=32, num_threads=1, seed=1) as env:
        env.reset()
        steps(env, 3000)
        stats = env.stats()
        assert stats.env_steps >= 32 * 3001 - 64
        assert not np.isnan(stats.env_step_time_s).any()
        assert in_order(stats.step_time_s) and in_order(stats.queue_wait_s)
        assert 0 < stats.batch_wait_s.count < stats.num_recvs


def test_nothing_timed_is_not_a_number() -> None:
    with rollouts.make_vec("CartPole-v1", N) as env:
        stats = env.stats()
        assert stats.env_steps == stats.num_recvs == stats.step_time_s.count == 0
        assert math.isnan(stats.step_time_s.p50) and math.isnan(stats.batch_wait_s.max)
        assert stats.env_step_time_s.shape == (N,)
        assert np.isnan(stats.env_step_time_s).all()


def test_reset_stats_begins_anew() -> None:
    with rollouts.make_vec("ALE/Pong-v5", 2, num_threads=1, seed=1) as env:
        env.reset()
        steps(env, 5)
        env.reset_stats()
        stats = env.stats()
        assert (stats.env_steps, stats.num_recvs) == (0, 0)
        assert stats.step_time_s.count == stats.queue_wait_s.count == 0
        assert np.isnan(stats.env_step_time_s).all()
        steps(env, 3)
        stats = env.stats()
        assert (stats.env_steps, stats.num_recvs, stats.step_time_s.count) == (6, 3, 6)
        assert (stats.env_step_time_s > 0).all()


def test_stats_outlive_the_pool() -> None:
    env = rollouts.make_vec("CartPole-v1", N, seed=1)
    env.reset()
    steps(env, 3)
    env.close()
    assert env.stats().env_steps == 3 * N
    assert env.stats().buffer_bytes == 0


def test_a_recv_that_times_out_counts_once_with_all_its_waiting() -> None:
    with rollouts.make_vec("ALE/Pong-v5", 2, batch_size=1, num_threads=1, seed=1) as env:
        env.async_reset()
        while True:
            try:
                env.recv(timeout_s=0)
                break
            except TimeoutError:
                continue
        stats = env.stats()
        assert stats.num_recvs == stats.batch_wait_s.count == 1


def test_other_threads_may_read_while_it_steps() -> None:
    with rollouts.make_vec("CartPole-v1", 3000, num_threads=2, seed=1) as env:
        env.reset()
        stop = threading.Event()
        seen: list[int] = []
        in_flight: set[int] = set()

        def watch() -> None:
            while not stop.is_set():
                stats = env.stats()
                seen.append(stats.env_steps)
                in_flight.add(stats.num_in_flight)

        watcher = threading.Thread(target=watch)
        watcher.start()
        steps(env, 300)
        stop.set()
        watcher.join()
        assert seen == sorted(seen)
        assert in_flight <= {0, 3000}
        assert env.stats().env_steps == 300 * 3000
