# SPDX-License-Identifier: Apache-2.0
"""`HeaderTask`: a task of Gymnasium's, from the header that the C++ pool has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rollouts import _native
from rollouts.envs.kernel.kernel import make_kernel
from rollouts.envs.kernel.kernel_source import TaskKernelSource
from rollouts.envs.kernel.task_launch import (
    TaskDataArrays,
    TaskLaunch,
    TaskModelArrays,
    TaskPhase,
    TaskResults,
)
from rollouts.envs.options import Columns
from rollouts.envs.physics.arrays import PhysicsArrays
from rollouts.envs.physics.model_fields import ModelFields
from rollouts.envs.physics.pool_task import PoolTask, one_of_each
from rollouts.envs.physics.worlds import Worlds
from rollouts.own_env.registrations import env_source

_NUM_THREADS = 128  # in a block
# beginnings of Gymnasium's names for what an observation has, which is the same for all worlds
_OF_SPACES = ("exclude_", "include_")


class HeaderTask(PoolTask):
    """Launches of a kernel that is made of a header in native/include/rollouts/envs/mujoco/."""

    def __init__(
        self,
        id: str,
        options: Mapping[str, Any],
        worlds: Worlds,
        fields: ModelFields,
        arrays: PhysicsArrays,
        *,
        is_emulated: bool,
    ) -> None:
        """Compiles the kernel of an id, of all its options: one value, or a list of N.

        Raises:
          SpecError: Environments differ in an option in which they cannot.
        """
        self._id, self._options = id, options
        self._worlds, self._fields, self._arrays = worlds, fields, arrays
        facts = _native.task_facts(id, dict(options), worlds.num_envs, of_model=True)
        self.own_options = frozenset(
            name
            for name, value in facts["own_options"].items()
            if not isinstance(value, str) and not name.startswith(_OF_SPACES)
        )
        self.frame_skip = int(one_of_each(options, self.own_options)["frame_skip"])
        self.after_start = facts["refresh"]
        self._task = _bytes(facts["task"]).to(arrays.device)
        size = (worlds.num_envs, facts["config_bytes"])
        self._configs = torch.zeros(size, dtype=torch.uint8, device=arrays.device)
        self.put_options(facts)
        host = worlds.host
        self._starts = torch.zeros(
            (worlds.num_envs, host.nq + host.nv), dtype=torch.float64, device=arrays.device
        )
        source = TaskKernelSource(env_source(id))
        self._kernel = make_kernel(source, arrays.device, emulated=is_emulated)
        self._launch = TaskLaunch()

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
            data=self._data_arrays(),
            clock=arrays.columns(),
            draws=self._fields.draws.data_ptr(),
            broken=arrays.broken.data_ptr(),
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
        arrays = {
            "start_qpos": self._start_qpos,
            "qpos0": model.qpos0,
            "body_mass": model.body_mass,
        }
        sizes = {name: getattr(host, name) for name in ("nq", "nv", "nu", "nbody", "nsite")}
        return TaskModelArrays(
            **sizes,
            ntendon=host.ntendon,
            **{name: array.ptr for name, array in arrays.items()},
            # one row for all worlds, or one for each
            **{
                f"{name}_stride": array.shape[1] if array.shape[0] > 1 else 0
                for name, array in arrays.items()
            },
        )

    def _data_arrays(self) -> TaskDataArrays:
        data, addresses = self._worlds.data, {}
        for name, _ in TaskDataArrays._fields_:
            has_any = getattr(data, name).size > 0
            addresses[name] = self._worlds.flat(name).ptr if has_any else None
        return TaskDataArrays(**addresses)

    def start(self, beginning: Any) -> None:
        self._run(TaskPhase.START, beginning)

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
        rows = _bytes(read["configs"]).view(-1, self._configs.shape[1])
        self._configs.copy_(rows.expand_as(self._configs))
        self.contact_forces = read["contact_forces"]


_OUTCOMES = ("before", "reward", "terminated", "infos")


def _bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
