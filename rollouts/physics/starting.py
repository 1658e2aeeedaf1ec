# SPDX-License-Identifier: Apache-2.0
"""`Starts`: how worlds begin episodes."""

from __future__ import annotations

from typing import Any

import warp as wp

from rollouts.physics.arrays import PhysicsArrays
from rollouts.physics.kernels.starts import start_episodes
from rollouts.physics.kernels.suite_starts import start_suite
from rollouts.physics.model_fields import ModelFields
from rollouts.physics.tasks import Task
from rollouts.physics.worlds import Worlds


class Starts:
    """Launches that draw starts of those who are marked."""

    def __init__(self, task: Task, worlds: Worlds, fields: ModelFields, noise_scale: Any) -> None:
        """Of a task's worlds and `noise_scale` (N,), of tasks of Gymnasium's."""
        self._task, self._worlds, self._fields = task, worlds, fields
        self._noise_scale = noise_scale
        self._qpos0, self._qvel0 = fields.start(task.keyframe)

    def launch(self, arrays: PhysicsArrays, *, contact_forces: bool) -> None:
        """Puts worlds that begin where they do; nothing follows from it yet."""
        task, worlds, beginning = self._task, self._worlds, arrays.beginning_wp
        draws = self._fields.launch_draws(arrays.clocks, beginning)
        worlds.clear(beginning)
        data, model = worlds.data, worlds.model
        if task.suite is None:
            kernel: Any = start_episodes
            inputs = [task.start, arrays.clocks, self._noise_scale, draws, self._qpos0, self._qvel0]
        else:
            kernel = start_suite
            inputs = [task.start, arrays.clocks, draws, self._qpos0, model.jnt_type]
            inputs += [model.jnt_limited, model.jnt_range, model.jnt_qposadr, task.suite.target]
            inputs += [model.geom_pos, data.geom_xpos, model.jnt_stiffness]
        wp.launch(kernel, worlds.num_envs, [*inputs, beginning, data.qpos, data.qvel])
        if task.keyframe >= 0:
            worlds.put_keyframe(task.keyframe, beginning)
        if contact_forces:
            worlds.clear_contact_forces(beginning)
