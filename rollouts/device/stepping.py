# SPDX-License-Identifier: Apache-2.0
"""`DeviceStepping`: reset, step and rollout of a pool of a GPU, a launch each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rollouts.checks import seed_value, whole_number
from rollouts.device.device_pool import DevicePool
from rollouts.device.launch_args import ActionSource, Command, Launch
from rollouts.device.tensor_pool import Five
from rollouts.errors import ProtocolError, SpecError
from rollouts.pool.options import Columns, check_halves, read_options
from rollouts.pool.unknown_option import start_hint
from rollouts.specs import OptionValue


class DeviceStepping(DevicePool):
    """What a pool of a GPU does, whoever acts in it: one agent, or groups of them."""

    def _begin(self, mask: Tensor | None) -> Five:
        self._pending = None
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
        return self._five(row_set)

    def _change_options(self, given: dict[str, Any], begins: list[bool] | None) -> None:
        read: Columns = read_options(given, self.num_envs, own_model=False).native
        unknown = sorted({*read} - self._option_names)
        if unknown:
            raise SpecError(
                f"unknown reset options {unknown}; expected 'reset_mask' or options of "
                f"{self.env_spec.id}: {', '.join(sorted(self._option_names)) or 'none'}."
                + start_hint(unknown, self.env_spec.id)
            )
        check_halves(read, {})
        before = self._envs.options
        if begins is not None:
            kept = {name: before.get(name, self.env_spec.options[name]) for name in read}
            read = {
                name: [
                    now if begun else then
                    for now, then, begun in zip(
                        self._column(column), self._column(kept[name]), begins, strict=True
                    )
                ]
                for name, column in read.items()
            }
        self._envs.set_options({**before, **read})
        self._ring.forget()

    def render(self) -> Any:
        """Raises SpecError: a GPU's pool does not draw; a C++ pool with its states does."""
        raise SpecError(
            "a pool of a GPU does not draw: give its states to one without device, as in "
            "cpu.set_state(None, env.get_state()), and render that"
        )

    def _column(self, values: OptionValue | list[OptionValue]) -> list[OptionValue]:
        """One for each environment."""
        return values if isinstance(values, list) else [values] * self.num_envs

    def step(self, actions: Any) -> Five:
        """Steps all environments by one launch and returns at once.

        Args:
          actions: (N, *action_shape): a tensor on `device`, int64 or int32 for Discrete spaces and
            float32 for boxes, or what `torch.as_tensor` makes one of. It must stay as it is until
            the launch has run, as a tensor's user on the same stream leaves it.

        Returns:
          obs (N, *obs_shape), reward (N,) float32, terminated (N,) bool, truncated (N,) bool, info.
          `info` has env_id (N,) int32, episode_return (N,) float64, episode_length (N,) int32 and
          the environment's own keys. Same-step mode adds final_obs (N, *obs_shape), valid where an
          episode ended, and final_info where there are own keys; `info` has the new episode's.

        Raises:
          SpecError: Wrong shape, dtype or device. ProtocolError: Never reset.
          ClosedError: The environment was closed.
        """
        self._check_steps()
        read, count = self._read_actions(actions)
        if count is not None:
            raise SpecError(f"actions have a row for {count} steps: rollout takes them")
        row_set = self._ring.take()
        self._give(row_set.launch, read)
        self._launch(row_set.launch)
        self.count_steps(1)
        return self._five(row_set)

    def send(self, actions: Any) -> None:
        """Launches a step; `recv` returns its batch."""
        if self._pending is not None:
            raise ProtocolError("the last batch was not received: call recv before send")
        self._pending = self.step(actions)

    def recv(self) -> Five:
        """The batch of the last `send`. Raises ProtocolError where there is none."""
        if self._pending is None:
            raise ProtocolError("nothing was sent: call send before recv")
        batch, self._pending = self._pending, None
        return batch

    def rollout(
        self, num_steps: int, actions: Any = "random", *, action_seed: int = 0, record: bool = False
    ) -> Five:
        """Steps all environments `num_steps` times by one launch; states stay on the chip.

        Args:
          num_steps: K.
          actions: "random": uniform over the space (a Box must be bounded), a function of
            (action_seed, env_id, step). A tensor (N, *action_shape): the same in each step.
            (K, N, *action_shape): one for each.
          action_seed: Of random actions.
          record: Return all K rows, (K, N, ...), new tensors each time, and with random actions
            info["action"] (K, N, *action_shape). Same-step mode doubles the observations. Else
            those of the last step, (N, ...).

        Returns:
          As `step`; `stats` has counted all episodes.

        Raises:
          As `step`.
        """
        self._check_steps()
        num_steps = whole_number("num_steps", num_steps, 1, 2**31 - 1)
        action_seed = seed_value(action_seed)
        is_random = isinstance(actions, str) and actions == "random"
        if is_random:
            read, count = self._empty_actions(num_steps if record else 0), None
        else:
            read, count = self._read_actions(actions)
        if count not in (None, num_steps):
            raise SpecError(f"actions have rows for {count} steps, expected {num_steps}")
        row_set = self._ring.make(num_steps) if record else self._ring.take()
        launch = row_set.launch
        try:
            launch.num_steps, launch.record_steps = num_steps, int(record)
            if is_random:
                launch.action_source = ActionSource.RANDOM
                launch.action_seed = action_seed
                launch.action_step = self._env_steps // self.num_envs
                if record:
                    self._take(launch, read)
                self._held_actions = read
            else:
                is_sequence = count is not None
                launch.action_source = ActionSource.SEQUENCE if is_sequence else ActionSource.GIVEN
                self._give(launch, read)
            self._launch(launch)
        finally:
            launch.num_steps, launch.record_steps = 1, 0
            launch.action_source = ActionSource.GIVEN
            self._take(launch, [])
        self.count_steps(num_steps)
        five = self._five(row_set)
        if is_random and record:
            five[4]["action"] = self._grouped(read)
        return five

    def open_rows(self) -> Any:
        """A row set of one step, its holder's alone, whose launch `step_rows` takes."""
        return self._ring.make_one()

    def refill(self, launch: Launch) -> None:
        """Has a launch that was made before know what the environments are now."""
        self._fill(launch)

    def step_rows(self, launch: Launch, actions: list[Tensor]) -> None:
        """As TensorPool's, by one launch."""
        self._give(launch, actions)
        self._launch(launch)

    def _launch(self, launch: Launch) -> None:
        """Puts a launch on the stream."""
        block = self._block
        num_blocks = -(-self.num_envs // block.num_envs)
        self._kernel.launch(launch, num_blocks, block.num_threads, block.shared_bytes)

    @abstractmethod
    def _five(self, row_set: Any) -> Five:
        """What `step` returns of a batch."""

    @abstractmethod
    def _read_actions(self, actions: Any) -> tuple[list[Tensor], int | None]:
        """A tensor for each group of agents, and K of a sequence (K, N, ...), None of (N, ...)."""

    @abstractmethod
    def _empty_actions(self, num_steps: int) -> list[Tensor]:
        """(K, N, ...) of each group, for random actions. Raises SpecError without bounds."""

    @abstractmethod
    def _give(self, launch: Launch, actions: list[Tensor]) -> None:
        """Has a launch read these actions."""

    @abstractmethod
    def _take(self, launch: Launch, actions: list[Tensor]) -> None:
        """Has a launch write what was done into these; none: nowhere."""

    @abstractmethod
    def _grouped(self, arrays: Sequence[Any]) -> Any:
        """What there is for each group, as callers get it."""
