# SPDX-License-Identifier: Apache-2.0
"""A robot of one's own: functions for it, and the plain loop that ours is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np

import rollouts
from rollouts.mujoco import integration_state
from rollouts.own_model import ModelStep

XML = str(Path(__file__).parent / "two_links.xml")
OBSERVATION = ["qpos:shoulder", "qpos[1:]", "qvel", "act", "gyro", "contact", "ten_length"]
INFO = [
    "site_xpos:tip",
    "time",
    "xpos[1:]",
    "cfrc_ext:lower",
    "actuator_force:lag",
    "ten_velocity:both",
]
SKIP = 4
LIMIT = 60
TOO_FAR = 0.29  # radians


def reward(step: ModelStep) -> Any:
    """Swing fast, gently; the tip's speed is that of its positions before and after."""
    moved = step["site_xpos:tip"] - step.previous["site_xpos:tip"]
    speed = np.linalg.norm(moved, axis=1) / step.dt
    return speed - 0.1 * np.square(step.actions).sum(axis=1)


def terminated(step: ModelStep) -> Any:
    """Turned too far."""
    return np.abs(step["qpos:shoulder"][:, 0]) > TOO_FAR


def make(num_envs: int = 3, **options: Any) -> rollouts.VectorEnv:
    """The robot with these functions, where `options` have no others."""
    given = {
        "xml_file": XML,
        "frame_skip": SKIP,
        "observation": OBSERVATION,
        "info": INFO,
        "reward": reward,
        "terminated": terminated,
        "reset_noise_scale": 0.3,
        "max_episode_steps": LIMIT,
        "seed": 5,
        **options,
    }
    return rollouts.make_vec("MuJoCo-v0", num_envs, **given)


def draw_actions(generator: np.random.Generator, rows: int) -> np.ndarray:
    return generator.uniform([-1, -2], [1, 2], (rows, 2)).astype(np.float32)


class PlainRobot:
    """One simulation in Python, with the same observation, reward and end."""

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_path(XML)
        self.data = mujoco.MjData(self.model)

    def begin(self, state: bytes) -> None:
        """Begins where ours has begun."""
        saved = integration_state(state)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = saved[1:10], saved[10:18]  # time comes first
        mujoco.mj_forward(self.model, self.data)
        mine = np.empty(len(saved))
        mujoco.mj_getState(self.model, self.data, mine, mujoco.mjtState.mjSTATE_INTEGRATION)
        np.testing.assert_array_equal(mine, saved)
        self.steps, self.total = 0, 0.0

    def step(self, action: np.ndarray) -> tuple[float, bool, bool]:
        tip = self.data.site("tip").xpos.copy()
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, nstep=SKIP)
        mujoco.mj_rnePostConstraint(self.model, self.data)
        speed = np.linalg.norm(self.data.site("tip").xpos - tip) / (SKIP * 0.005)
        value = speed - 0.1 * np.square(action).sum()
        self.steps += 1
        self.total += value
        return value, abs(self.data.qpos[0]) > TOO_FAR, self.steps >= LIMIT

    def obs(self) -> np.ndarray:
        data = self.data
        sensors = data.sensordata[:4]  # gyro and contact
        return np.concatenate([data.qpos, data.qvel, data.act, sensors, data.ten_length])

    def infos(self) -> dict[str, np.ndarray]:
        data = self.data
        return {
            "site_xpos:tip": data.site("tip").xpos,
            "time": np.array([data.time]),
            "xpos[1:]": data.xpos[1:],
            "cfrc_ext:lower": data.body("lower").cfrc_ext,
            "actuator_force:lag": data.actuator("lag").force,
            "ten_velocity:both": data.ten_velocity[1:2],
        }
