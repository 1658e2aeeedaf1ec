# SPDX-License-Identifier: Apache-2.0
"""`PhysicsPool`: the arrays of N environments, and what a step and a reset launch over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import warp as wp
from torch import Tensor

from rollouts.envs.kernel.launch_args import DeviceRows
from rollouts.envs.options import Columns
from rollouts.envs.physics.bare import BarePhysics
from rollouts.envs.physics.batch_functions import BatchFunctions
from rollouts.envs.physics.graphs import Sequence, as_warp, stream_of
from rollouts.envs.physics.header_task import HeaderTask, task_facts
from rollouts.envs.physics.kernels.world_episodes import SAME_STEP, begin_step, end_step
from rollouts.envs.physics.library import quiet
from rollouts.envs.physics.own_task import OwnTask
from rollouts.envs.physics.physics_arrays import PhysicsArrays
from rollouts.envs.physics.pool_task import PoolTask, one_of_each
from rollouts.envs.physics.states import States
from rollouts.envs.physics.world_fields import ModelFields
from rollouts.envs.physics.worlds import OVERFLOW_BITS, Worlds, read_model
from rollouts.errors import SpecError
from rollouts.families.model_fields import Column
from rollouts.own_model.model_options import ENV_ID as OWN_MODEL
from rollouts.own_model.parts import Layout
from rollouts.own_model.step import BatchFunction

_PATHS = frozenset({"assets", "xml_file", "suite_model"})
# prefixes of ids -> the `memory` of `Worlds`, where mujoco_warp's estimate is too small
_MEMORY = {
    # a dog that lies on the ground has up to 40 contacts and 255 rows of constraints
    "Dog": {"nconmax": 96, "njmax": 512},
    # random poses have up to 55 contacts, and a body on the ground 74 rows
    "HumanoidCMU": {"nconmax": 96, "njmax": 192},
}


def make_pool(
    id: str,
    model_file: str,
    options: Mapping[str, Any],
    num_envs: int,
    obs_size: int,
    num_infos: int,
    *,
    device: torch.device,
    is_emulated: bool,
    env_id_offset: int,
    autoreset: int,
    max_episode_steps: int,
    functions: Mapping[str, BatchFunction],
    memory: Mapping[str, int | None],
) -> PhysicsPool:
    """Makes N environments.

    Args:
      options: All options of the task: one value, or a list of N.
      num_infos: Numbers in a row of infos.
      is_emulated: Whether kernels run on the host.
      autoreset: Mode, as in `kernels/world_episodes.py`.
      max_episode_steps: Time limit; 0: none.
      functions: Functions of MuJoCo-v0.
      memory: As of `Worlds`.

    Raises:
      SpecError: A model or options that mujoco_warp does not support.
    """
    with quiet(), wp.ScopedDevice(wp.device_from_torch(device)):
        host, is_own = read_model(model_file), id == OWN_MODEL
        facts = {} if is_own else task_facts(id, options, num_envs, host)
        most = [one for prefix, one in _MEMORY.items() if id.startswith(prefix)]
        given = {name: size for name, size in memory.items() if size is not None}
        worlds = Worlds(host, model_file, num_envs, {**memory, **dict(*most), **given})
        arrays = PhysicsArrays(
            num_envs,
            obs_size,
            num_infos,
            device=device,
            env_id_offset=env_id_offset,
            same_step=autoreset == SAME_STEP,
        )
        fields = ModelFields(worlds, model_file, device)
        task: PoolTask
        if is_own:
            task = OwnTask(model_file, options, worlds, fields, arrays)
        else:
            task = HeaderTask(id, facts, options, worlds, fields, arrays, is_emulated=is_emulated)
        shared = one_of_each(options, task.own_options)
        return PhysicsPool(
            task,
            worlds,
            arrays,
            Layout.of(shared) if functions else None,
            _kind(id, worlds, shared),
            fields,
            functions=functions,
            autoreset=autoreset,
            max_episode_steps=max_episode_steps,
        )


def _kind(id: str, worlds: Worlds, shared: Mapping[str, Any]) -> str:
    """Returns a name of these environments that does not depend on their model's path."""
    options = {name: value for name, value in shared.items() if name not in _PATHS}
    return repr((id, worlds.digest(), sorted(options.items())))


class PhysicsPool:
    """N environments of one task.

    Attributes:
      arrays: The environments' present state and the results of the last step.
      num_launches: Graphs that were replayed.
      states: Saves and loads environments as bytes.
      fields: The fields in which worlds' models differ.
      functions: The user's functions, for MuJoCo-v0.
    """

    def __init__(
        self,
        task: PoolTask,
        worlds: Worlds,
        arrays: PhysicsArrays,
        layout: Layout | None,
        kind: str,
        fields: ModelFields,
        *,
        functions: Mapping[str, BatchFunction],
        autoreset: int,
        max_episode_steps: int,
    ) -> None:
        """Compiles all kernels, on Warp's current device.

        Args:
          layout: The arrays that functions of MuJoCo-v0 get.
          kind: The name that distinguishes states of these environments from others.
          fields: The fields in which worlds' models differ.
          functions: Functions of MuJoCo-v0.
          autoreset: Mode, as in `kernels/world_episodes.py`.
          max_episode_steps: Time limit; 0: none.
        """
        self._task, self._worlds, self.arrays = task, worlds, arrays
        self._autoreset, self._max_episode_steps = autoreset, max_episode_steps
        self._num_envs = worlds.num_envs
        self._kind, self.fields = kind, fields
        self.num_launches = 0
        self.functions: BatchFunctions | None = None
        if layout is not None:
            self.functions = BatchFunctions(
                functions, layout, arrays, fields.timestep, task.frame_skip
            )
        self._controls = wp.to_torch(worlds.data.ctrl)
        self._capture()
        arrays.clear()

    def _capture(self) -> None:
        """Makes the graphs for the arrays' present addresses; environments stay as they are."""
        arrays, worlds, fields = self.arrays, self._worlds, self.fields
        self._task.bind()
        columns = {**worlds.state(), **arrays.state(), **fields.state(), **self._task.state()}
        self.states = States(columns, self._kind)
        kept = [(one, one.clone()) for one in (*columns.values(), *arrays.counts())]
        # waits for torch, which made its tensors on a stream of its own
        wp.synchronize_device()
        # a capture compiles nothing, so everything runs once before
        with as_warp(arrays.device):
            self._launch_step()
            self._launch_reset()
        stages = [self._launch_step]
        if self.functions is not None:
            stages = [self._launch_dynamics, self._launch_rest]
        self._step = [Sequence(stage, arrays.device) for stage in stages]
        self._reset = Sequence(self._launch_reset, arrays.device)
        wp.synchronize_device()
        for tensor, before in kept:
            tensor.copy_(before)

    def change_model(self, columns: list[Column], envs: list[int]) -> None:
        """Changes the models of these worlds from their next start on.

        Raises:
          SpecError: Values that a model cannot have. Nothing has changed then.
        """
        with quiet(), wp.ScopedDevice(wp.device_from_torch(self.arrays.device)):
            self.fields.change(columns, envs)
            self._capture()

    def step(self, actions: Tensor) -> None:
        """Steps all environments; `arrays` has the rows afterwards.

        Raises:
          Errors of a user's function.
        """
        functions = self.functions
        if functions is not None:
            functions.look()
        self._controls.copy_(actions)
        self.arrays.commands.zero_()
        self._step[0].replay()
        if functions is not None:
            functions.score(actions)
            self._step[1].replay()
        self.num_launches += len(self._step)

    def bare_physics(self) -> BarePhysics:
        """A second copy of the worlds, without the task."""
        return BarePhysics(self._worlds, self._task.frame_skip, self.arrays.device)

    def copy_rows(self, to: DeviceRows) -> None:
        """Copies the rows of the last step to where `to` has an address, on torch's stream."""
        for name, source in self.arrays.row_arrays().items():
            address = getattr(to, name)
            if address:
                there = wp.array(
                    ptr=address, dtype=source.dtype, shape=source.shape, device=source.device
                )
                wp.copy(there, source, stream=stream_of(self.arrays.device))

    def reset(self, commands: Tensor) -> None:
        """Runs RESET or OBSERVE of `kernels/world_episodes.py` in each environment."""
        self.arrays.commands.copy_(commands)
        self._reset.replay()
        self.num_launches += 1

    def told_overflow(self, bits: int) -> str:
        """As `Worlds.told_overflow`."""
        return self._worlds.told_overflow(bits)

    def check_options(self, given: Columns) -> None:
        """Raises SpecError for options that cannot change after construction."""
        own = self._task.own_options
        unknown = sorted({*given} - own)
        if unknown:
            raise SpecError(
                f"reset options {unknown} cannot change in a GPU's pool; expected 'reset_mask', "
                f"'model' or {', '.join(sorted(own)) or 'nothing else'}"
            )

    def read_options(self, columns: Columns) -> Any:
        """As `PoolTask.read_options`."""
        return self._task.read_options(columns)

    def put_options(self, read: Any) -> None:
        """Sets what `read_options` returned, such as weights and ranges."""
        before = self._task.contact_forces
        self._task.put_options(read)
        if self._task.contact_forces != before:
            with quiet(), wp.ScopedDevice(wp.device_from_torch(self.arrays.device)):
                self._capture()

    def _launch_step(self) -> None:
        self._launch_dynamics()
        self._launch_rest()

    def _launch_dynamics(self) -> None:
        """Moves the worlds, and computes their rewards and ends."""
        stepping = self.arrays.stepping_wp
        self._launch_begin()
        task = self._task
        self._worlds.step(task.frame_skip, contact_forces=task.contact_forces)
        if task.is_suite:
            self._worlds.bring_up_to_date()
        task.look(stepping, is_start=False)
        if self.functions is not None:
            task.observe(stepping)

    def _launch_rest(self) -> None:
        """Ends the step, once its reward is known."""
        arrays = self.arrays
        self._launch_end()
        self._task.observe(arrays.stepping_wp)
        if self._autoreset == SAME_STEP:
            wp.copy(arrays.final_obs_wp, arrays.obs_wp)
            wp.copy(arrays.final_infos_wp, arrays.outcome.infos)
        self._launch_start()

    def _launch_reset(self) -> None:
        self._launch_begin()
        self._launch_end()
        self._launch_start()

    def _launch_begin(self) -> None:
        arrays = self.arrays
        wp.launch(
            begin_step,
            self._num_envs,
            [
                arrays.clocks,
                arrays.commands_wp,
                self._autoreset,
                arrays.stepping_wp,
                arrays.beginning_wp,
            ],
        )

    def _launch_end(self) -> None:
        arrays = self.arrays
        wp.launch(
            end_step,
            self._num_envs,
            [
                arrays.clocks,
                self._worlds.data.ctrl,
                self._worlds.data.qpos,
                self._worlds.data.qvel,
                arrays.outcome,
                arrays.out,
                arrays.sums,
                self._worlds.data.overflow,
                OVERFLOW_BITS,
                self._autoreset,
                self._max_episode_steps,
                arrays.stepping_wp,
                arrays.beginning_wp,
            ],
        )

    def _launch_start(self) -> None:
        """Begins episodes of the marked worlds, and observes them."""
        task, worlds, beginning = self._task, self._worlds, self.arrays.beginning_wp
        self.fields.launch_draws(self.arrays.clocks, beginning)
        worlds.clear(beginning)
        task.start(beginning)
        if task.contact_forces:
            worlds.clear_contact_forces(beginning)
        worlds.refresh(task.after_start)
        task.look(beginning, is_start=True)
        task.observe(beginning)
