# SPDX-License-Identifier: Apache-2.0
"""`Starts`: how worlds begin episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco_warp
import warp as wp

from rollouts.envs.physics.arrays import PhysicsArrays
from rollouts.envs.physics.kernels.starts import start_episodes
from rollouts.envs.physics.kernels.suite_starts import SuiteStart, begin_suite, draw_suite
from rollouts.envs.physics.model_fields import ModelFields
from rollouts.envs.physics.repeating import Rest, Tries
from rollouts.envs.physics.tasks import SuiteTask, Task
from rollouts.envs.physics.worlds import Worlds


class Starts:
    """Launches that draw starts of those who are marked."""

    def __init__(
        self,
        task: Task,
        worlds: Worlds,
        fields: ModelFields,
        arrays: PhysicsArrays,
        noise_scale: Any,
    ) -> None:
        """Of a task's worlds and `noise_scale` (N,), of tasks of Gymnasium's."""
        self._task, self._worlds, self._fields, self._arrays = task, worlds, fields, arrays
        self._noise_scale = noise_scale
        self._qpos0, self._qvel0 = fields.start(task.keyframe)
        if task.suite is not None:
            self._suite = SuiteStarts(task.start, task.suite, worlds, fields, arrays, self._qpos0)

    def launch(self, *, contact_forces: bool) -> None:
        """Puts worlds that begin where they do; nothing follows from it yet."""
        task, worlds, arrays = self._task, self._worlds, self._arrays
        beginning = arrays.beginning_wp
        draws = self._fields.launch_draws(arrays.clocks, beginning)
        worlds.clear(beginning)
        data = worlds.data
        if task.suite is not None:
            self._suite.launch()
        else:
            inputs = [task.start, arrays.clocks, self._noise_scale, draws, self._qpos0, self._qvel0]
            outputs = [beginning, data.qpos, data.qvel]
            wp.launch(start_episodes, worlds.num_envs, [*inputs, *outputs])
        if task.keyframe >= 0:
            worlds.put_keyframe(task.keyframe, beginning)
        if contact_forces:
            worlds.clear_contact_forces(beginning)


class SuiteStarts:
    """Launches of a task of the DeepMind Control Suite."""

    def __init__(
        self,
        kind: int,
        task: SuiteTask,
        worlds: Worlds,
        fields: ModelFields,
        arrays: PhysicsArrays,
        qpos0: Any,
    ) -> None:
        """`kind` is of `kernels/suite_starts.py`."""
        self._task, self._worlds, self._fields, self._arrays = task, worlds, fields, arrays
        self._start = _struct(kind, task, worlds, qpos0)
        self._draws: Callable[[Any], None] = self._draw
        if task.is_apart:
            self._draws = Tries(worlds, arrays.clocks, self._draw).launch
        elif task.num_resting:
            self._draws = Rest(worlds, task.num_resting, self._draw).launch

    def launch(self) -> None:
        """As `Starts`."""
        beginning = self._arrays.beginning_wp
        self._launch(begin_suite, beginning)
        if self._task.begin is not None:
            self._launch(self._task.begin, beginning)
        self._draws(beginning)
        if self._task.finish is not None:
            self._launch(self._task.finish, beginning)

    def _draw(self, marked: Any) -> None:
        self._launch(self._task.draw or draw_suite, marked)
        if self._task.place is not None:
            mujoco_warp.kinematics(self._worlds.model, self._worlds.data)
            self._launch(self._task.place, marked)

    def _launch(self, kernel: Any, marked: Any) -> None:
        data, draws = self._worlds.data, self._fields.draws_wp
        wp.launch(
            kernel,
            self._worlds.num_envs,
            [self._start, self._arrays.clocks, draws, marked, data.qpos, data.qvel],
        )


def _struct(kind: int, task: SuiteTask, worlds: Worlds, qpos0: Any) -> Any:
    start, model, data = SuiteStart(), worlds.model, worlds.data
    start.kind, start.target, start.radius = kind, task.target, task.radius
    start.first, start.second = (*task.drawn, 0, 0)[:2]
    start.others = wp.array(task.drawn[2:], dtype=int)
    start.held = wp.zeros(worlds.num_envs, dtype=wp.bool)
    start.qpos0, start.gravity = qpos0, model.opt.gravity
    start.ctrlrange = model.actuator_ctrlrange
    for name in (
        *("jnt_type", "jnt_limited", "jnt_range", "jnt_qposadr", "jnt_stiffness"),
        *("body_pos", "body_quat", "geom_pos", "geom_quat", "geom_bodyid", "site_pos"),
    ):
        setattr(start, name, getattr(model, name))
    for name in ("act", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat"):
        setattr(start, name, getattr(data, name))
    return start
