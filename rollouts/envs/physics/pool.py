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
from rollouts.envs.physics.arrays import PhysicsArrays
from rollouts.envs.physics.bare import BarePhysics
from rollouts.envs.physics.functions import BatchFunctions
from rollouts.envs.physics.graphs import Sequence, stream_of
from rollouts.envs.physics.kernels.episodes import SAME_STEP, begin_step, end_step
from rollouts.envs.physics.kernels.observing import CLIP, observe_part
from rollouts.envs.physics.library import quiet
from rollouts.envs.physics.model_fields import ModelFields
from rollouts.envs.physics.options import OptionArrays
from rollouts.envs.physics.own_task import own_task
from rollouts.envs.physics.starting import Starts
from rollouts.envs.physics.states import States
from rollouts.envs.physics.suite_tasks import suite_task
from rollouts.envs.physics.tasks import TASKS, Part, SuiteTask, Task
from rollouts.envs.physics.worlds import OVERFLOW_BITS, Worlds, read_model
from rollouts.errors import SpecError
from rollouts.families.model_fields import Column
from rollouts.own_model.options import ENV_ID as OWN_MODEL
from rollouts.own_model.parts import Layout
from rollouts.own_model.step import BatchFunction

_PATHS = frozenset({"assets", "xml_file", "suite_model"})


def make_pool(
    id: str,
    model_file: str,
    options: Mapping[str, Any],
    num_envs: int,
    obs_size: int,
    num_infos: int,
    *,
    device: torch.device,
    env_id_offset: int,
    autoreset: int,
    max_episode_steps: int,
    functions: Mapping[str, BatchFunction],
    memory: Mapping[str, int | None],
) -> PhysicsPool:
    """Makes N environments.

    Args:
      options: All of the task's: one value, or a list of N.
      num_infos: Numbers of a row of infos.
      autoreset: Of `kernels/episodes.py`.
      max_episode_steps: Time limit; 0: none.
      functions: MuJoCo-v0's.
      memory: As of `Worlds`.

    Raises:
      SpecError: A model or options that mujoco_warp does not have.
    """
    with quiet(), wp.ScopedDevice(wp.device_from_torch(device)):
        host = read_model(model_file)
        if id == OWN_MODEL:
            task = own_task(model_file, host, options)
        else:
            task = TASKS[id] if id in TASKS else suite_task(id, host)
        if task.suite is not None:
            given = {name: size for name, size in memory.items() if size is not None}
            memory = {**task.suite.memory, **given}
        worlds = Worlds(host, model_file, num_envs, memory)
        columns = OptionArrays(task.options, options, num_envs, device)
        shared = columns.others(options)
        arrays = PhysicsArrays(
            num_envs,
            obs_size,
            num_infos,
            0 if task.suite is None else task.suite.num_shown,
            device=device,
            env_id_offset=env_id_offset,
            same_step=autoreset == SAME_STEP,
        )
        return PhysicsPool(
            task,
            worlds,
            arrays,
            columns,
            {**options, **shared},
            _kind(id, worlds, shared),
            ModelFields(worlds, model_file, device),
            functions=functions,
            autoreset=autoreset,
            max_episode_steps=max_episode_steps,
        )


def _kind(id: str, worlds: Worlds, shared: Mapping[str, Any]) -> str:
    """Says which environments these are, wherever their model's file lies."""
    options = {name: value for name, value in shared.items() if name not in _PATHS}
    return repr((id, worlds.digest(), sorted(options.items())))


class PhysicsPool:
    """N environments of one task.

    Attributes:
      arrays: What they are now and what the last step came to.
      num_launches: Graphs that were replayed.
      states: Environments as bytes.
      fields: In which worlds' models differ.
      functions: Of the user's, of MuJoCo-v0.
    """

    def __init__(
        self,
        task: Task,
        worlds: Worlds,
        arrays: PhysicsArrays,
        options: OptionArrays,
        shared: Mapping[str, Any],
        kind: str,
        fields: ModelFields,
        *,
        functions: Mapping[str, BatchFunction],
        autoreset: int,
        max_episode_steps: int,
    ) -> None:
        """Compiles all kernels, on Warp's current device.

        Args:
          shared: All options; those that are not in `options` do not differ.
          kind: What states of these environments are told apart by.
          fields: In which worlds' models differ.
          functions: MuJoCo-v0's.
          autoreset: Of `kernels/episodes.py`.
          max_episode_steps: Time limit; 0: none.
        """
        self._task, self._worlds, self.arrays, self._options = task, worlds, arrays, options
        self._autoreset, self._max_episode_steps = autoreset, max_episode_steps
        self._num_envs = worlds.num_envs
        self._frame_skip = int(shared["frame_skip"]) or task.frame_skip
        self._contact_forces = task.needs_contact_forces(shared)
        places = tuple(
            worlds.body(str(shared[name.removeprefix("option:")]))
            if name.startswith("option:")
            else worlds.body(name)
            for name in task.bodies
        )
        suite = task.suite or SuiteTask(0.0, places, -1)
        self._looks_at = (suite.places, suite.goal, suite.sizes)
        for name in suite.own_fields:
            fields.have_own(name)
        self._parts = task.observation(shared, places)
        self._kind, self.fields = kind, fields
        self.num_launches = 0
        self.functions: BatchFunctions | None = None
        if functions:
            self.functions = BatchFunctions(
                functions, Layout.of(shared), arrays, fields.timestep, self._frame_skip
            )
        self._controls = wp.to_torch(worlds.data.ctrl)
        self._capture()
        arrays.clear()

    def _capture(self) -> None:
        """Makes the graphs, of arrays that may lie elsewhere now; environments stay as they are."""
        arrays, worlds, fields = self.arrays, self._worlds, self.fields
        self._sim = worlds.simulation(
            self._frame_skip, wp.from_torch(fields.timestep), *self._looks_at
        )
        self._starts = Starts(self._task, worlds, fields, arrays, self._options.noise_scale)
        columns = {**worlds.state(), **arrays.state(), **fields.state()}
        suite = self._task.suite
        if suite is not None and (suite.target >= 0 or suite.moves_geoms):
            columns["geom_xpos"] = wp.to_torch(worlds.data.geom_xpos)
        if suite is not None and suite.moves_geoms:
            columns["geom_xmat"] = wp.to_torch(worlds.data.geom_xmat)
        self.states = States(columns, self._kind)
        kept = [(one, one.clone()) for one in (*columns.values(), *arrays.counts())]
        # torch made its tensors on a stream of its own
        wp.synchronize_device()
        # a capture compiles nothing: everything runs once before
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
        """Has the models of these worlds differ from the file's, from their next start on.

        Raises:
          SpecError: Values that a model cannot have. Nothing has changed then.
        """
        with quiet(), wp.ScopedDevice(wp.device_from_torch(self.arrays.device)):
            self.fields.change(columns, envs)
            self._capture()

    def step(self, actions: Tensor) -> None:
        """Steps all environments, whose rows `arrays` has then.

        Raises:
          What a function of the user's raises.
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
        """The same worlds once more, without the task."""
        return BarePhysics(self._worlds, self._frame_skip, self.arrays.device)

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
        """Runs RESET or OBSERVE of `kernels/episodes.py` in each environment."""
        self.arrays.commands.copy_(commands)
        self._reset.replay()
        self.num_launches += 1

    def told_overflow(self, bits: int) -> str:
        """As of `Worlds`."""
        return self._worlds.told_overflow(bits)

    def read_options(self, values: Columns) -> dict[str, Tensor]:
        """Weights and ranges as `put_options` takes them.

        Raises:
          SpecError: Options that are not among those, or no numbers.
        """
        unknown = sorted({*values} - self._options.names)
        if unknown:
            raise SpecError(
                f"reset options {unknown} cannot change in a GPU's pool; expected 'reset_mask', "
                f"'model' or {', '.join(sorted(self._options.names)) or 'nothing else'}"
            )
        return self._options.read(values)

    def put_options(self, columns: dict[str, Tensor], mask: Tensor | None) -> None:
        """Has the marked environments, or all, take other weights and ranges."""
        self._options.put(columns, mask)

    def _launch_step(self) -> None:
        self._launch_dynamics()
        self._launch_rest()

    def _launch_dynamics(self) -> None:
        """Moves the worlds, and has their task look at them."""
        stepping = self.arrays.stepping_wp
        self._launch_begin()
        self._worlds.step(self._frame_skip, contact_forces=self._contact_forces)
        if self._task.suite is not None:
            self._worlds.bring_up_to_date()
        self._launch_task(stepping, is_start=False)
        if self.functions is not None:
            self._observe(stepping)

    def _launch_rest(self) -> None:
        """Ends the step, once its reward is known."""
        arrays = self.arrays
        self._launch_end()
        self._observe(arrays.stepping_wp)
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

    def _launch_task(self, marked: Any, *, is_start: bool) -> None:
        arrays = self.arrays
        wp.launch(
            self._task.kernel,
            self._num_envs,
            [self._options.struct, self._sim, arrays.outcome, marked, is_start],
        )

    def _launch_end(self) -> None:
        arrays = self.arrays
        wp.launch(
            end_step,
            self._num_envs,
            [
                arrays.clocks,
                self._sim,
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
        """Begins episodes of those who are marked, and shows them."""
        arrays, worlds = self.arrays, self._worlds
        self._starts.launch(contact_forces=self._contact_forces)
        worlds.refresh(self._task.after_start)
        self._launch_task(arrays.beginning_wp, is_start=True)
        self._observe(arrays.beginning_wp)

    def _observe(self, marked: Any) -> None:
        arrays = self.arrays
        for parts, to in ((self._parts, arrays.obs_wp), (self._task.infos, arrays.outcome.infos)):
            at = 0
            for part in parts:
                at += self._observe_part(part, to, at, marked)
            assert at in (0, to.shape[1])

    def _observe_part(self, part: Part, to: Any, at: int, marked: Any) -> int:
        arrays = self.arrays
        source = arrays.shown if part.source == "shown" else self._worlds.flat(part.source)
        count = source.shape[1] - part.first if part.count is None else part.count
        low = high = self._options.unused
        if part.kind == CLIP:
            low, high = self._options.bound(part.low), self._options.bound(part.high)
        wp.launch(
            observe_part,
            (self._num_envs, count),
            [
                part.kind,
                source,
                part.first,
                part.other,
                low,
                high,
                at,
                marked,
                arrays.clocks.broken,
                to,
            ],
        )
        return count
