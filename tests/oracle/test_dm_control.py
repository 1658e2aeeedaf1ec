# SPDX-License-Identifier: Apache-2.0
"""The DeepMind Control Suite's tasks against dm_control: same start, same actions, to the end."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from dm_control_oracle import SPEC, TASKS, compare, flat, make_dm_control, own_fields
from long_forms import slow_beside
from scipy import ndimage

import rollouts
from rollouts.families import dm_control
from rollouts.mujoco import integration_state

pytestmark = pytest.mark.system

every_task = pytest.mark.parametrize("env_id", TASKS)
# the first of each domain, whose others share its code
FIRST = {domain: env_id for env_id, (domain, _) in reversed(TASKS.items())}.values()


def few_of(env_ids: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrises by all tasks; those beside `env_ids` are `slow`."""
    return pytest.mark.parametrize("env_id", slow_beside({*env_ids}, TASKS))


def test_every_task_is_compared() -> None:
    assert sorted(TASKS) == sorted(dm_control.task_ids())
    assert set(TASKS) <= set(rollouts.env_ids())


# dogs and the CMU humanoid take the longest: those left out differ from these in their rewards
@few_of(
    i for i in TASKS if i in FIRST or i == "DogWalk-v1" or not i.startswith(("Dog", "HumanoidCMU"))
)
def test_episodes_equal_dm_control(env_id: str) -> None:
    compare(env_id, episodes=2, least_steps=60, limit=30)


@pytest.mark.slow
@every_task
def test_many_episodes_equal_dm_control(env_id: str) -> None:
    # two episodes of dm_control's length, 50 short ones for many starts; random actions make the
    # CMU humanoid diverge now and then, in both alike, which ends an episode early
    limit = 220 if env_id.startswith("HumanoidCMU") else 200
    assert compare(env_id, episodes=50, limit=limit, seed=1) >= 10_000
    assert compare(env_id, episodes=2, seed=2) >= 2_000


@few_of(FIRST)
def test_spaces_and_limits_are_dm_controls(env_id: str) -> None:
    theirs, ours = make_dm_control(env_id), rollouts.env_spec(env_id)
    want = [(name, spec.shape) for name, spec in theirs.observation_spec().items()]
    assert list(ours.observation_parts) == want
    assert ours.single_observation_space.shape == flat(theirs.reset().observation).shape
    assert ours.single_observation_space.dtype == np.float64
    # dm_control has no limit for lqr, EnvPool's is this one
    assert ours.max_episode_steps == min(theirs._step_limit, 1000)
    spec, space = theirs.action_spec(), ours.single_action_space
    assert space.shape == spec.shape
    limited = np.abs(spec.minimum) < 1e9  # 1e10 is dm_control's infinity
    np.testing.assert_array_equal(space.low, np.where(limited, spec.minimum, -np.inf).astype("f4"))
    np.testing.assert_array_equal(space.high, np.where(limited, spec.maximum, np.inf).astype("f4"))
    assert ours.cpu_only


@few_of(FIRST)
def test_saved_states_bring_the_simulation_back(env_id: str) -> None:
    generator = np.random.default_rng(3)
    with rollouts.make_vec(env_id, 2, seed=4, num_threads=1) as env:
        low, high = env.single_action_space.low, env.single_action_space.high
        shape = (24, 2, *low.shape)
        actions = generator.uniform(np.maximum(low, -1), np.minimum(high, 1), shape).astype("f4")
        start = env.reset()[0].copy()
        begun = env.get_state()
        shown = [env.step(action)[:2] for action in actions[:12]]
        middle = env.get_state()
        shown += [env.step(action)[:2] for action in actions[12:]]

        # into environments that are elsewhere, and across each other
        env.reset(seed=9)
        for state, first in ((begun, 0), (middle, 12)):
            env.set_state(env.env_id_offset + np.array([1, 0]), state)
            for step in range(first, 24):
                obs, reward, *_ = env.step(actions[step][::-1])
                np.testing.assert_array_equal(obs[::-1], shown[step][0])
                np.testing.assert_array_equal(reward[::-1], shown[step][1])

        # what an untouched environment shows is what it showed when it was saved
        env.set_state(None, begun)
        mask = np.array([True, False])
        np.testing.assert_array_equal(env.reset(options={"reset_mask": mask})[0][1], start[1])


def test_terrain_is_a_spline_through_uniform_bumps() -> None:
    size, bumps = 201, 30
    with rollouts.make_vec("QuadrupedEscape-v1", 2, seed=5) as env:
        env.reset()
        heights = env.model_field("hfield_data").reshape(2, size, size)
    assert not np.array_equal(*heights)
    axis = np.linspace(-1, 1, size)
    radius = np.clip(np.hypot(axis, axis[:, None]), 0.04, 1)
    bowl = 0.5 - np.cos(2 * np.pi * radius) / 2
    # zooming is linear: along each axis a matrix takes bumps to points
    zoom = np.stack([ndimage.zoom(one, size / bumps) for one in np.eye(bumps)], axis=1)
    # where the bowl is flat nothing says what the bumps were; in the middle a square is not flat
    part = slice(60, 90)
    for one in heights:
        smooth = one[part, part] / bowl[part, part]
        seen = np.abs(zoom[part]).sum(axis=0) > 1e-3
        least = np.linalg.pinv(zoom[part][:, seen])
        drawn = least @ smooth @ least.T
        again = zoom[part][:, seen] @ drawn @ zoom[part][:, seen].T
        np.testing.assert_allclose(again, smooth, atol=1e-3)


def starts(env_id: str, count: int) -> np.ndarray:
    """(count, values): what starts consist of, in environments of ours."""
    rows = []
    with rollouts.make_vec(env_id, count, seed=11, num_threads=1) as env:
        env.reset()
        for state in env.get_state():
            own = [np.frombuffer(values, own_dtype(name)) for name, values in own_fields(state)]
            rows.append(np.concatenate([integration_state(state), *own]))
    return np.array(rows)


def own_dtype(name: str) -> type:
    return np.float32 if name.endswith(("_rgba", "hfield_data")) else np.float64


def dm_control_starts(env_id: str, count: int) -> np.ndarray:
    """The same in environments of dm_control."""
    names = own_names(env_id)
    rows = []
    theirs = make_dm_control(env_id, 12)
    for i in range(count):
        if env_id.startswith("Lqr"):
            theirs = make_dm_control(env_id, i)  # springs are drawn when it is made
        theirs.reset()
        physics = theirs.physics
        own = [getattr(physics.model.ptr, name).ravel() for name in names]
        rows.append(np.concatenate([physics.get_state(SPEC), *own]))
    return np.array(rows)


def own_names(env_id: str) -> list[str]:
    with rollouts.make_vec(env_id, 1, seed=0) as env:
        env.reset()
        return [name for name, _ in own_fields(env.get_state()[0])]


def largest_gap(one: np.ndarray, other: np.ndarray) -> float:
    """Kolmogorov's and Smirnov's statistic of two samples: how far their distributions are apart.

    Values are compared to 1e-9, so that rounding is no difference.
    """
    one, other = np.round(one, 9), np.round(other, 9)
    points = np.concatenate([one, other])
    below = [np.searchsorted(np.sort(s), points, side="right") / len(s) for s in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


def compare_starts(env_id: str, count: int) -> None:
    ours, theirs = starts(env_id, count), dm_control_starts(env_id, count)
    assert ours.shape == theirs.shape
    # the largest gap of equal distributions with probability 1e-7, for each value
    allowed = np.sqrt(-np.log(1e-7 / 2) / count)
    gaps = [largest_gap(ours[:, i], theirs[:, i]) for i in range(ours.shape[1])]
    worst = int(np.argmax(gaps))
    assert gaps[worst] < allowed, (worst, gaps[worst], ours[:5, worst], theirs[:5, worst])
    moving = np.ptp(theirs, axis=0) > 1e-9
    assert moving.any()
    np.testing.assert_array_equal(np.ptp(ours, axis=0) > 1e-9, moving)


# one task of each way to start; those that search for a place without contacts are slow
STARTS = [
    "AcrobotSwingup-v1",
    "BallInCupCatch-v1",
    "CartpoleBalance-v1",
    "CartpoleThreePoles-v1",
    "HopperStand-v1",
    "FingerTurnEasy-v1",
    "FishSwim-v1",
    "PendulumSwingup-v1",
    "PointMassHard-v1",
    "ReacherEasy-v1",
    "SwimmerSwimmer6-v1",
    "WalkerWalk-v1",
]
SLOW_STARTS = [
    "LqrLqr62-v1",  # compiled for each start: its springs are drawn with it
    "CheetahRun-v1",
    "DogFetch-v1",
    "DogWalk-v1",
    "HumanoidRun-v1",
    "HumanoidCMURun-v1",
    "ManipulatorBringBall-v1",
    "ManipulatorBringPeg-v1",
    "ManipulatorInsertBall-v1",
    "ManipulatorInsertPeg-v1",
    "QuadrupedFetch-v1",
    "QuadrupedWalk-v1",
    "StackerStack2-v1",
    "StackerStack4-v1",
]


@pytest.mark.parametrize("env_id", STARTS)
def test_starts_have_the_distribution_of_dm_control(env_id: str) -> None:
    compare_starts(env_id, 300)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", SLOW_STARTS)
def test_searched_starts_have_the_distribution_of_dm_control(env_id: str) -> None:
    compare_starts(env_id, 60 if env_id.startswith("Lqr") else 600)
