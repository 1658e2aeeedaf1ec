# SPDX-License-Identifier: Apache-2.0
"""`SuiteStarts`: how worlds of the DeepMind Control Suite begin episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco_warp
import warp as wp

from rollouts.envs.physics.arrays import PhysicsArrays
from rollouts.envs.physics.kernels.suite_starts import SuiteStart, begin_suite, draw_suite
from rollouts.envs.physics.model_fields import ModelFields
from rollouts.envs.physics.repeating import Rest, Tries
from rollouts.envs.physics.tasks import SuiteTask
from rollouts.envs.physics.worlds import Worlds


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
        """Puts worlds that begin where they do; nothing follows from it yet."""
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
