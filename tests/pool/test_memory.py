# SPDX-License-Identifier: Apache-2.0
"""Memory, threads and files over millions of steps and hundreds of pools."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import psutil
import pytest
from processes import run_in_child, wait_until

import rollouts

pytestmark = pytest.mark.system

MOST_HELD = 24  # batches whose views are held at a time
STEPS = 10_000_000
ATARI_IDS = [i for i in ("ALE/Pong-v5",) if i in rollouts.env_ids()]


def settled_rss() -> int:
    """Bytes of this process, without what malloc keeps for later."""
    ctypes.CDLL(None).malloc_trim(0)
    return psutil.Process().memory_info().rss


def num_threads() -> int:
    return psutil.Process().num_threads()


def num_files() -> int:
    return psutil.Process().num_fds()


def hold_and_drop(env: rollouts.VectorEnv, batches: int, generator: random.Random) -> None:
    """Steps environments, holding views of up to MOST_HELD batches; drops them all in the end."""
    held: list[np.ndarray] = []
    actions = np.zeros(env.batch_size, np.int64)
    for batch in range(batches):
        obs, reward, terminated, _, info = env.step(actions)
        # any column, whole or in part, keeps its whole batch
        held.append((obs, obs[:1], reward[-1:], terminated, info["env_id"])[batch % 5])
        keep = int(generator.random() * (MOST_HELD + 1))
        while len(held) > keep:
            held.pop(int(generator.random() * len(held)))


SIZES = [
    (1024, 1024, STEPS),
    (1024, 256, STEPS),
    # many small batches: what is lost with each batch counts, from 15 bytes on
    (8, 8, STEPS // 24),
    (8, 2, STEPS // 48),
    # and from 5 bytes on
    (8, 8, STEPS // 8),
    (8, 2, STEPS // 16),
]
# each mode with whole batches and with parts of the environments, once in many and once in few
SHORT = [(*SIZES[0], "next_step"), (*SIZES[1], "same_step")]
SHORT += [(*SIZES[2], "same_step"), (*SIZES[3], "next_step")]


@pytest.mark.parametrize(
    ("num_envs", "batch_size", "steps", "autoreset_mode"),
    [
        pytest.param(*size, mode, marks=[pytest.mark.slow] * ((*size, mode) not in SHORT))
        for mode in ("next_step", "same_step")
        for size in SIZES
    ],
)
def test_memory_stays_flat_while_views_are_held_and_dropped(
    num_envs: int, batch_size: int, steps: int, autoreset_mode: str
) -> None:
    run_in_child(assert_memory_stays_flat, num_envs, batch_size, steps, autoreset_mode)


def assert_memory_stays_flat(
    num_envs: int, batch_size: int, steps: int, autoreset_mode: str
) -> None:
    generator = random.Random(1)
    batches = steps // batch_size
    with rollouts.make_vec(
        "CartPole-v1",
        num_envs,
        batch_size=batch_size,
        num_threads=2,
        seed=1,
        autoreset_mode=autoreset_mode,
    ) as env:
        env.reset()
        first_buffers = env.buffer_bytes
        # whatever is allocated once
        hold_and_drop(env, batches // 10, generator)
        used = []
        for _ in range(9):
            hold_and_drop(env, batches // 9, generator)
            used.append(settled_rss())
            assert env.buffer_bytes <= (MOST_HELD + 3) * first_buffers
    # what the pool keeps of the buffers that were held may differ from time to time, and
    # Python allocates in arenas of 1 MiB
    allowed = MOST_HELD * first_buffers + 2**20
    growth = min(used[6:]) - max(used[:3])
    assert growth <= allowed, f"RSS at every ninth of the steps: {used}"


def use_one_pool(round_: int) -> None:
    """Leaves a pool in one of several conditions, closed or dropped."""
    num_envs = 4096
    env = rollouts.make_vec(
        "CartPole-v1",
        num_envs,
        batch_size=num_envs - (round_ % 2) * 3000,
        num_threads=1 + round_ % 3,
        seed=1,
        autoreset_mode="same_step",
    )
    if round_ % 5 == 0:
        env.close()  # never used
        return
    env.async_reset()
    batch = env.recv_batch()
    obs = batch.obs
    if round_ % 5 == 1:
        env.send(np.zeros(env.batch_size, np.int64))  # work in flight
    elif round_ % 5 == 2:
        env.get_state(batch.env_id)
    if round_ % 4:
        env.close()
    first = obs[0].copy()
    del env, batch
    # the view outlives its pool
    np.testing.assert_array_equal(obs[0], first)


def test_two_hundred_pools_give_back_threads_and_memory() -> None:
    run_in_child(assert_pools_give_back)


def assert_pools_give_back() -> None:
    threads = num_threads()
    for round_ in range(20):
        use_one_pool(round_)
    used, files = [settled_rss()], num_files()
    for round_ in range(200):
        use_one_pool(round_)
    used.append(settled_rss())
    assert wait_until(lambda: num_threads() == threads), (threads, num_threads())
    assert num_files() == files
    # a pool's environments take 600 KiB, a batch 170 KiB: if every fourth pool lost one of these,
    # more would be in use
    assert used[1] - used[0] < 4 * 2**20, used


def test_memory_stays_flat_while_simulations_step_reset_and_are_saved() -> None:
    run_in_child(assert_simulations_stay_flat)


def assert_simulations_stay_flat() -> None:
    with rollouts.make_vec(
        "Hopper-v5", 8, num_threads=2, seed=1, autoreset_mode="same_step"
    ) as env:
        env.reset()
        actions = np.ones((8, 3), np.float32)
        used = []
        for _ in range(7):
            for _ in range(1000):
                env.step(actions)
            env.set_state(None, env.get_state())
            used.append(settled_rss())
    # 56 000 steps, a reset in every 20 or so; Python allocates in arenas of 1 MiB
    assert min(used[5:]) - max(used[:2]) <= 2**20, used


@pytest.mark.parametrize("env_id", [*ATARI_IDS, "Humanoid-v5"])
def test_pools_of_engines_give_back_threads_and_memory(env_id: str) -> None:
    run_in_child(assert_pools_of_engines_give_back, env_id)


def assert_pools_of_engines_give_back(env_id: str) -> None:
    def use_one() -> None:
        with rollouts.make_vec(env_id, 4, batch_size=2, num_threads=2, seed=1) as env:
            env.async_reset()
            env.recv()
            env.send(np.zeros((2, *env.single_action_space.shape), np.int64))

    threads = num_threads()
    for _ in range(2):
        use_one()
    used, files = [settled_rss()], num_files()
    for _ in range(16):
        use_one()
    used.append(settled_rss())
    assert wait_until(lambda: num_threads() == threads), (threads, num_threads())
    assert num_files() == files
    # an emulator is 900 KiB: one lost by each pool is 14 MiB. The kernel counts in pages of up
    # to 2 MiB, so that a few of these come and go
    assert used[1] - used[0] < 8 * 2**20, used
