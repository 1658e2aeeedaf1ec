# SPDX-License-Identifier: Apache-2.0
"""Tasks of the DeepMind Control Suite whose models have other fields than their files."""

from __future__ import annotations

import signal
from typing import Any

import mujoco
import numpy as np
import pytest
from dm_control_oracle import Changes, compare, make_dm_control, physics_state
from long_forms import slow_beside

import rollouts
from rollouts.errors import EnvError

pytestmark = pytest.mark.system


def scaled(factor: float) -> Any:
    return lambda value: value * factor


def larger_target(value: np.ndarray) -> np.ndarray:
    """A larger target of the stacker, (1 or N, geoms, 3)."""
    larger = value.copy()
    larger[:, make_dm_control("StackerStack2-v1").physics.model.ptr.geom("target").id] *= 5
    return larger


# what starts and rewards read of the model, by task; dm_control reads it in every episode or step
CHANGES: dict[str, Changes] = {
    "AcrobotSwingup-v1": {"site_size": scaled(5)},
    "AcrobotSwingupSparse-v1": {"site_size": scaled(15)},
    "DogFetch-v1": {"site_size": scaled(9), "geom_size": scaled(1.2), "body_mass": scaled(1.1)},
    "DogStand-v1": {"body_mass": scaled(1.5), "opt.gravity": scaled(0.8), "body_pos": scaled(1.1)},
    "DogWalk-v1": {"qpos0": lambda value: value + 0.02},
    "FingerTurnEasy-v1": {"geom_size": scaled(0.9)},
    "FishSwim-v1": {"geom_size": scaled(1.3)},
    "PointMassEasy-v1": {"geom_size": scaled(0.8)},
    "QuadrupedEscape-v1": {"hfield_size": scaled(0.5)},
    "QuadrupedFetch-v1": {"site_size": scaled(2), "geom_size": scaled(0.8)},
    "ReacherEasy-v1": {"geom_size": scaled(2)},
    "StackerStack2-v1": {"geom_size": larger_target},
    "SwimmerSwimmer6-v1": {"geom_size": scaled(1.5)},
}
# long to load, and they read of the model what another task here reads
LIKE_OTHERS = ["DogStand-v1", "DogWalk-v1", "QuadrupedFetch-v1", "AcrobotSwingupSparse-v1"]
every_change = pytest.mark.parametrize("env_id", slow_beside({*CHANGES} - {*LIKE_OTHERS}, CHANGES))


@every_change
def test_episodes_equal_dm_control_with_the_same_fields(env_id: str) -> None:
    compare(env_id, episodes=3, limit=15, changes=CHANGES[env_id])


def rewards(env: rollouts.VectorEnv, steps: int) -> np.ndarray:
    """(steps, N) of the same random actions each time."""
    generator = np.random.default_rng(9)
    shape = (steps, env.num_envs, *env.single_action_space.shape)
    actions = generator.uniform(-0.5, 0.5, shape).astype(np.float32)
    return np.stack([env.step(action)[1].copy() for action in actions])


@every_change
def test_states_take_along_what_rewards_read_of_the_model(env_id: str) -> None:
    options: dict[str, Any] = {"max_episode_steps": 7, "num_threads": 1}
    with (
        rollouts.make_vec(env_id, 2, seed=4, **options) as ours,
        rollouts.make_vec(env_id, 2, seed=8, **options) as other,
    ):
        file = {name: ours.model_field(name, of_file=True) for name in CHANGES[env_id]}
        fields = {name: change(file[name]) for name, change in CHANGES[env_id].items()}
        ours.reset(options={"model": fields})
        other.reset()
        rewards(ours, 3)
        states = ours.get_state()
        other.set_state(None, states)
        # bytes do not tell which field an environment had first
        assert other.get_state() == states
        np.testing.assert_array_equal(rewards(other, 20), rewards(ours, 20))


# tasks that draw fields of their own
@pytest.mark.parametrize(
    "env_id",
    [
        "FingerSpin-v1",
        "FingerTurnEasy-v1",
        "FishSwim-v1",
        "LqrLqr62-v1",
        "ManipulatorBringPeg-v1",
        "ManipulatorInsertBall-v1",
        "PointMassHard-v1",
        "QuadrupedEscape-v1",
        "ReacherHard-v1",
        "StackerStack2-v1",
        "SwimmerSwimmer6-v1",
    ],
)
def test_episodes_after_a_restored_one_are_equal(env_id: str) -> None:
    options: dict[str, Any] = {"max_episode_steps": 5, "num_threads": 1}
    with (
        rollouts.make_vec(env_id, 2, seed=4, **options) as ours,
        rollouts.make_vec(env_id, 2, seed=8, **options) as other,
    ):
        ours.reset()
        other.reset()
        rewards(ours, 9)
        other.set_state(None, ours.get_state())
        generator = np.random.default_rng(1)
        for _ in range(20):
            action = generator.uniform(-0.5, 0.5, ours.action_space.shape).astype(np.float32)
            for found, want in zip(other.step(action)[:4], ours.step(action)[:4], strict=True):
                np.testing.assert_array_equal(found, want)
        for row in range(2):
            np.testing.assert_array_equal(physics_state(other, row), physics_state(ours, row))


# -- starts -------------------------------------------------------------------------------


def start_positions(env_id: str, fields: Any, count: int = 40) -> dict[str, np.ndarray]:
    """The first position of each joint, (count,), after a reset with these fields.

    `fields` are functions of MuJoCo's model and the value in the file.
    """
    model = make_dm_control(env_id).physics.model.ptr
    with rollouts.make_vec(env_id, count, seed=2) as env:
        file = {name: env.model_field(name, of_file=True)[0] for name in fields}
        given = {name: change(model, file[name]) for name, change in fields.items()}
        env.reset(options={"model": given})
        states = np.array([physics_state(env, i)[1:] for i in range(count)])  # time comes first
    return {
        model.joint(joint).name: states[:, model.jnt_qposadr[joint]] for joint in range(model.njnt)
    }


def none_limited(model: mujoco.MjModel, value: np.ndarray) -> np.ndarray:
    return np.zeros_like(value)


def test_joints_that_are_not_limited_any_more_start_anywhere() -> None:
    # the knee's range is -150 to 0 degrees
    knee = start_positions("WalkerStand-v1", {"jnt_limited": none_limited})["right_knee"]
    assert knee.max() > 1 and knee.min() < -2.7
    # dm_control's cheetah draws limited joints alone, and then lets it fall
    for name, start in start_positions("CheetahRun-v1", {"jnt_limited": none_limited}).items():
        assert np.ptp(start) == 0, name


@pytest.mark.parametrize(
    ("env_id", "joint"), [("StackerStack2-v1", "arm_root"), ("WalkerStand-v1", "rooty")]
)
def test_joints_that_are_limited_now_start_in_their_range(env_id: str, joint: str) -> None:
    def limited(model: mujoco.MjModel, value: np.ndarray) -> np.ndarray:
        value[model.joint(joint).id] = True
        return value

    def narrow(model: mujoco.MjModel, value: np.ndarray) -> np.ndarray:
        value[model.joint(joint).id] = [0.1, 0.3]
        return value

    start = start_positions(env_id, {"jnt_limited": limited, "jnt_range": narrow})[joint]
    assert start.min() >= 0.1 and start.max() <= 0.3 and np.ptp(start) > 0.1


def test_a_stackers_target_stands_at_the_height_of_its_boxes() -> None:
    model = make_dm_control("StackerStack2-v1").physics.model.ptr
    target = model.body("target").id
    with rollouts.make_vec("StackerStack2-v1", 20, seed=2) as env:
        sizes = env.model_field("geom_size", of_file=True) * np.linspace(0.5, 1, 20)[:, None, None]
        env.reset(options={"model": {"geom_size": sizes}})
        height = env.model_field("body_pos")[:, target, 2] / sizes[:, model.geom("target").id, 0]
    np.testing.assert_allclose(np.unique(np.round(height, 9)), [1, 3])


def test_a_fetching_dogs_ball_begins_where_the_floor_is_large() -> None:
    model = make_dm_control("DogFetch-v1").physics.model.ptr
    with rollouts.make_vec("DogFetch-v1", 3, seed=2) as env:
        sizes = env.model_field("geom_size", of_file=True) * np.array([0.5, 1, 2])[:, None, None]
        env.reset(options={"model": {"geom_size": sizes}})
        first = 1 + model.joint("ball_root").qposadr[0]
        ball = np.array([physics_state(env, row)[first : first + 2] for row in range(3)])
    floor = sizes[:, model.geom("floor").id, 0]
    np.testing.assert_allclose(np.linalg.norm(ball, axis=1), 0.75 * floor)


# -- starts that there are not -------------------------------------------------------------


def test_a_terrain_of_an_impossible_size_is_refused() -> None:
    with rollouts.make_vec("QuadrupedEscape-v1", 2, seed=3, num_threads=1) as env:
        file = env.model_field("hfield_size", of_file=True)
        for metres in (-1, 1, 2.9, 250, 1e300):
            sizes = file.copy()
            sizes[1, 0, 0] = metres
            said = r"env_id 1: the height field is .* expected 6.* to 402"
            with pytest.raises(EnvError, match=said):
                env.reset(options={"model": {"hfield_size": sizes}})
            assert env.recv()[3].tolist() == [False, True]
        want = env.reset(seed=3, options={"model": {"hfield_size": file}})[0].copy()
        np.testing.assert_array_equal(env.reset(seed=3)[0], want)


@pytest.mark.parametrize("metres", [3, 201])
def test_the_smallest_and_the_largest_terrain_can_be_walked_on(metres: float) -> None:
    with rollouts.make_vec("QuadrupedEscape-v1", 1, seed=3) as env:
        sizes = env.model_field("hfield_size", of_file=True)
        sizes[0, 0, :2] = metres
        env.reset(options={"model": {"hfield_size": sizes}})
        heights = env.model_field("hfield_data")
        assert np.isfinite(heights).all() and 0.1 < heights.max() < 1.5


# one task of each search
@pytest.mark.parametrize(
    ("env_id", "factor"),
    [
        ("BallInCupCatch-v1", 5),
        # 10 000 tries of these take seconds
        pytest.param("HumanoidStand-v1", 2, marks=pytest.mark.slow),
        pytest.param("ManipulatorBringBall-v1", 5, marks=pytest.mark.slow),
        ("StackerStack2-v1", 5),
    ],
)
def test_a_start_that_cannot_be_found_is_an_error(env_id: str, factor: float) -> None:
    with (
        rollouts.make_vec(env_id, 1, seed=3) as env,
        rollouts.make_vec(env_id, 1, seed=3) as untouched,
    ):
        sizes = env.model_field("geom_size", of_file=True) * factor
        with pytest.raises(EnvError, match="no start without contacts was found in 10000 tries"):
            env.reset(options={"model": {"geom_size": sizes}})
        assert env.recv()[3].all()
        again = env.reset(seed=3, options={"model": {"geom_size": None}})[0]
        np.testing.assert_array_equal(again, untouched.reset()[0])


def test_a_search_for_starts_can_be_interrupted() -> None:
    num_envs = 60  # a fifth of a second or more each

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with rollouts.make_vec("FingerSpin-v1", num_envs, seed=3, num_threads=1) as env:
        sizes = env.model_field("geom_size", of_file=True) * 5
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            with pytest.raises(KeyboardInterrupt):
                env.reset(options={"model": {"geom_size": sizes}})
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        # most of them had not even begun
        assert env.num_in_flight == num_envs
        assert env.stats().num_env_errors < num_envs
