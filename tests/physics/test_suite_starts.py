# SPDX-License-Identifier: Apache-2.0
"""Starts of the DeepMind Control Suite's episodes on a device, and their ends."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from long_forms import slow_beside
from physics_peer import START_ERRORS

import rollouts
from rollouts import EnvError
from rollouts.mujoco import integration_state

pytest.importorskip("mujoco_warp")
pytest.importorskip("dm_control")

# their starts are drawn until nothing touches
APART = (
    "BallInCupCatch-v1",
    "FingerSpin-v1",
    "FingerTurnEasy-v1",
    "FingerTurnHard-v1",
    "HumanoidCMUStand-v1",
    "HumanoidRun-v1",
    "HumanoidRunPureState-v1",
    "ManipulatorBringBall-v1",
    "ManipulatorBringPeg-v1",
    "QuadrupedFetch-v1",
    "QuadrupedRun-v1",
)
DRAWN = (*APART, "CheetahRun-v1", "DogFetch-v1")
# a cheetah's starts take 200 substeps, and large models' kernels long to compile
FEW = ("BallInCupCatch-v1", "FingerTurnHard-v1", "ManipulatorBringBall-v1")
NUM_STARTS = 128
pytestmark = pytest.mark.system


def make(env_id: str, num_envs: int = NUM_STARTS, **options: Any) -> Any:
    arguments = {"seed": 1, "device": "cpu-emulation", **options}
    return rollouts.make_vec(env_id, num_envs, **arguments)


@pytest.fixture(scope="module")
def begun(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A device's pool of the id that tests name, which share its starts."""
    with make(request.param) as env:
        env.reset()
        yield env


def positions(pool: Any, size: int) -> np.ndarray:
    """Positions of the C++ pool's environments, (N, size)."""
    numbers = np.stack([integration_state(one) for one in pool.get_state()])
    # time comes first
    return numbers[:, 1 : 1 + size]


# the last bit decides the heights of QuadrupedFetch's starts
@pytest.mark.parametrize(
    "begun", slow_beside(FEW, sorted({*DRAWN} - {"QuadrupedFetch-v1"})), indirect=True
)
def test_starts_are_spread_as_those_of_the_pool_of_threads(begun: Any) -> None:
    env_id = begun.env_spec.id
    pool = rollouts.make_vec(env_id, NUM_STARTS, seed=2)
    pool.reset()
    found = begun.engine.steps.pool._worlds.data.qpos.numpy()
    expected = positions(pool, found.shape[1])
    spread = np.sqrt((found.var(axis=0) + expected.var(axis=0)) / NUM_STARTS)
    assert (np.abs(found.mean(axis=0) - expected.mean(axis=0)) < 4.5 * spread + 1e-6).all()
    assert (found.std(axis=0) < 1.5 * expected.std(axis=0) + 1e-6).all()
    assert (found.std(axis=0) > expected.std(axis=0) / 1.5 - 1e-6).all()
    host = begun.engine.steps.pool._worlds.host
    limited = np.flatnonzero(host.jnt_limited)
    values, (low, high) = found[:, host.jnt_qposadr[limited]], host.jnt_range[limited].T
    # at rest a limit gives way
    room = 0.1 if env_id == "CheetahRun-v1" else 1e-6
    assert (values >= low - room).all() and (values <= high + room).all()


@pytest.mark.slow  # the model is large
@pytest.mark.parametrize("begun", ["QuadrupedFetch-v1"], indirect=True)
def test_a_quadruped_begins_on_the_ground(begun: Any) -> None:
    pool = rollouts.make_vec("QuadrupedFetch-v1", NUM_STARTS, seed=1)
    pool.reset()
    found = begun.engine.steps.pool._worlds.data.qpos.numpy()
    expected = positions(pool, found.shape[1])
    height = 2
    np.testing.assert_allclose(np.delete(found, height, 1), np.delete(expected, height, 1), 1e-6)
    # at 52 centimetres its toes are there to the last bit
    for one in (found, expected):
        assert {*np.rint(100 * one[:, height]).tolist()} <= {52, 53}


@pytest.mark.parametrize("begun", slow_beside(FEW, APART), indirect=True)
def test_nothing_touches_at_a_start(begun: Any) -> None:
    pool = begun.engine.steps.pool
    worlds, host = pool._worlds, copy.copy(pool._worlds.host)
    data = mujoco.MjData(host)
    fields = {name: begun.model_field(name) for name in pool._task.own_fields}
    for row, qpos in enumerate(worlds.data.qpos.numpy()):
        for name, values in fields.items():
            getattr(host, name)[...] = values[row]
        data.qpos[:] = qpos
        mujoco.mj_forward(host, data)
        assert data.ncon == 0


# the cheetah's starts take 200 substeps
@pytest.mark.parametrize(
    "env_id",
    slow_beside(
        ("FingerTurnHard-v1", "HumanoidWalk-v1"),
        ("CheetahRun-v1", "FingerTurnHard-v1", "HumanoidWalk-v1"),
    ),
)
def test_a_world_goes_on_as_if_its_neighbours_did_not_begin(env_id: str) -> None:
    env, other = make(env_id, 4), make(env_id, 4)
    env.reset(), other.reset()
    actions = torch.full((4, *env.single_action_space.shape), 0.3)
    env.step(actions), other.step(actions)
    before = env.engine.steps.pool._worlds.data.qpos.numpy().copy()
    env.reset(options={"reset_mask": torch.tensor([True, False, True, False])})
    changed = (env.engine.steps.pool._worlds.data.qpos.numpy() != before).any(axis=1)
    assert changed.tolist() == [True, False, True, False]
    for _ in range(3):
        mine, theirs = env.step(actions)[0], other.step(actions)[0]
        assert torch.equal(mine[1::2], theirs[1::2])
    env.synchronize()


# a start is drawn alike in both modes, of which each id has one here and both in `make test-all`
@pytest.mark.parametrize(
    ("env_id", "mode"),
    [
        pytest.param(env_id, mode, marks=[pytest.mark.slow] * (env_id not in FEW or (i + k) % 2))
        for i, env_id in enumerate(DRAWN)
        for k, mode in enumerate(("next_step", "same_step"))
    ],
)
def test_episodes_end_and_begin_anew(env_id: str, mode: str) -> None:
    limit = 6
    env = make(env_id, 4, autoreset_mode=mode, max_episode_steps=limit)
    pool = rollouts.make_vec(
        env_id, 4, seed=1, obs_dtype="float32", autoreset_mode=mode, max_episode_steps=limit
    )
    env.reset(), pool.reset()
    generator = np.random.default_rng(0)
    begun = 0
    for _ in range(4 * limit):
        actions = generator.uniform(-1, 1, (4, *env.single_action_space.shape)).astype(np.float32)
        obs, reward, terminated, truncated, info = env.step(torch.from_numpy(actions))
        want_obs, _, *want_ends, want_info = pool.step(actions)
        assert obs.isfinite().all() and ((reward >= 0) & (reward <= 1)).all()
        for ours, theirs in zip((terminated, truncated), want_ends, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(info["episode_length"], want_info["episode_length"])
        begins = truncated if mode == "same_step" else info["episode_length"] == 0
        if begins.any():
            begun += 1
            error = START_ERRORS.get(env_id, 1e-6)
            np.testing.assert_allclose(obs, want_obs, rtol=error, atol=error)
    env.synchronize()
    assert begun >= 3


def test_a_start_that_cannot_be_is_told() -> None:
    # the ball is as large as the room that it is drawn in
    env = make("BallInCupCatch-v1", 2, env_id_offset=3)
    env.reset()
    sizes = env.model_field("geom_size")
    ball = mujoco.mj_name2id(env.engine.steps.pool._worlds.host, mujoco.mjtObj.mjOBJ_GEOM, "ball")
    sizes[1, ball, 0] = 2.0
    env.reset(options={"model": {"geom_size": sizes}})
    with pytest.raises(EnvError, match="environment 4 found no start in which nothing touches"):
        env.synchronize()
    # it has begun nevertheless, and the other as always
    env.step(torch.zeros(2, 2))
    env.synchronize()


@pytest.mark.slow  # the model is large
def test_memory_that_is_too_little_for_a_start_is_told() -> None:
    env = make("HumanoidCMUStand-v1", 1, nconmax=1)
    with pytest.raises(EnvError, match="make the pool with nconmax above 1,"):
        env.reset()
        env.synchronize()
