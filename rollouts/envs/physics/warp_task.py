# SPDX-License-Identifier: Apache-2.0
"""`WarpTask`: a user's own model or a task of the DeepMind Control Suite, by kernels of Warp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import warp as wp
from torch import Tensor

from rollouts.envs.options import Columns
from rollouts.envs.physics.arrays import PhysicsArrays
from rollouts.envs.physics.kernels.observing import observe_part
from rollouts.envs.physics.kernels.starts import start_episodes
from rollouts.envs.physics.model_fields import ModelFields
from rollouts.envs.physics.pool_task import PoolTask, column, one_of_each
from rollouts.envs.physics.starting import SuiteStarts
from rollouts.envs.physics.tasks import Part, SuiteTask, Task
from rollouts.envs.physics.worlds import Worlds
from rollouts.errors import SpecError

_NOISE = "reset_noise_scale"


class WarpTask(PoolTask):
    """Launches of the kernels that a `Task` names.

    Attributes:
      suite: The additions of a task of the DeepMind Control Suite.
      noise_scale: (N,) float64: how far a start is drawn from the model's own.
    """

    def __init__(
        self,
        task: Task,
        options: Mapping[str, Any],
        worlds: Worlds,
        fields: ModelFields,
        arrays: PhysicsArrays,
    ) -> None:
        """Takes a task and all options: one value, or a list of N.

        Raises:
          SpecError: Environments differ in an option in which they cannot.
        """
        self._task, self._worlds, self._fields, self._arrays = task, worlds, fields, arrays
        self.suite = task.suite
        self.own_options = frozenset({_NOISE} & {*options})
        shared = one_of_each(options, self.own_options)
        self.frame_skip = int(shared["frame_skip"]) or task.frame_skip
        self.contact_forces = task.reads_contact_forces
        self.after_start = task.after_start
        self.is_suite = task.suite is not None
        self.noise_scale = column(0.0, worlds.num_envs, arrays.device).clone()
        self.put_options(self.read_options(dict(options)))
        for name in task.suite.own_fields if task.suite is not None else ():
            fields.have_own(name)

    def bind(self) -> None:
        suite = self._task.suite or SuiteTask(0.0, (), -1)
        self._sim = self._worlds.simulation(suite.places, suite.goal, suite.sizes)
        self._qpos0, self._qvel0 = self._fields.start(self._task.keyframe)
        if self._task.suite is not None:
            self._starts = SuiteStarts(
                self._task.start,
                self._task.suite,
                self._worlds,
                self._fields,
                self._arrays,
                self._qpos0,
            )

    def state(self) -> dict[str, Tensor]:
        suite, data, columns = self._task.suite, self._worlds.data, {}
        if suite is not None and (suite.target >= 0 or suite.moves_geoms):
            columns["geom_xpos"] = wp.to_torch(data.geom_xpos)
        if suite is not None and suite.moves_geoms:
            columns["geom_xmat"] = wp.to_torch(data.geom_xmat)
        return columns

    def start(self, beginning: Any) -> None:
        if self._task.suite is not None:
            self._starts.launch()
        else:
            data, clocks = self._worlds.data, self._arrays.clocks
            inputs = [clocks, wp.from_torch(self.noise_scale), self._fields.draws_wp]
            inputs += [self._qpos0, self._qvel0, beginning]
            outputs = [data.qpos, data.qvel]
            kind = self._task.start
            wp.launch(start_episodes, self._worlds.num_envs, [kind, *inputs, *outputs])
        if self._task.keyframe >= 0:
            self._worlds.put_keyframe(self._task.keyframe, beginning)

    def look(self, marked: Any, *, is_start: bool) -> None:
        inputs = [self._sim, self._arrays.outcome, marked, is_start]
        wp.launch(self._task.kernel, self._worlds.num_envs, inputs)

    def observe(self, marked: Any) -> None:
        arrays = self._arrays
        infos = (self._task.infos, arrays.outcome.infos)
        for parts, to in ((self._task.observation, arrays.obs_wp), infos):
            at = 0
            for part in parts:
                at += self._observe_part(part, to, at, marked)
            assert at in (0, to.shape[1])

    def _observe_part(self, part: Part, to: Any, at: int, marked: Any) -> int:
        arrays = self._arrays
        source = arrays.shown if part.source == "shown" else self._worlds.flat(part.source)
        count = source.shape[1] - part.first if part.count is None else part.count
        inputs = [part.kind, source, part.first, part.other, at, marked, arrays.clocks.broken]
        wp.launch(observe_part, (self._worlds.num_envs, count), [*inputs, to])
        return count

    def read_options(self, columns: Columns) -> Any:
        given = columns.get(_NOISE, 0.0)
        each = given if isinstance(given, list) else [given]
        if not all(isinstance(one, (bool, int, float)) for one in each):
            raise SpecError(f"option {_NOISE!r} is {given!r}, expected numbers")
        return column(given, self._worlds.num_envs, self._arrays.device)

    def put_options(self, read: Any) -> None:
        self.noise_scale.copy_(read)
