# SPDX-License-Identifier: Apache-2.0
"""`OwnTask`: MuJoCo-v0, whose observations and infos are MuJoCo's arrays of a user's model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mujoco
import warp as wp

from rollouts import _native
from rollouts.envs.options import Columns
from rollouts.envs.physics.kernels.observing import observe_part
from rollouts.envs.physics.kernels.own_models import score_nothing
from rollouts.envs.physics.kernels.starts import NORMAL_VELOCITIES, UNIFORM, start_episodes
from rollouts.envs.physics.physics_arrays import PhysicsArrays
from rollouts.envs.physics.pool_task import PoolTask, column, one_of_each
from rollouts.envs.physics.world_fields import ModelFields
from rollouts.envs.physics.worlds import CONTACT_FORCES, Worlds
from rollouts.errors import SpecError

_NOISE = "reset_noise_scale"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an observation or of infos.

    Attributes:
      source: Array of mujoco_warp's data, as (N, elements).
      first: Its first element.
      count: Number of elements.
    """

    source: str
    first: int
    count: int


class OwnTask(PoolTask):
    """Launches of Warp's kernels for a user's own model; the user's functions compute rewards.

    Attributes:
      noise_scale: (N,) float64: how far starts are drawn from the model's own start.
    """

    def __init__(
        self,
        model_file: str,
        options: Mapping[str, Any],
        worlds: Worlds,
        fields: ModelFields,
        arrays: PhysicsArrays,
    ) -> None:
        """Takes a model and all options, whose names the native core has checked.

        Raises:
          SpecError: Environments differ in an option that they must share.
        """
        self._worlds, self._fields, self._arrays = worlds, fields, arrays
        self.own_options = frozenset({_NOISE})
        shared = one_of_each(options, self.own_options)

        def parts(option: str) -> tuple[_Part, ...]:
            found = _native.mujoco_parts(model_file, option, str(shared[option]))
            return tuple(_Part(array, first, math.prod(shape)) for _, shape, array, first in found)

        self._observation, self._infos = parts("observation"), parts("info")
        sources = {part.source for part in (*self._observation, *self._infos)}
        self.contact_forces = bool(sources & {*CONTACT_FORCES})
        self.frame_skip, self.after_start = int(shared["frame_skip"]), "forward"
        self._start = NORMAL_VELOCITIES if shared["qvel_noise"] == "normal" else UNIFORM
        self._keyframe = _keyframe(worlds.host, str(shared["keyframe"]))
        self.noise_scale = column(0.0, worlds.num_envs, arrays.device).clone()
        self.put_options(self.read_options(dict(options)))

    def bind(self) -> None:
        self._qpos0, self._qvel0 = self._fields.start(self._keyframe)

    def start(self, beginning: Any) -> None:
        data, clocks = self._worlds.data, self._arrays.clocks
        inputs = [clocks, wp.from_torch(self.noise_scale), self._fields.draws_wp]
        inputs += [self._qpos0, self._qvel0, beginning]
        outputs = [data.qpos, data.qvel]
        wp.launch(start_episodes, self._worlds.num_envs, [self._start, *inputs, *outputs])
        if self._keyframe >= 0:
            self._worlds.put_keyframe(self._keyframe, beginning)

    def look(self, marked: Any, *, is_start: bool) -> None:
        if not is_start:
            wp.launch(score_nothing, self._worlds.num_envs, [self._arrays.outcome, marked])

    def observe(self, marked: Any) -> None:
        arrays = self._arrays
        infos = (self._infos, arrays.outcome.infos)
        for parts, to in ((self._observation, arrays.obs_wp), infos):
            at = 0
            for part in parts:
                source = self._worlds.flat(part.source)
                inputs = [source, part.first, at, marked, arrays.clocks.broken]
                wp.launch(observe_part, (self._worlds.num_envs, part.count), [*inputs, to])
                at += part.count
            assert at in (0, to.shape[1])

    def read_options(self, columns: Columns) -> Any:
        given = columns.get(_NOISE, 0.0)
        each = given if isinstance(given, list) else [given]
        if not all(isinstance(one, (bool, int, float)) for one in each):
            raise SpecError(f"option {_NOISE!r} is {given!r}, expected numbers")
        return column(given, self._worlds.num_envs, self._arrays.device)

    def put_options(self, read: Any) -> None:
        self.noise_scale.copy_(read)


def _keyframe(host: Any, keyframe: str) -> int:
    """Returns the number of a keyframe; -1 where none is named."""
    if not keyframe:
        return -1
    number = int(mujoco.mj_name2id(host, mujoco.mjtObj.mjOBJ_KEY, keyframe))
    return int(keyframe) if number < 0 else number
