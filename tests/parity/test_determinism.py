# SPDX-License-Identifier: Apache-2.0
"""The data are a function of (seed, env_id, episode) and of the actions, of nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from grid_ids import without_equal_kinds

import rollouts
from rollouts.families import dm_control

pytestmark = pytest.mark.system

# version 4 of the MuJoCo tasks draws and steps as version 5 does
V4_IDS = [i for i in rollouts.env_ids() if i.endswith("-v4") and i != "Taxi-v4"]
# one task stands for all of the DeepMind Control Suite
SUITE_IDS = [i for i in dm_control.task_ids() if i != "WalkerWalk-v1"]
OTHER_IDS = [
    i
    for i in without_equal_kinds(rollouts.env_ids())
    if not i.startswith(("ALE/", "Vizdoom")) and i not in V4_IDS + SUITE_IDS
]
LIGHT_IDS = [i for i in OTHER_IDS if not rollouts.env_spec(i).cpu_only]
MUJOCO_IDS = [i for i in OTHER_IDS if i not in LIGHT_IDS]
ALE_IDS = [i for i in ("ALE/Pong-v5",) if i in rollouts.env_ids()]
# CliffWalking-v1 leaves nothing to chance
RANDOM_IDS = [i for i in OTHER_IDS if i != "CliffWalking-v1"]

# those that stand for all that step in an engine, whose batches are the pool's
ENGINE_IDS = ["Ant-v5", "WalkerWalk-v1", "LunarLander-v3", "BipedalWalker-v3", "CarRacing-v3"]


def several_of(env_ids: list[str]) -> pytest.MarkDecorator:
    """Parametrises by these ids; `slow` are those of an engine that others stand for."""
    slow = {i for i in MUJOCO_IDS if i not in ENGINE_IDS}
    return pytest.mark.parametrize(
        "env_id", [pytest.param(i, marks=[pytest.mark.slow] * (i in slow)) for i in env_ids]
    )


# few environments run on the caller alone, many in the threads' queue
SIZES = [12, 1200]
STEPS = 60

# env_id -> obs, reward, terminated, truncated, return, length and final_obs of every step
Trajectories = dict[int, bytes]


def actions_for(env: rollouts.VectorEnv, env_id: np.ndarray, step: np.ndarray) -> np.ndarray:
    """An action per row that depends on the row's env_id and step alone."""
    mixed = (env_id.astype(np.int64) * 7919 + step * 104729) % 1009
    if hasattr(env.single_action_space, "n"):
        return mixed % env.single_action_space.n
    shape = (len(env_id),) + (1,) * len(env.single_action_space.shape)
    low, high = env.single_action_space.low, env.single_action_space.high
    return (low + (mixed / 1009).reshape(shape) * (high - low)).astype(np.float32)


def collect(
    env_id: str,
    num_envs: int,
    steps: int = STEPS,
    *,
    autoreset_mode: str = "same_step",
    seed: int = 11,
    max_episode_steps: int | None = 25,
    **arguments: object,
) -> Trajectories:
    """Steps every environment `steps` times, in the order the pool returns them."""
    with rollouts.make_vec(
        env_id,
        num_envs,
        seed=seed,
        autoreset_mode=autoreset_mode,
        max_episode_steps=max_episode_steps,
        **arguments,
    ) as env:
        obs = (env.single_observation_space.dtype, env.single_observation_space.shape)
        row = [("obs", *obs), ("reward", "f8"), ("terminated", "?"), ("truncated", "?")]
        row += [("episode_return", "f8"), ("episode_length", "i4"), ("final_obs", *obs)]
        table = np.zeros((num_envs, steps + 1), row)
        first = env.env_id_offset
        sent_steps = np.zeros(num_envs, dtype=np.int64)
        env.async_reset()
        while sent_steps.min() <= steps:
            batch = env.recv_batch()
            envs = batch.env_id - first
            step = sent_steps[envs]
            # asynchronous pools are ahead with some environments
            write(table, envs, step, batch, step <= steps)
            env.send(actions_for(env, batch.env_id, step), batch.env_id)
            sent_steps[envs] += 1
    return {first + i: rows.tobytes() for i, rows in enumerate(table)}


def write(
    table: np.ndarray,
    envs: np.ndarray,
    step: np.ndarray,
    batch: rollouts.StepBatch,
    kept: np.ndarray,
) -> None:
    for name in ("obs", "reward", "terminated", "truncated", "episode_return", "episode_length"):
        table[name][envs[kept], step[kept]] = getattr(batch, name)[kept]
    if batch.final_obs is not None:
        ended = kept & (batch.terminated | batch.truncated)
        table["final_obs"][envs[ended], step[ended]] = batch.final_obs[ended]


def assert_same(left: Trajectories, right: Trajectories) -> None:
    assert left.keys() == right.keys()
    assert [one for one in left if left[one] != right[one]] == []


# a mode is the pool's, whose size decides who steps: the other pairs are left to make test-all
@pytest.mark.parametrize("env_id", LIGHT_IDS)
@pytest.mark.parametrize(
    ("num_envs", "autoreset_mode"),
    [
        (SIZES[0], "next_step"),
        (SIZES[1], "same_step"),
        pytest.param(SIZES[0], "same_step", marks=pytest.mark.slow),
        pytest.param(SIZES[1], "next_step", marks=pytest.mark.slow),
    ],
)
def test_data_do_not_depend_on_threads_or_batch_size(
    env_id: str, num_envs: int, autoreset_mode: str
) -> None:
    steps = STEPS if num_envs < 100 else 30
    expected = collect(env_id, num_envs, steps, autoreset_mode=autoreset_mode, num_threads=1)
    for num_threads, batch_size in [(2, None), (4, None), (1, 5), (2, num_envs // 3), (4, 7)]:
        # batches of seven out of many would take long in Python
        rows = None if batch_size is None else max(batch_size, num_envs // 8)
        found = collect(
            env_id,
            num_envs,
            steps,
            autoreset_mode=autoreset_mode,
            num_threads=num_threads,
            batch_size=rows,
        )
        assert_same(expected, found)


@several_of(OTHER_IDS)
def test_three_pools_with_offsets_are_one_pool(env_id: str) -> None:
    expected = collect(env_id, 12)
    found: Trajectories = {}
    for worker in range(3):
        found |= collect(env_id, 4, env_id_offset=4 * worker, batch_size=2, num_threads=2)
    assert_same(expected, found)


def observations(env: rollouts.VectorEnv, seed: int | None) -> list[bytes]:
    """Observations of each environment after a reset and in 40 steps of the same actions.

    The first observation alone says little where there are few: a lake's start is one. Let
    `env` have short episodes, so that it shows several starts.
    """
    zeros = np.zeros(env.num_envs, np.int64)
    seen = [env.reset(seed=seed)[0]]
    seen += [env.step(actions_for(env, zeros, zeros + step))[0] for step in range(40)]
    return [np.ascontiguousarray(one).tobytes() for one in np.stack(seen, axis=1)]


@pytest.mark.parametrize("env_id", RANDOM_IDS)
def test_different_seeds_and_different_environments_differ(env_id: str) -> None:
    with rollouts.make_vec(env_id, 8, max_episode_steps=10) as env:
        assert len({*observations(env, 1), *observations(env, 2)}) == 16


@pytest.mark.parametrize("env_id", RANDOM_IDS)
def test_episodes_of_one_environment_differ(env_id: str) -> None:
    with rollouts.make_vec(env_id, 2, seed=1, max_episode_steps=10) as env:
        assert len({one for _ in range(10) for one in observations(env, None)}) == 20


@pytest.mark.parametrize("env_id", RANDOM_IDS)
def test_seeds_that_differ_in_high_bits_alone_differ(env_id: str) -> None:
    with rollouts.make_vec(env_id, 2, max_episode_steps=10) as env:
        seeds = (1, 1 + 2**32, 2**64 - 1)
        assert len({one for seed in seeds for one in observations(env, seed)}) == 6


@several_of(ALE_IDS + MUJOCO_IDS)
def test_engines_do_not_depend_on_threads_or_batch_size(env_id: str) -> None:
    expected = collect(env_id, 3, 12, num_threads=1)
    assert_same(expected, collect(env_id, 3, 12, num_threads=2, batch_size=2))
    assert_same(expected, collect(env_id, 3, 12, num_threads=2))
