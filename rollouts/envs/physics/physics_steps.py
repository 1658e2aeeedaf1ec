# SPDX-License-Identifier: Apache-2.0
"""`PhysicsSteps`: reset and step of MuJoCo tasks by mujoco_warp, with a graph for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from rollouts import _native
from rollouts.envs.engine import AUTORESET, Arrays
from rollouts.envs.kernel.device_arguments import ActionReader
from rollouts.envs.kernel.device_engine import DeviceSetting, changed_columns
from rollouts.envs.kernel.kernel_steps import FAULTS
from rollouts.envs.kernel.launch_args import Command, EnvLaunch, Fault
from rollouts.envs.kernel.row_tensors import RowSet, RowSpec
from rollouts.envs.options import Columns, Options, read_options
from rollouts.envs.physics.physics_pool import PhysicsPool, make_pool
from rollouts.envs.pool_recipe import PoolRecipe
from rollouts.errors import SpecError
from rollouts.families.model_fields import model_columns
from rollouts.families.table import family_of
from rollouts.own_model.model_options import ENV_ID
from rollouts.own_model.parts import Layout
from rollouts.specs import EnvSpec

_FAULTS = {
    1: "its action or its state was not finite, or beyond 1e10, after a step: its episode was cut "
    "off there",
    2: "{overflow}. Its episode was cut off there",
    3: "was stepped after its episode had ended, with autoreset disabled: what it shows stayed. "
    "Reset it by reset(options={{'reset_mask': ...}})",
    4: "got a reward from its function that is not finite: its episode was cut off there",
    5: "found no start in which nothing touches, in 1000 draws: it begins with the last. Sizes or "
    "ranges of its model may leave none",
}


class PhysicsSteps:
    """Graphs over N tasks, on torch's current stream.

    Attributes:
      pool: The worlds and their graphs.
      arrays: The tensors that a step writes.
      columns: Options that were given or changed.
    """

    def __init__(
        self,
        recipe: PoolRecipe,
        options: Options,
        memory: dict[str, int | None],
        setting: DeviceSetting,
    ) -> None:
        """Compiles the graphs of a task."""
        ((env_id, spec),) = recipe.specs.items()
        (native_id, _, limit, internal) = recipe.segments[0]
        self._spec, self._setting, self._is_own = spec, setting, env_id == ENV_ID
        self._same_step = setting.autoreset_mode is AutoresetMode.SAME_STEP
        self.obs_dtypes = ["float32"]
        self.columns: Columns = {**options.native, **internal}
        shapes = _info_shapes(spec, native_id, internal)
        self.info_names = tuple(shapes)
        self._info_shapes = list(shapes.values())
        self._info_sizes = [math.prod(shape) for shape in self._info_shapes]
        self._reader = ActionReader(spec.single_action_space, (setting.num_envs,), setting.device)
        model_file = family_of(spec.header).model_file
        assert model_file is not None
        self.pool: PhysicsPool = make_pool(
            spec.id,
            model_file({**spec.options, **internal}),
            {**spec.options, **self.columns},
            setting.num_envs,
            (spec.single_observation_space.shape or (0,))[0],
            sum(self._info_sizes),
            device=setting.device,
            is_emulated=setting.is_emulated,
            env_id_offset=setting.env_id_offset,
            autoreset=AUTORESET.index(setting.autoreset_mode),
            max_episode_steps=limit,
            functions=options.functions,
            memory=memory,
        )
        self.arrays = self.pool.arrays
        self._env_id = self.arrays.clock["env_id"].clone()
        if options.model is not None:
            self._change_model(options.model, None)

    def change(self, given: dict[str, Any], begins: list[bool] | None) -> None:
        """Gives other options and models to environments that begin, or to all."""
        num_envs = self._setting.num_envs
        read = read_options(given, num_envs, own_model=self._is_own)
        self.pool.check_options(read.native)
        columns = changed_columns(self._spec, self.columns, read.native, begins, num_envs)
        others = self.pool.read_options(columns)
        if read.model is not None:
            self._change_model(read.model, begins)
        # this comes last, when nothing can fail any more
        self.pool.put_options(others)
        self.columns = columns

    def _change_model(self, model: Any, begins: list[bool] | None) -> None:
        num_envs = self._setting.num_envs
        mask = np.ones(num_envs, np.bool_) if begins is None else np.array(begins, np.bool_)
        if mask.any():
            columns = model_columns(model, self.pool.fields, num_envs, mask)
            self.pool.change_model(columns, np.flatnonzero(mask).tolist())

    def begin(self, mask: Tensor | None) -> Arrays:
        """Begins episodes by one graph."""
        num_envs, device = self._setting.num_envs, self._setting.device
        commands = torch.full((num_envs,), int(Command.RESET), dtype=torch.uint8, device=device)
        if mask is not None:
            commands = torch.where(mask, commands, int(Command.OBSERVE)).to(torch.uint8)
        elif self.pool.functions is not None:
            self.pool.functions.broken = ""
        self.pool.reset(commands)
        return self._copies(is_step=False)

    def check(self) -> None:
        """Raises if a user's function has raised and left environments inside a step."""
        if self.pool.functions is not None:
            self.pool.functions.check()

    def step(self, actions: Any) -> Arrays:
        """Steps all environments by one graph."""
        self.check()
        read, count = self._reader.read(actions)
        if count is not None:
            raise SpecError(f"actions have a row for {count} steps: step takes those of one")
        self.pool.step(read)
        return self._copies(is_step=True)

    def _copies(self, *, is_step: bool) -> Arrays:
        # the caller gets copies, because the next step writes to the same memory
        arrays = self.arrays
        rows = {name: tensor.clone() for name, tensor in arrays.rows.items()}
        infos = self._split(arrays.infos.clone())
        final_obs = None
        if self._same_step and is_step:
            final_obs = arrays.final_obs.clone()
            infos += self._split(arrays.final_infos.clone())
        return (
            arrays.obs.clone(),
            rows["reward"],
            rows["terminated"],
            rows["truncated"],
            self._env_id.clone(),
            rows["episode_return"],
            rows["episode_length"],
            final_obs,
            *infos,
        )

    def _split(self, infos: Tensor) -> list[Tensor]:
        """Columns of the task's own infos."""
        parts = torch.split(infos, self._info_sizes, dim=1)
        return [
            part.reshape(len(infos), *shape)
            for part, shape in zip(parts, self._info_shapes, strict=True)
        ]

    def no_rows(self) -> Arrays:
        """A batch of no environment."""
        now = self._copies(is_step=True)
        return tuple(None if one is None else one[:0] for one in now)

    def open_rows(self) -> RowSet:
        """A row set for one step, which is not reused; `step_rows` takes its launch."""
        launch = EnvLaunch()
        self.refill(launch)
        shape = self._spec.single_observation_space.shape or ()
        spec = RowSpec(shape, self.obs_dtypes[0], (), self._same_step)
        return RowSet(spec, (self._setting.num_envs,), self._setting.device, launch)

    def refill(self, launch: EnvLaunch) -> None:
        """Updates a launch to the environments' present arrays."""
        launch.clock, launch.fault = self.arrays.columns(), self.arrays.fault.data_ptr()

    def step_rows(self, launch: EnvLaunch, actions: list[Tensor]) -> None:
        """As `Steps.step_rows`, by one graph; rows are copied."""
        self.pool.step(actions[0])
        self.pool.copy_rows(launch.rows)

    @property
    def num_launches(self) -> int:
        """The number of graphs that were replayed."""
        return self.pool.num_launches

    @property
    def buffer_bytes(self) -> int:
        """0, because returned tensors are the caller's own."""
        return 0

    def take_fault(self) -> tuple[int, str] | None:
        """One of the faults since the last call."""
        faults = self.arrays.faults
        # a collector's policy reports its faults through the same cell as in other pools
        of_policy = self.arrays.take_fault()
        if of_policy is not None:
            return of_policy[0], FAULTS[Fault(of_policy[1])]
        rows = faults.nonzero().flatten().tolist()
        if not rows:
            return None
        row, fault = rows[0], int(faults[rows[0]])
        faults.zero_()
        overflow = self.pool.told_overflow(fault >> 8)
        return self._setting.env_id_offset + row, _FAULTS[fault & 0xFF].format(overflow=overflow)

    def save(self, rows: Sequence[int]) -> list[bytes]:
        """States of environments."""
        return self.pool.states.save(rows)

    def load(self, rows: Sequence[int], states: list[bytes]) -> None:
        """Takes over states of `save`."""
        self.pool.states.load(rows, states)

    def close(self) -> None:
        """Frees the worlds and the graphs, once they are done."""
        device = self._setting.device
        # Warp frees memory without waiting for torch's streams
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        del self.pool, self.arrays


def _info_shapes(
    spec: EnvSpec, native_id: str, internal: dict[str, Any]
) -> dict[str, tuple[int, ...]]:
    """Shapes of the task's own infos by name, in order."""
    options = {**spec.options, **internal}
    if spec.id == ENV_ID:
        return {name: part.shape for name, part in Layout.of(options).info.items()}
    infos = _native.make_spec(native_id, options)["infos"]
    return {name: () if length is None else (length,) for name, _, length in infos}
