# SPDX-License-Identifier: Apache-2.0
"""`KernelSteps`: reset, step and rollout of environments by our own kernels, a launch each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from rollouts import _native
from rollouts.checks import seed_value, whole_number
from rollouts.envs.engine import AUTORESET, Arrays
from rollouts.envs.kernel.agent_teams import Teams
from rollouts.envs.kernel.device_arguments import ActionForm
from rollouts.envs.kernel.device_engine import DeviceSetting, changed_columns
from rollouts.envs.kernel.emulation import current_recording
from rollouts.envs.kernel.env_arrays import EnvArrays
from rollouts.envs.kernel.kernel import BlockShape, Kernel
from rollouts.envs.kernel.kernel_source import KernelSource
from rollouts.envs.kernel.launch_args import ActionSource, Command, Fault, Launch, StepRules
from rollouts.envs.kernel.one_agent import OneAgent
from rollouts.envs.kernel.row_tensors import RowRing
from rollouts.envs.kernel.step_cost import StepCost
from rollouts.envs.options import Columns, check_halves, read_options
from rollouts.envs.pool_recipe import PoolRecipe
from rollouts.envs.unknown_option import start_hint
from rollouts.errors import SpecError

FAULTS = {
    Fault.NOT_FINITE: "its state was not finite after a step; its options may be beyond what its "
    "integrator can stand. Its episode was cut off there",
    Fault.NO_SUCH_ACTION: "got an action that is not in its space; the first one there was taken "
    "in its place",
    Fault.ENDED: "was stepped after its episode had ended, with autoreset disabled: it stayed as "
    "it was. Reset it by reset(options={'reset_mask': ...})",
    Fault.POLICY: "got a policy whose value or log_prob was not finite: look at its weights and at "
    "the observation. Its action was the space's first, or 0",
    Fault.LAYOUT: "has arrays that lie elsewhere for the kernel than for the C++ pool, and was not "
    "stepped: name the types of its numbers by their size, such as float or std::int32_t",
}


class Actors(Protocol):
    """The kernel, arrays and actions of one agent or of groups: `OneAgent` and `Teams`.

    Attributes:
      source, kernel, block: The kernel and the shape of its blocks.
      arrays: States, options and clocks.
      obs_dtypes, info_names: As `Steps`.
    """

    source: KernelSource
    kernel: Kernel
    block: BlockShape
    obs_dtypes: list[str]
    info_names: tuple[str, ...]

    @property
    def arrays(self) -> EnvArrays:
        """States, options and clocks."""

    def new_launch(self) -> Launch:
        """Returns an empty launch."""

    def fill(self, launch: Launch) -> None:
        """Writes the numbers into a launch that this kernel needs besides arrays and rules."""

    def row_set(self, shape: tuple[int, ...], launch: Launch) -> Any:
        """Returns rows of a shape, with the launch that writes them."""

    def block_of(self, most_shared_bytes: int) -> BlockShape:
        """Returns the block on a GPU with this much shared memory per block."""

    @property
    def action_forms(self) -> list[ActionForm]:
        """The `ActionReader.form` of each group of agents, or of the one agent."""

    def read(self, actions: Any) -> tuple[list[Tensor], int | None]:
        """Returns each group's actions as a tensor; and K for (K, N, ...), None for (N, ...)."""

    def empty(self, num_steps: int) -> list[Tensor]:
        """Returns an array (K, N, ...) for each group, which a launch fills with random actions.

        Raises:
          SpecError: The actions have no bounds.
        """

    def give(self, launch: Launch, actions: list[Tensor]) -> None:
        """Makes a launch read these actions."""

    def take(self, launch: Launch, actions: list[Tensor]) -> None:
        """Makes a launch write a step's actions into these tensors; an empty list: nowhere."""


class KernelSteps:
    """Launches of a kernel over N environments, on torch's current stream."""

    def __init__(
        self, recipe: PoolRecipe, columns: Columns, obs_dtype: str, setting: DeviceSetting
    ) -> None:
        """Compiles the kernel and makes the arrays, with these options."""
        (spec,) = recipe.specs.values()
        (native_id, _, limit, internal) = recipe.segments[0]
        columns = {**columns, **internal}
        self._spec, self._setting = spec, setting
        self._option_names = recipe.option_names
        self._rules = StepRules(AUTORESET.index(setting.autoreset_mode), limit)
        facts = _native.device_facts(native_id, dict(columns), setting.num_envs)
        make = Teams if spec.groups else OneAgent
        self._actors: Actors = make(spec, native_id, facts, obs_dtype, setting)
        self.obs_dtypes, self.info_names = self._actors.obs_dtypes, self._actors.info_names
        self.arrays = self._actors.arrays
        self.kernel = self._actors.kernel
        self._block = self._actors.block
        self._ring: RowRing[Any] = RowRing(setting.num_envs, self._row_set)
        self.arrays.set_options(columns)
        self._launches = self._native_launches()
        # tensors that a launch reads, kept until the next launch on the same stream
        self._held_actions: list[Tensor] = []

    def _native_launches(self) -> _native.StepLaunches:
        """Returns the object that steps by one native call."""
        block, kernel = self._block, self.kernel
        launch: Any = type(self._actors.new_launch())
        entry = kernel.step_entry(block.shared_bytes)
        return _native.StepLaunches(
            sets=self._ring.sets,
            forms=self._actors.action_forms,
            in_list=bool(self._spec.groups),
            tensor_type=Tensor,
            actions_at=launch.actions.offset,
            bytes_at=launch.action_bytes.offset,
            entry=kernel.launch if entry is None else entry,
            grid=self._grid,
            recording=current_recording if entry is None else None,
        )

    @property
    def _grid(self) -> tuple[int, int, int]:
        """Blocks, threads and shared bytes of a launch."""
        block = self._block
        num_blocks = -(-self._setting.num_envs // block.num_envs)
        return num_blocks, block.num_threads, block.shared_bytes

    def _row_set(self, shape: tuple[int, ...]) -> Any:
        launch = self._actors.new_launch()
        self.refill(launch)
        return self._actors.row_set(shape, launch)

    def begin(self, mask: Tensor | None) -> Arrays:
        """Begins episodes by one launch."""
        row_set = self._ring.take()
        launch = row_set.launch
        commands = None
        if mask is None:
            launch.command = Command.RESET
        else:
            reset, observe = int(Command.RESET), int(Command.OBSERVE)
            commands = torch.where(mask, reset, observe).to(torch.uint8)
            launch.commands = commands.data_ptr()
        try:
            self._launch(launch)
        finally:
            launch.command, launch.commands = Command.STEP, None
        return tuple(row_set.arrays)

    def step(self, actions: Any) -> Arrays:
        """Steps all environments by one launch."""
        arrays = self._launches.step(actions)
        # the native call does nothing and returns None if its conditions do not hold
        return self._step(actions) if arrays is None else arrays

    def _step(self, actions: Any) -> Arrays:
        read, count = self._actors.read(actions)
        if count is not None:
            raise SpecError(f"actions have a row for {count} steps: rollout takes them")
        row_set = self._ring.take()
        self._give(row_set.launch, read)
        self._launch(row_set.launch)
        return tuple(row_set.arrays)

    def rollout(
        self, num_steps: int, actions: Any, action_seed: int, record: bool, first_step: int
    ) -> tuple[Arrays, list[Tensor]]:
        """Steps all environments K times by one launch; random actions count from `first_step`."""
        num_steps = whole_number("num_steps", num_steps, 1, 2**31 - 1)
        action_seed = seed_value(action_seed)
        is_random = isinstance(actions, str) and actions == "random"
        if is_random:
            read, count = self._actors.empty(num_steps if record else 0), None
        else:
            read, count = self._actors.read(actions)
        if count not in (None, num_steps):
            raise SpecError(f"actions have rows for {count} steps, expected {num_steps}")
        row_set = self._ring.make(num_steps) if record else self._ring.take()
        launch = row_set.launch
        try:
            launch.num_steps, launch.record_steps = num_steps, int(record)
            if is_random:
                launch.action_source = ActionSource.RANDOM
                launch.action_seed = action_seed
                launch.action_step = first_step
                if record:
                    self._actors.take(launch, read)
                self._held_actions = read
            else:
                is_sequence = count is not None
                launch.action_source = ActionSource.SEQUENCE if is_sequence else ActionSource.GIVEN
                self._give(launch, read)
            self._launch(launch)
        finally:
            launch.num_steps, launch.record_steps = 1, 0
            launch.action_source = ActionSource.GIVEN
            self._actors.take(launch, [])
        return tuple(row_set.arrays), read if is_random and record else []

    def no_rows(self) -> Arrays:
        """A batch of no environment."""
        return tuple(None if one is None else one[:0] for one in self._ring.take().arrays)

    def open_rows(self) -> Any:
        """Returns a row set of one step for a single holder; its launch is for `step_rows`."""
        return self._ring.make_one()

    def refill(self, launch: Launch) -> None:
        """Updates a launch to the environments' present arrays and options."""
        launch.rules, launch.num_steps = self._rules, 1
        self.arrays.fill(launch)
        self._actors.fill(launch)

    def step_rows(self, launch: Launch, actions: list[Tensor]) -> None:
        """Does the work of `Steps.step_rows` by one launch."""
        self._give(launch, actions)
        self._launch(launch)

    def _give(self, launch: Launch, actions: list[Tensor]) -> None:
        self._actors.give(launch, actions)
        self._held_actions = actions

    def _launch(self, launch: Launch) -> None:
        """Puts a launch on the stream."""
        self.kernel.launch(launch, *self._grid)

    def check(self) -> None:
        """Does nothing: these environments can always continue."""

    @property
    def columns(self) -> Columns:
        """Options that were given or changed."""
        return self.arrays.options

    def change(self, given: dict[str, Any], begins: list[bool] | None) -> None:
        """Sets other options in environments that begin, or in all."""
        num_envs, spec = self._setting.num_envs, self._spec
        read: Columns = read_options(given, num_envs, own_model=False).native
        unknown = sorted({*read} - self._option_names)
        if unknown:
            raise SpecError(
                f"unknown reset options {unknown}; expected 'reset_mask' or options of "
                f"{spec.id}: {', '.join(sorted(self._option_names)) or 'none'}."
                + start_hint(unknown, spec.id)
            )
        check_halves(read, {})
        self.arrays.set_options(changed_columns(spec, self.arrays.options, read, begins, num_envs))
        self._ring.forget()

    def take_fault(self) -> tuple[int, str] | None:
        """The first fault since the last call."""
        fault = self.arrays.take_fault()
        return None if fault is None else (fault[0], FAULTS[Fault(fault[1])])

    def save(self, rows: Sequence[int]) -> list[bytes]:
        """Saves states in the C++ pool's format."""
        return self.arrays.save(rows)

    def load(self, rows: Sequence[int], states: list[bytes]) -> None:
        """Takes over states of this pool or the C++ pool; reals of light environments are rounded
        to 32 bits."""
        self.arrays.load(rows, states)

    @property
    def num_launches(self) -> int:
        """The number of launches of the kernel so far."""
        return self.kernel.num_launches

    @property
    def buffer_bytes(self) -> int:
        """Bytes of rows that are kept to be reused."""
        return self._ring.num_bytes

    def cost(self, most_shared_bytes: int | None) -> StepCost:
        """As `KernelEngine.step_cost`."""
        rows = self._ring.take().step_bytes / self._setting.num_envs
        groups = [(one.num_agents, one.single_action_space) for one in self._spec.groups]
        # kernels read words of 32 bits, though whole numbers may be given with 64
        actions = 4 * sum(
            count * math.prod(space.shape or ())
            for count, space in groups or [(1, self._spec.single_action_space)]
        )
        block = self._block
        if most_shared_bytes is not None:
            block = self._actors.block_of(most_shared_bytes)
        return StepCost(self._actors.source, block, rows + actions + self.arrays.moved_bytes)

    def close(self) -> None:
        """Frees all memory that is not referenced elsewhere."""
        self._ring.forget()
        del self.arrays, self.kernel, self._actors, self._launches
