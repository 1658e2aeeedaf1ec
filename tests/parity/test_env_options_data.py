# SPDX-License-Identifier: Apache-2.0
"""Environments that differ in options or id give the data that they give among their like."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_determinism import Trajectories, assert_same, collect

import rollouts

# an id, options, and values of them that show in the data
OPTIONS = [
    ("CartPole-v1", {"pole_half_length": [0.3, 0.5, 0.9], "force_mag": [5.0, 10, 20]}),
    ("CartPole-v1", {"sutton_barto_reward": [True, False, True], "gravity": [1.5, 9.8, 3.0]}),
    ("Pendulum-v1", {"gravity": [1.0, 10.0, 25.0], "mass": [0.5, 1.0, 3.0]}),
    ("Acrobot-v1", {"nips": [True, False, True]}),
    ("FrozenLake-v1", {"success_rate": [0.2, 1.0, 0.5], "is_slippery": [True, True, False]}),
]
# whole rounds and remainders of a block of 64; few run on the caller, many in the threads' queue
ARRANGEMENTS = [
    (7, {"num_threads": 1}),
    (200, {"num_threads": 1}),
    (1200, {"num_threads": 3}),
    (200, {"num_threads": 2, "batch_size": 70}),
    (7, {"num_threads": 2, "batch_size": 2}),
]
STEPS = 30

ATARI = [i for i in ("ALE/Pong-v5", "ALE/Breakout-v5") if i in rollouts.env_ids()]
needs_atari = pytest.mark.skipif(not ATARI, reason="needs the ale-py package")


def rows(values: list, num_envs: int) -> list:
    """Environment i has value i % len(values)."""
    return list(itertools.islice(itertools.cycle(values), num_envs))


@pytest.mark.parametrize(("num_envs", "arrangement"), ARRANGEMENTS)
@pytest.mark.parametrize(("env_id", "options"), OPTIONS)
def test_options_per_environment_equal_pools_of_one_option(
    env_id: str, options: dict, num_envs: int, arrangement: dict
) -> None:
    variants = [dict(zip(options, values, strict=True)) for values in zip(*options.values())]  # noqa: B905
    pure = [collect(env_id, num_envs, STEPS, num_threads=1, **variant) for variant in variants]
    # or nothing would be tested
    assert pure[0] != pure[1]
    expected: Trajectories = {i: pure[i % len(pure)][i] for i in range(num_envs)}
    each = {name: rows(values, num_envs) for name, values in options.items()}
    assert_same(expected, collect(env_id, num_envs, STEPS, **arrangement, **each))


@pytest.mark.parametrize("env_id", ["MountainCar-v0", "MountainCarContinuous-v0"])
def test_goal_velocity_per_environment_equals_pools_of_one(env_id: str) -> None:
    def ends(**option: object) -> np.ndarray:
        """Marks cars that are at the goal after a step from just before it."""
        with rollouts.make_vec(env_id, 150, seed=1, **option) as env:
            env.reset()
            for i in range(150):
                position, velocity = 0.49, 0.02 + 0.0003 * i
                env.engine.pool.set_state(i, np.array([position, velocity]).tobytes())
            actions = np.ones((150, *env.single_action_space.shape), np.int32)
            return env.step(actions)[2].copy()

    values = [0.0, 0.03, 0.045]
    pure = [ends(goal_velocity=value) for value in values]
    assert pure[0].all() and pure[1].sum() > pure[2].sum() > 0
    expected = [pure[i % 3][i] for i in range(150)]
    assert ends(goal_velocity=rows(values, 150)).tolist() == expected


@pytest.mark.parametrize(("num_envs", "arrangement"), ARRANGEMENTS)
@pytest.mark.parametrize(
    "env_ids",
    [
        ["CartPole-v0", "CartPole-v1"],
        ["Taxi-v3", "Taxi-v4"],
        ["CliffWalking-v1", "CliffWalkingSlippery-v1"],
    ],
)
def test_a_mixed_pool_equals_pure_pools(
    env_ids: list[str], num_envs: int, arrangement: dict
) -> None:
    # one, two, three, ... neighbours of one id
    pattern = [i for run in range(40) for i in [run % 2] * (run + 1)]
    ids = [env_ids[i] for i in rows(pattern, num_envs)]
    pure = {one: collect(one, num_envs, STEPS, num_threads=1) for one in env_ids}
    expected: Trajectories = {i: pure[one][i] for i, one in enumerate(ids)}
    assert_same(expected, collect(ids, num_envs, STEPS, **arrangement))  # type: ignore[arg-type]


@needs_atari
@pytest.mark.parametrize("arrangement", [{"num_threads": 1}, {"num_threads": 2, "batch_size": 3}])
def test_mixed_atari_games_equal_pure_pools(arrangement: dict) -> None:
    ids = [ATARI[i] for i in (0, 1, 1, 0)]
    same = {"full_action_space": True, "max_episode_steps": 7}
    pure = {one: collect(one, 4, 16, num_threads=2, **same) for one in ATARI}
    expected: Trajectories = {i: pure[one][i] for i, one in enumerate(ids)}
    assert_same(expected, collect(ids, 4, 16, **same, **arrangement))  # type: ignore[arg-type]


@needs_atari
def test_atari_options_per_environment_equal_pools_of_one_option() -> None:
    values = {"frameskip": [2, 5, 2], "repeat_action_probability": [0.0, 0.5, 0.25]}
    variants = [dict(zip(values, row, strict=True)) for row in zip(*values.values())]  # noqa: B905
    pure = [collect(ATARI[0], 3, 10, num_threads=2, **variant) for variant in variants]
    expected: Trajectories = {i: pure[i][i] for i in range(3)}
    assert_same(expected, collect(ATARI[0], 3, 10, num_threads=2, **values))


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("batch_size", [None, 30])
def test_options_set_at_reset_equal_those_of_the_construction(
    env_id: str, batch_size: int | None
) -> None:
    def played(env: rollouts.VectorEnv, options: dict | None) -> dict[int, list]:
        data: dict[int, list] = {}
        # one batch of every environment, then its first step
        env.reset(seed=4, options=options)
        env.async_reset()
        for _ in range(2 * (env.num_envs // env.batch_size)):
            batch = env.recv_batch()
            for row, one in enumerate(batch.env_id.tolist()):
                data.setdefault(one, []).append((batch.obs[row].tobytes(), batch.reward[row]))
            actions = np.ones((env.batch_size, *env.single_action_space.shape), np.int32)
            env.send(actions, batch.env_id)
        return data

    options = {"gravity": np.linspace(1, 12, 120)}
    arguments = {"num_threads": 2, "batch_size": batch_size}
    with rollouts.make_vec(env_id, 120, **arguments, **options) as env:
        expected = played(env, None)
    with rollouts.make_vec(env_id, 120, seed=1, **arguments) as env:
        env.reset()
        before = played(env, None)
        found = played(env, options)
    shared = {one: min(len(expected[one]), len(found[one])) for one in expected.keys() & found}
    assert shared and max(shared.values()) > 1
    assert all(expected[one][:n] == found[one][:n] for one, n in shared.items())
    assert before != found
