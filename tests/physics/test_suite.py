# SPDX-License-Identifier: Apache-2.0
"""Tasks of the DeepMind Control Suite on a device, beside the pool of threads."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from physics_peer import START_ERRORS, are_exact, one_of_each_task, put_states, start_alike

import rollouts
from rollouts import SpecError
from rollouts.envs.physics.supported import ON_CPU_ALONE, SUITE_IDS
from rollouts.families import dm_control
from rollouts.mujoco import integration_state

pytest.importorskip("mujoco_warp")
pytest.importorskip("dm_control")

NUM_ENVS = 8
# these models' kernels take long to compile
pytestmark = pytest.mark.system


def make_both(env_id: str, **options: Any) -> tuple[Any, Any]:
    arguments = {"seed": 1, **options}
    env = rollouts.make_vec(env_id, NUM_ENVS, device="cpu-emulation", **arguments)
    return env, rollouts.make_vec(env_id, NUM_ENVS, obs_dtype="float32", **arguments)


def states(env: Any, pool: Any) -> list[np.ndarray]:
    """Positions, velocities and activations of the pool's environments."""
    numbers = np.stack([integration_state(one) for one in pool.get_state()])
    data = env.engine.steps.pool._worlds.data
    sizes = [one.shape[1] for one in (data.qpos, data.qvel, data.act)]
    # time comes first
    return np.split(numbers[:, 1:].astype(np.float32), np.cumsum(sizes), axis=1)[:3]


def take_over(env: Any, pool: Any) -> None:
    """Makes the device's worlds go on from where the pool's are."""
    put_states(env, *states(env, pool))


def comparable(env: Any, pool: Any) -> np.ndarray:
    """Marks the pool's environments whose contacts mujoco_warp finds alike, (N,)."""
    if not env.env_spec.id.startswith("Dog"):
        return np.ones(NUM_ENVS, np.bool_)
    return are_exact(env.engine.steps.pool._worlds.host, states(env, pool)[0])


@pytest.mark.parametrize("env_id", one_of_each_task())
def test_a_step_is_that_of_the_pool_of_threads(env_id: str) -> None:
    env, pool = make_both(env_id)
    found, expected = env.reset()[0], pool.reset()[0]
    # starts are drawn in 64 bits there and here, and rounded once; limits of joints are 32-bit.
    error = START_ERRORS.get(env_id, 1e-6)
    alike = start_alike(env_id, found.numpy(), expected)
    assert alike.sum() >= NUM_ENVS / 2
    np.testing.assert_allclose(found[alike], expected[alike], rtol=error, atol=error)
    generator = np.random.default_rng(0)
    size = env.single_action_space.shape[0]

    def draw() -> np.ndarray:
        return generator.uniform(-1, 1, (NUM_ENVS, size)).astype(np.float32)

    for _ in range(4):
        for _ in range(12):
            pool.step(draw())
        take_over(env, pool)
        rows = alike & comparable(env, pool)
        actions = draw()
        obs, reward, *ends, _ = env.step(torch.from_numpy(actions))
        want_obs, want_reward, *want_ends, _ = pool.step(actions)
        # as of Gymnasium's tasks in test_one_step.py
        error = np.abs(obs.numpy() - want_obs) / (1 + np.abs(want_obs))
        rows &= comparable(env, pool)
        assert rows.any()
        assert error[rows].max() < 5e-4
        np.testing.assert_allclose(reward[rows], want_reward[rows], atol=1e-5)
        assert [one.any() for one in ends] == [one.any() for one in want_ends]
    env.synchronize()


@pytest.mark.parametrize(
    ("env_id", "error"),
    [
        # no contacts: 32 bits through up to 300 substeps
        *((one, 2e-4) for one in sorted(SUITE_IDS) if one.startswith(("Fish", "Lqr"))),
        ("SwimmerSwimmer6-v1", 2e-4),
        # its gyroscopes turn by tens of radians in a second
        ("SwimmerSwimmer15-v1", 2e-3),
    ],
)
def test_twenty_steps_are_those_of_the_pool_of_threads(env_id: str, error: float) -> None:
    env, pool = make_both(env_id)
    env.reset(), pool.reset()
    take_over(env, pool)
    generator = np.random.default_rng(0)
    size = env.single_action_space.shape[0]
    for _ in range(20):
        actions = generator.uniform(-1, 1, (NUM_ENVS, size)).astype(np.float32)
        obs, reward, *_ = env.step(torch.from_numpy(actions))
        want_obs, want_reward, *_ = pool.step(actions)
        assert (np.abs(obs.numpy() - want_obs) / (1 + np.abs(want_obs))).max() < error
        np.testing.assert_allclose(reward, want_reward, atol=error)


@pytest.mark.parametrize("env_id", ("CartpoleBalance-v1", "FishSwim-v1", "LqrLqr62-v1"))
def test_autoreset_draws_the_next_start_of_the_pool_of_threads(env_id: str) -> None:
    env, pool = make_both(env_id, max_episode_steps=3, autoreset_mode="same_step")
    env.reset(), pool.reset()
    for _ in range(7):
        actions = np.zeros((NUM_ENVS, *env.single_action_space.shape), np.float32)
        found, expected = env.step(torch.from_numpy(actions)), pool.step(actions)
        # 32 bits through up to three steps
        for ours, theirs in zip(found[:4], expected[:4], strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("env_id", "field"),
    [
        ("FingerTurnEasy-v1", "site_pos"),
        ("FishSwim-v1", "geom_pos"),
        ("LqrLqr21-v1", "jnt_stiffness"),
        ("ManipulatorInsertPeg-v1", "body_quat"),
        ("ReacherHard-v1", "geom_pos"),
        ("SwimmerSwimmer6-v1", "geom_pos"),
    ],
)
def test_each_world_has_its_own_target_or_springs(env_id: str, field: str) -> None:
    env, _ = make_both(env_id)
    env.reset()
    saved, values = env.get_state(), env.model_field(field)
    assert (values[0] != values[1]).any()
    actions = torch.ones(NUM_ENVS, *env.single_action_space.shape)
    expected = env.step(actions)[0]
    env.reset()
    assert (env.model_field(field) != values).any()
    env.set_state(None, saved)
    assert torch.equal(env.step(actions)[0], expected)


def test_a_targets_size_is_that_of_each_worlds_model() -> None:
    env, pool = make_both("PointMassEasy-v1")
    env.reset()
    host = env.engine.steps.pool._worlds.host
    sizes = env.model_field("geom_size")
    sizes[1::2, mujoco.mj_name2id(host, mujoco.mjtObj.mjOBJ_GEOM, "target"), 0] *= 4
    still = np.zeros((NUM_ENVS, 2), np.float32)
    for one in (env, pool):
        one.reset(seed=1, options={"model": {"geom_size": sizes}})
    found, expected = env.step(torch.from_numpy(still))[1].numpy(), pool.step(still)[1]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    pool.reset(seed=1, options={"model": {"geom_size": None}})
    smaller = pool.step(still)[1]
    assert (found[1::2] > smaller[1::2]).any()


def test_a_task_that_stays_on_the_cpu_is_refused_with_its_reason() -> None:
    assert {*dm_control.task_ids()} == SUITE_IDS | {*ON_CPU_ALONE}
    for env_id, why in ON_CPU_ALONE.items():
        with pytest.raises(SpecError, match=rf"{env_id} is for the CPU: {why}\. Leave device out"):
            rollouts.make_vec(env_id, 2, device="cpu-emulation")
