# SPDX-License-Identifier: Apache-2.0
"""`TorchMemory`: a module's memory of each row while torch computes it on a device."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rollouts.collecting.actor_rows import ActorRows
from rollouts.errors import SpecError
from rollouts.recurrent import State, initial_state, reset_where

Tensors = dict[str, Tensor]


class TorchMemory:
    """One state per row, carried from step to step and from rollout to rollout.

    Attributes:
      parts: Shape and dtype of each part of one row's state.
    """

    def __init__(self, module: nn.Module, rows: ActorRows, device: torch.device) -> None:
        """Starts with an initial state in every row."""
        self._module, self._rows, self._device = module, rows, device
        self.parts = [(tuple(each.shape), each.dtype) for each in initial_state(module)]
        self.reset()

    def reset(self) -> None:
        """Starts again with an initial state in every row."""
        count = self._rows.num_rows
        self._begins = torch.ones(count, dtype=torch.bool, device=self._device)
        self._now: State = tuple(
            torch.zeros((count, *shape), dtype=dtype, device=self._device)
            for shape, dtype in self.parts
        )
        self._after: list[State] = []  # the states after each step of this rollout

    def go_on_from(self, before: TorchMemory) -> None:
        """Takes over the states of another memory with equal parts."""
        self._begins, self._now = before._begins, before._now

    def meet(self, rollout: Tensors, t: int, world_ended: Tensor) -> State:
        """Returns the states (rows, ...) for the observations of row t, and keeps them if
        the rollout has room for them.

        Args:
          rollout: terminated, truncated: (T, N, ...), and policy_state.<i>: (K, N, ..., *shape).
          t: Row, from 0 to T.
          world_ended: (T, N) bool: ended episodes of environments with agents.
        """
        if t == 0:
            self._after = []
        else:
            self._begins = self._ended(rollout, t - 1, world_ended)
        state = reset_where(self._begins, initial_state(self._module), self._now)
        for i, each in enumerate(state):
            kept = rollout[f"policy_state.{i}"]
            if t < len(kept):
                kept[t].view(each.shape).copy_(each)
        return state

    def keep(self, state: State) -> None:
        """Takes over the states (rows, ...) after a step.

        Raises:
          SpecError: Their shapes or dtypes are not those of the module's initial_state().
        """
        found = [(tuple(each.shape[1:]), each.dtype) for each in state]
        if found != self.parts or any(len(each) != self._rows.num_rows for each in state):
            raise SpecError(
                f"the module returned a state of {[(tuple(s.shape), s.dtype) for s in state]}, "
                f"expected (B, ...) of {self.parts} as in its initial_state()"
            )
        self._now = state
        self._after.append(state)

    def after(self, steps: Tensor, rows: Tensor) -> State:
        """Returns the states (K, ...) after steps (K,) of this rollout in rows (K,)."""
        return tuple(torch.stack(part)[steps, rows] for part in zip(*self._after, strict=True))

    def _ended(self, rollout: Tensors, t: int, world_ended: Tensor) -> Tensor:
        """(rows,) bool: the rows whose episode ended in step t."""
        ended = (rollout["terminated"][t] | rollout["truncated"][t]).flatten()
        if self._rows.has_groups:
            # an agent that left early begins again with the others
            ended |= world_ended[t].repeat_interleave(self._rows.num_agents)
        return ended
