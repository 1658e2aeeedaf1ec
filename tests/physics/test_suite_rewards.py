# SPDX-License-Identifier: Apache-2.0
"""Rewards of the DeepMind Control Suite on a device, beside dm_control's of the same states."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from physics_peer import are_exact, put_states

import rollouts
from rollouts.envs.physics.supported import SUITE_IDS

sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))
pytest.importorskip("dm_control")
from dm_control_oracle import make_dm_control, put_field

wp = pytest.importorskip("warp")
pytest.importorskip("mujoco_warp")

NUM_STATES = 256
# test_suite.py has rewards of the same kernels beside those of the pool of threads, which
# tests/oracle compares with dm_control's
pytestmark = pytest.mark.slow


def scattered(data: Any, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """States near those that worlds have, a half fast, that earn something and nothing."""
    qpos, qvel = data.qpos.numpy(), data.qvel.numpy()
    sizes = np.linspace(0, 0.3, NUM_STATES)[:, None]
    qpos = qpos + sizes * generator.standard_normal(qpos.shape)
    qvel = qvel + 40 * sizes * generator.standard_normal(qvel.shape)
    return qpos.astype(np.float32), qvel.astype(np.float32)


@pytest.mark.parametrize("env_id", sorted(SUITE_IDS))
def test_rewards_are_dm_controls_of_the_same_states(env_id: str) -> None:
    generator = np.random.default_rng(0)
    env: Any = rollouts.make_vec(env_id, NUM_STATES, device="cpu-emulation", seed=1)
    env.reset()
    pool, data = env.engine.steps.pool, env.engine.steps.pool._worlds.data
    qpos, qvel = scattered(data, generator)
    # every second as the model begins, which stands or is near its target
    begins = env.engine.steps.pool._worlds.host.qpos0.copy()
    if env_id == "BallInCupCatch-v1":
        # in the cup
        begins[3] = 0.35
    qpos[::2] = begins + (qpos[::2] - data.qpos.numpy()[::2]) / 3
    controls = generator.uniform(-1, 1, (NUM_STATES, data.ctrl.shape[1])).astype(np.float32)
    put_states(env, qpos, qvel, refresh="unactuated")
    with wp.ScopedDevice("cpu"):
        wp.to_torch(data.ctrl).copy_(torch.from_numpy(controls))
        pool._task.look(pool.arrays.beginning_wp, is_start=False)
    found = pool.arrays.outcomes["reward"].numpy()
    fields = {name: env.model_field(name) for name in pool._task.own_fields}
    theirs = make_dm_control(env_id)
    theirs.reset()
    physics, rewards = theirs.physics, []
    for row in range(NUM_STATES):
        for name, values in fields.items():
            put_field(physics.model.ptr, name, values[row])
        with physics.reset_context():
            physics.data.qpos[:], physics.data.qvel[:] = qpos[row], qvel[row]
        physics.set_control(controls[row])
        rewards.append(theirs.task.get_reward(physics))
    rows = np.ones(NUM_STATES, np.bool_)
    if env_id.startswith("Dog"):
        # soles and palms feel contacts
        rows = are_exact(env.engine.steps.pool._worlds.host, qpos)
    assert rows.sum() > NUM_STATES / 4
    np.testing.assert_allclose(found[rows], np.array(rewards)[rows], rtol=1e-5, atol=1e-6)
    assert len({*found.tolist()}) > 1
