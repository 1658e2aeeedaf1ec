# SPDX-License-Identifier: Apache-2.0
"""`HeaderTask`: a task of Gymnasium or dm_control, made from the header that the C++ pool uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor

from rollouts import _native
from rollouts.envs.kernel.kernel import make_kernel
from rollouts.envs.kernel.kernel_source import TaskKernelSource
from rollouts.envs.kernel.task_launch import (
    DATA_ROWS,
    MODEL_ROWS,
    MODEL_SHARED,
    MODEL_SIZES,
    TaskDataArrays,
    TaskLaunch,
    TaskModelArrays,
    TaskPhase,
    TaskResults,
    TaskRows,
)
from rollouts.envs.options import Columns
from rollouts.envs.physics.physics_arrays import PhysicsArrays
from rollouts.envs.physics.pool_task import PoolTask, one_of_each
from rollouts.envs.physics.repeating import Rest, Tries
from rollouts.envs.physics.world_fields import ModelFields
from rollouts.envs.physics.worlds import Worlds
from rollouts.own_env.registrations import env_source

_NUM_THREADS = 128  # in a block
# prefixes of Gymnasium's options for the content of an observation, equal in all worlds
_OF_SPACES = ("exclude_", "include_")
# model fields -> arrays of the data that they alone determine for bodies that no joint moves
_FOLLOWED = {"geom_pos": ("geom_xpos",), "body_pos": ("geom_xpos", "geom_xmat")}


def task_facts(id: str, options: Mapping[str, Any], num_envs: int, host: Any) -> dict[str, Any]:
    """Returns facts about a task, and makes the task's changes to MuJoCo's model in `host`.

    Raises:
      SpecError: Options or a model that the task cannot have.
    """
    facts: dict[str, Any] = _native.task_facts(id, dict(options), num_envs, of_model=True)
    for field, at, value in facts["changes"]:
        np.ravel(getattr(host, field))[at] = value
    return facts


class HeaderTask(PoolTask):
    """Launches a kernel that is made from a header in native/include/rollouts/envs/.

    Attributes:
      own_fields: Fields of the model that each episode draws.
    """

    def __init__(
        self,
        id: str,
        facts: Mapping[str, Any],
        options: Mapping[str, Any],
        worlds: Worlds,
        fields: ModelFields,
        arrays: PhysicsArrays,
        *,
        is_emulated: bool,
    ) -> None:
        """Compiles the kernel of an id, with its facts and all options: one value, or a list of N.

        Raises:
          SpecError: Environments differ in an option that they must share.
        """
        self._id, self._options = id, options
        self._worlds, self._fields, self._arrays = worlds, fields, arrays
        self.own_options = frozenset(
            name
            for name, value in facts["own_options"].items()
            if not isinstance(value, str) and not name.startswith(_OF_SPACES)
        )
        # raises if worlds differ in an option that they must share
        one_of_each(options, self.own_options)
        self.frame_skip, self.after_start = facts["frame_skip"], facts["refresh"]
        self.is_suite = facts["is_suite"]
        self.own_fields = tuple(filter(None, facts["draws"].split(", ")))
        for name in self.own_fields:
            fields.have_own(name)
        self._task = _bytes(facts["task"]).to(arrays.device)
        size = (worlds.num_envs, facts["config_bytes"])
        self._configs = torch.zeros(size, dtype=torch.uint8, device=arrays.device)
        self.put_options(facts)
        host = worlds.host
        self._starts = torch.zeros(
            (worlds.num_envs, host.nq + host.nv + host.na),
            dtype=torch.float64,
            device=arrays.device,
        )
        self._placed = torch.zeros(worlds.num_envs, dtype=torch.uint8, device=arrays.device)
        source = TaskKernelSource(env_source(id), facts["type"], self.is_suite)
        self._kernel = make_kernel(source, arrays.device, emulated=is_emulated)
        self._launch = TaskLaunch()
        self._draw = self._draw_of(facts)

    def _draw_of(self, facts: Mapping[str, Any]) -> Callable[[Any], None] | None:
        """Returns the part of a start that needs the physics; None: a start is one launch."""
        draw = self._of_phase(TaskPhase.DRAW)
        if facts["is_apart"]:
            place = self._of_phase(TaskPhase.PLACE) if facts["places"] else None
            tries = Tries(self._worlds, self._arrays.clocks, draw, place)
            finish = self._of_phase(TaskPhase.FINISH)

            def search(beginning: Any) -> None:
                tries.launch(beginning)
                finish(beginning)

            return search
        if facts["substeps_to_rest"]:
            return Rest(self._worlds, facts["substeps_to_rest"], draw).launch
        return None

    def _of_phase(self, phase: TaskPhase) -> Callable[[Any], None]:
        return lambda marked: self._run(phase, marked)

    def bind(self) -> None:
        self._start_qpos, _ = self._fields.start(-1)
        arrays = self._arrays
        self._launch = TaskLaunch(
            num_envs=self._worlds.num_envs,
            task=self._task.data_ptr(),
            configs=self._configs.data_ptr(),
            timestep=self._fields.timestep.data_ptr(),
            starts=self._starts.data_ptr(),
            model=self._model_arrays(),
            data=TaskDataArrays(
                **{name: _rows(getattr(self._worlds.data, name)) for name in DATA_ROWS}
            ),
            clock=arrays.columns(),
            draws=self._fields.draws.data_ptr(),
            broken=arrays.broken.data_ptr(),
            placed=self._placed.data_ptr(),
            results=TaskResults(
                **{name: arrays.outcomes[name].data_ptr() for name in _OUTCOMES},
                obs=arrays.obs.data_ptr(),
            ),
            frame_skip=self.frame_skip,
            num_infos=arrays.infos.shape[1],
            obs_size=arrays.obs.shape[1],
        )

    def _model_arrays(self) -> TaskModelArrays:
        host, model = self._worlds.host, self._worlds.model
        start = _rows(self._start_qpos)
        arrays = {name: getattr(model, name, None) for name in MODEL_ROWS}
        arrays["gravity"] = model.opt.gravity
        rows = {name: _rows(array) for name, array in arrays.items()}
        # the only model array that all worlds share
        rows["site_size"].stride = 0
        return TaskModelArrays(
            **{name: getattr(host, name) for name in MODEL_SIZES},
            **{name: getattr(model, name).ptr for name in MODEL_SHARED},
            start_qpos=start.first,
            start_qpos_stride=start.stride,
            **rows,
        )

    def state(self) -> dict[str, Tensor]:
        followers = {name for field in self.own_fields for name in _FOLLOWED.get(field, ())}
        return {name: wp.to_torch(getattr(self._worlds.data, name)) for name in sorted(followers)}

    def start(self, beginning: Any) -> None:
        self._run(TaskPhase.START, beginning)
        if self._draw is not None:
            self._draw(beginning)

    def look(self, marked: Any, *, is_start: bool) -> None:
        self._run(TaskPhase.RESET if is_start else TaskPhase.STEP, marked)

    def observe(self, marked: Any) -> None:
        self._run(TaskPhase.OBSERVE, marked)

    def _run(self, phase: TaskPhase, marked: Any) -> None:
        self._launch.phase, self._launch.marked = phase, marked.ptr
        num_blocks = -(-self._worlds.num_envs // _NUM_THREADS)
        self._kernel.launch(self._launch, num_blocks, _NUM_THREADS)

    def read_options(self, columns: Columns) -> Any:
        options = {**self._options, **columns}
        return _native.task_facts(self._id, options, self._worlds.num_envs, of_model=False)

    def put_options(self, read: Any) -> None:
        if self._configs.numel():
            rows = _bytes(read["configs"]).view(-1, self._configs.shape[1])
            self._configs.copy_(rows.expand_as(self._configs))
        self.contact_forces = read["contact_forces"]


_OUTCOMES = ("before", "reward", "terminated", "infos")


def _rows(array: Any) -> TaskRows:
    """Describes a Warp array with one row for each world, or one row for all."""
    if not array.size:
        return TaskRows(None, 0)
    numbers = math.prod(array.shape[1:]) * wp.types.type_size(array.dtype)
    stride = numbers if array.shape[0] > 1 else 0
    return TaskRows(array.ptr, stride)


def _bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
