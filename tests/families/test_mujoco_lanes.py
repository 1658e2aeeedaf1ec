# SPDX-License-Identifier: Apache-2.0
"""Steps of lanes are MuJoCo's to rounding, in all that environments show, and go on for ever."""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Iterator
from typing import Any

import mujoco as mujoco_package
import numpy as np
import pytest
from sealed_states import sealed

import rollouts
from rollouts import _native
from rollouts.errors import SpecError
from rollouts.mujoco import Scaled, integration_state

pytestmark = pytest.mark.system

# sums are added in another order than MuJoCo's; of an array's largest number
ROUNDING = 1e-10
NUM_ENVS = 8
# lanes step as the newest release; with an older one they leave to MuJoCo what that does otherwise
NEWEST = mujoco_package.__version__.startswith(_native.MUJOCO_RELEASES[-1] + ".")
LANES = "lanes" if NEWEST else "auto"
SUITE = [
    *("AcrobotSwingup-v1", "CartpoleTwoPoles-v1", "CheetahRun-v1", "HopperHop-v1"),
    *("HumanoidRun-v1", "PendulumSwingup-v1", "PointMassEasy-v1", "WalkerRun-v1"),
    *("BallInCupCatch-v1", "LqrLqr62-v1"),
]
GYMNASIUM = [
    entry["id"]
    for entry in _native.registry()
    if entry["header"].startswith("envs/mujoco/") and entry["id"] != "MuJoCo-v0"
]


def actions_of(env: rollouts.VectorEnv, steps: int, seed: int = 0) -> np.ndarray:
    """(steps, N, ...) random actions; those of an environment depend on no other."""
    space = env.single_action_space
    low, high = np.maximum(space.low, -1), np.minimum(space.high, 1)
    each = [
        np.random.default_rng([seed, i]).uniform(low, high, (steps, *space.shape))
        for i in range(env.num_envs)
    ]
    return np.stack(each, axis=1).astype(np.float32)


def check_close(name: str, found: Any, want: Any) -> None:
    want = np.asarray(want, np.float64)
    largest = np.abs(want).max(initial=1e-6)
    np.testing.assert_allclose(found, want, rtol=0, atol=ROUNDING * largest, err_msg=name)


@pytest.mark.parametrize("env_id", [*GYMNASIUM, *SUITE])
def test_a_step_shows_what_mujocos_shows_from_the_same_state(env_id: str) -> None:
    with (
        rollouts.make_vec(env_id, NUM_ENVS, seed=1, engine=LANES) as lanes,
        rollouts.make_vec(env_id, NUM_ENVS, seed=1, engine="mujoco") as mujoco,
    ):
        start, want_start = lanes.reset()[0], mujoco.reset()[0]
        if env_id == "CheetahRun-v1":
            # its start comes to rest in 200 substeps
            check_close("start", start, want_start)
        else:
            np.testing.assert_array_equal(start, want_start)
        for action in actions_of(lanes, 40):
            # states of one engine are the other's, too
            lanes.set_state(None, mujoco.get_state())
            *found, found_info = lanes.step(action)
            *want, want_info = mujoco.step(action)
            for name, one, other in zip(("obs", "reward"), found, want, strict=False):
                check_close(name, one, other)
            np.testing.assert_array_equal(found[2:], want[2:])
            assert found_info.keys() == want_info.keys()
            for name, value in want_info.items():
                check_close(name, found_info[name], value)
        if lanes.mujoco_engine == "lanes":
            assert lanes.stats().num_steps_in_lanes > 20 * NUM_ENVS


def told_by_the_first(env_id: str, shape: tuple[int, int, int], **options: Any) -> np.ndarray:
    """(120, obs) observations of environment 0 in a pool of (environments, batch, threads)."""
    num_envs, batch_size, num_threads = shape
    with rollouts.make_vec(
        env_id, num_envs, seed=3, batch_size=batch_size, num_threads=num_threads, **options
    ) as env:
        actions = actions_of(env, 120)
        steps = np.zeros(num_envs, int)
        first: list[np.ndarray] = []
        env.async_reset()
        while len(first) < 120:
            obs, _, _, _, info = env.recv()
            ids = info["env_id"]
            first += [row.copy() for row, i in zip(obs, ids, strict=True) if i == 0]
            chosen = np.stack([actions[steps[i] % 120, i] for i in ids])
            steps[ids] += 1
            env.send(chosen, ids)
        return np.stack(first[:120])


SHAPES = [(1, 1, 1), (3, 3, 1), (9, 9, 2), (16, 4, 2)]


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Ant-v5", "Humanoid-v5", "WalkerRun-v1"])
def test_steps_depend_on_no_other_environment_of_the_pool(env_id: str) -> None:
    alone, *others = (told_by_the_first(env_id, shape) for shape in SHAPES)
    for other in others:
        np.testing.assert_array_equal(other, alone)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_start_that_comes_to_rest_depends_on_no_other_environment(mode: str) -> None:
    options = {"autoreset_mode": mode, "max_episode_steps": 17}
    alone, *others = (told_by_the_first("CheetahRun-v1", shape, **options) for shape in SHAPES)
    for other in others:
        np.testing.assert_array_equal(other, alone)


def test_the_last_step_of_an_episode_counts_for_its_engine() -> None:
    for env_id in ("CheetahRun-v1", "HalfCheetah-v5"):
        with rollouts.make_vec(
            env_id, 5, seed=1, autoreset_mode="same_step", max_episode_steps=4
        ) as env:
            env.reset()
            for action in actions_of(env, 12):
                env.step(action)
            stats = env.stats()
            assert (stats.num_steps_in_lanes, stats.num_steps_by_mujoco) == (60, 0)


def test_what_waits_in_an_asynchronous_pool_is_stepped_together() -> None:
    with rollouts.make_vec("HalfCheetah-v5", 16, seed=3, batch_size=8, num_threads=2) as env:
        env.async_reset()
        _, _, _, _, info = env.recv()
        for action in actions_of(env, 50):
            env.send(action[:8], info["env_id"])
            _, _, _, _, info = env.recv()
        assert env.mujoco_engine == "lanes"
        assert env.stats().num_steps_in_lanes >= 49 * 8
        assert env.stats().num_steps_by_mujoco == 0


def forged(state: bytes, number: int, value: float) -> bytes:
    """A state with another number of MuJoCo's."""
    at = state.index(integration_state(state).tobytes()) + 8 * number
    return sealed(state[:at] + struct.pack("<d", value) + state[at + 8 :])


# parts of a cheetah's state: time, 9 positions, 9 velocities, 9 warm starts, 6 controls, forces
VELOCITY, FORCE = 1 + 9, 1 + 3 * 9 + 6


def test_an_environment_that_fails_fails_alone_and_in_mujocos_words() -> None:
    with (
        rollouts.make_vec("HalfCheetah-v5", 8, seed=3, on_env_error="reset") as env,
        rollouts.make_vec("HalfCheetah-v5", 8, seed=3) as other,
    ):
        env.reset()
        other.reset()
        for step, action in enumerate(actions_of(env, 20)):
            if step == 10:
                env.set_state([5], [forged(env.get_state([5])[0], VELOCITY, 1e11)])
            want = other.step(action)[0]
            obs, _, _, truncated, info = env.step(action)
            whole = np.arange(8) != 5 if step >= 10 else np.ones(8, bool)
            np.testing.assert_array_equal(obs[whole], want[whole])
            if step == 10:
                assert truncated.tolist() == [i == 5 for i in range(8)]
                assert "velocities are not finite or huge" in info["env_error"][5]
        assert env.stats().num_env_errors == 1


def test_forces_that_a_state_applies_are_mujocos_to_step() -> None:
    action = np.zeros((2, 6), np.float32)
    with (
        rollouts.make_vec("HalfCheetah-v5", 2, seed=3) as env,
        rollouts.make_vec("HalfCheetah-v5", 2, seed=3, engine="mujoco") as mujoco,
    ):
        env.reset()
        mujoco.reset()
        state = forged(env.get_state()[0], FORCE, 50.0)
        env.set_state([0], [state])
        mujoco.set_state([0], [state])
        for _ in range(10):
            obs, without = env.step(action)[0]
            np.testing.assert_array_equal(obs, mujoco.step(action)[0][0])
        assert env.stats().num_steps_by_mujoco == 10
        assert np.abs(obs - without).max() > 0.1
        # the next episode has none
        env.reset()
        env.step(action)
        assert env.stats().num_steps_by_mujoco == 10


def test_environments_of_one_pool_may_have_other_options() -> None:
    frame_skip, engine = [5, 5, 2, 2, 5, 3], ["auto"] * 4 + ["mujoco", "lanes"]
    with rollouts.make_vec(
        "HalfCheetah-v5", 6, seed=3, frame_skip=frame_skip, engine=engine
    ) as env:
        assert env.mujoco_engine == ("lanes",) * 4 + ("mujoco", "lanes")
        start = env.reset()[0].copy()
        actions = actions_of(env, 30)
        found = [env.step(action)[0].copy() for action in actions]
        assert env.stats().num_steps_by_mujoco == 30
    for i in (0, 2, 4):
        with rollouts.make_vec(
            "HalfCheetah-v5", 6, seed=3, frame_skip=frame_skip[i], engine=engine[i]
        ) as env:
            np.testing.assert_array_equal(env.reset()[0][i], start[i])
            for step, action in enumerate(actions):
                np.testing.assert_array_equal(env.step(action)[0][i], found[step][i])


def test_a_reset_chooses_another_engine() -> None:
    with rollouts.make_vec("Hopper-v5", 4, seed=3, engine="mujoco", num_threads=1) as env:
        env.reset()
        env.step(np.zeros((4, 3), np.float32))
        env.reset(options={"engine": "lanes"})
        assert env.mujoco_engine == "lanes"
        env.reset_stats()
        env.step(np.zeros((4, 3), np.float32))
        assert env.stats().num_steps_in_lanes == 4


@pytest.mark.parametrize(
    "ids", [["HalfCheetah-v5"] * 12, ["Walker2d-v5"] * 12, ["WalkerRun-v1", "WalkerStand-v1"] * 6]
)
def test_wild_pools_go_on(ids: list[str]) -> None:
    with wild_pool(ids) as env:
        for _ in itertools.islice(wild_steps(env), 10_000 // 12):
            pass
        stats = env.stats()
    assert stats.num_env_errors > 5
    assert stats.num_steps_in_lanes > 5_000


@pytest.mark.slow
def test_wild_pools_of_unlike_models_go_on_for_ten_million_steps() -> None:
    """Their caller steps all of them in turn, with the same memory."""
    ids = [
        *(["WalkerRun-v1", "WalkerStand-v1"] * 12, ["HopperHop-v1", "HopperStand-v1"] * 12),
        *([one] * 24 for one in ("HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "Reacher-v5")),
        *(["CheetahRun-v1"] * 24, ["HumanoidRun-v1", "HumanoidStand-v1"] * 4),
    ]
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(wild_pool(one)) for one in ids]
        num_envs = sum(len(one) for one in ids)
        together = zip(*(wild_steps(env) for env in pools), strict=True)
        for _ in itertools.islice(together, -(-10_000_000 // num_envs)):
            pass
        found = [env.stats() for env in pools]
    for one, stats in zip(ids, found, strict=True):
        counts = (stats.num_steps_in_lanes, stats.num_steps_by_mujoco, stats.num_env_errors)
        print(one[0], "in lanes {}, by MuJoCo {}, errors {}".format(*counts))
        assert stats.num_steps_in_lanes > 100_000 and stats.num_steps_by_mujoco > 100


def wild_pool(ids: list[str]) -> rollouts.VectorEnv:
    return rollouts.make_vec(ids, seed=3, on_env_error="reset", max_episode_steps=50, num_threads=2)


def wild_steps(env: rollouts.VectorEnv) -> Iterator[None]:
    """Random actions, some of them huge or not a number; resets of some; wild states."""
    generator = np.random.default_rng(0)
    env.reset()
    kept = env.get_state()
    shape = (env.num_envs, *env.single_action_space.shape)
    for step in itertools.count():
        action = generator.uniform(-1, 1, shape).astype(np.float32)
        if step % 7 == 0:
            action[generator.integers(env.num_envs)] = generator.choice([1e30, -3e38])
        if step % 17 == 0:
            # refused as a whole, before anything is sent
            bad = action.copy()
            bad[generator.integers(env.num_envs)] = np.nan
            with pytest.raises(SpecError, match="expected a finite number"):
                env.step(bad)
        if step % 11 == 0:
            env.reset(options={"reset_mask": generator.random(env.num_envs) < 0.3})
        if step % 13 == 0:
            state = kept[generator.integers(env.num_envs)]
            words = len(integration_state(state))
            value = generator.choice([1e9, -1e12, 1e300, 40.0])
            wild = forged(state, int(generator.integers(1, words)), value)
            # the suite looks at a state when it is set
            with contextlib.suppress(SpecError):
                env.set_state([int(generator.integers(env.num_envs))], [wild])
        obs = env.step(action)[0]
        assert np.isfinite(obs).all()
        yield


def test_models_of_a_vector_may_differ_anew_at_every_reset() -> None:
    # each reset moves the target; single environments share no vector with others
    with (
        rollouts.make_vec("ReacherEasy-v1", 24, seed=5, num_threads=1, max_episode_steps=7) as env,
        rollouts.make_vec("ReacherHard-v1", 24, seed=6, num_threads=1) as other,
        contextlib.ExitStack() as stack,
    ):
        alone = [
            stack.enter_context(
                rollouts.make_vec("ReacherEasy-v1", 1, seed=5, env_id_offset=i, max_episode_steps=7)
            )
            for i in range(24)
        ]
        env.reset()
        other.reset()
        for one in alone:
            one.reset()
        for action in actions_of(env, 40):
            found = env.step(action)
            other.step(action)
            wants = [one.step(action[i : i + 1]) for i, one in enumerate(alone)]
            for part in range(4):
                want = np.concatenate([each[part] for each in wants])
                np.testing.assert_array_equal(found[part], want)
        assert env.stats().num_steps_in_lanes > 20 * 24


@pytest.mark.parametrize(
    "env_id", ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Humanoid-v5", "Swimmer-v5"]
)
def test_models_that_differ_by_environment_are_stepped_in_lanes(env_id: str) -> None:
    """Numbers of each environment's own stand in its lane."""
    model = {
        "body_mass": Scaled(0.7, 1.3),
        "dof_damping": Scaled(0.8, 1.2),
        "geom_friction": Scaled(0.8, 1.2),
        "actuator_gear": Scaled(0.8, 1.2),
        "opt.gravity": Scaled(0.9, 1.1),
    }
    with (
        rollouts.make_vec(env_id, 13, seed=1, engine=LANES, model=model) as lanes,
        rollouts.make_vec(env_id, 13, seed=1, engine="mujoco", model=model) as mujoco,
    ):
        np.testing.assert_array_equal(lanes.reset()[0], mujoco.reset()[0])
        assert len({tuple(one) for one in np.asarray(lanes.model_field("body_mass"))}) == 13
        for action in actions_of(lanes, 5):
            check_close("obs", lanes.step(action)[0], mujoco.step(action)[0])
        stats = lanes.stats()
        steps = (stats.num_steps_in_lanes, stats.num_steps_by_mujoco)
        assert steps == ((5 * 13, 0) if lanes.mujoco_engine == "lanes" else (0, 5 * 13))
