# SPDX-License-Identifier: Apache-2.0
"""Policies with memory: `RecurrentTorchPolicy` acts, `unroll` runs a rollout again to learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.errors import ProtocolError, SpecError
from rollouts.policies.output_checks import check_module_outputs, output_names
from rollouts.policies.protocol import PolicyOutput, Rows
from rollouts.support.extras import needs

with needs("torch", "RecurrentTorchPolicy"):
    import torch
    from torch import Tensor, nn

    from rollouts.policies.inputs import call_module
    from rollouts.policy import TorchPolicy, as_tensor

Array = NDArray[Any]
State = tuple[Tensor, ...]


class RecurrentTorchPolicy(TorchPolicy):
    """A `RecurrentPolicy` around a module with memory, such as an LSTM or a GRU.

    The module has

      initial_state() -> tuple of (...)          one environment's state when an episode begins,
                                                 on the module's device
      forward(obs (B, ...), state) -> (*action_outputs, value, new_state)

    with the outputs that `TorchPolicy` describes. A state is a tuple of tensors, which have the
    leading dimension B in `forward`; `new_state` has the shapes and dtypes of `state`. The module
    must not write to its inputs.

    The policy keeps one state per environment. After an update of the weights it continues from
    states that the older weights computed. It belongs to one pool, because `rows` are indices in
    that pool. If a `Collector` makes the pool's threads compute it, the collector keeps the states.
    """

    def __init__(
        self,
        module: nn.Module,
        action_space: gymnasium.Space[Any],
        *,
        seed: int | Sequence[int] = 0,
        device: str | torch.device = "cpu",
        keep_states: bool = False,
    ) -> None:
        """Takes the arguments of `TorchPolicy`, with the same errors.

        Args:
          keep_states: Whether each step's output has the state before it, as
            extras["policy_state.<index>"] (B, ...): what a replay of sequences needs.
        """
        super().__init__(module, action_space, seed=seed, device=device)
        self.keeps_states = keep_states
        self._states: State = ()

    def act(self, obs: Array, action_mask: Array | None = None) -> PolicyOutput:
        """Refuses, because the state depends on the environments, which are unknown here.

        Raises:
          ProtocolError: always; call `act_rows`, as `Collector` does.
        """
        raise ProtocolError(_WHOSE.format("act"))

    def value(self, obs: Array) -> NDArray[np.float32]:
        """Refuses for the same reason; call `value_rows`."""
        raise ProtocolError(_WHOSE.format("value"))

    @torch.inference_mode()
    def act_rows(
        self,
        obs: Array,
        rows: Rows,
        begins: NDArray[np.bool_],
        action_mask: Array | None = None,
    ) -> PolicyOutput:
        """Samples an action for each row of `obs`; see `RecurrentPolicy`, and `TorchPolicy.act`."""
        before = self._state_of(rows, begins)
        *outputs, state = self._outputs(obs, before)
        *params, value = outputs
        self._keep(rows, state)
        output = self._sample(params, value, action_mask)
        if self.keeps_states:
            kept = {f"policy_state.{i}": s.cpu().numpy().copy() for i, s in enumerate(before)}
            output.extras.update(kept)
        return output

    @torch.inference_mode()
    def value_rows(self, obs: Array, rows: Rows, begins: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Returns the module's value (B,) for each row of `obs`; see `RecurrentPolicy`."""
        value: Tensor = self._outputs(obs, self._state_of(rows, begins))[-2]
        result: NDArray[np.float32] = value.reshape(-1).cpu().numpy()
        return result

    @torch.inference_mode()
    def states(self, rows: Rows, begins: NDArray[np.bool_]) -> tuple[Array, ...]:
        """Returns copies (B, ...) of the states as NumPy arrays; see `RecurrentPolicy`."""
        return tuple(s.cpu().numpy() for s in self._state_of(rows, begins))

    def take_over(self, states: tuple[Array, ...]) -> None:
        """Continues from these states (N, ...) of all environments, which other code has computed.

        Raises:
          SpecError: They do not fit the module.
        """
        given = tuple(as_tensor(np.array(each)).to(self._device) for each in states)
        initial = initial_state(self.module)
        sizes = {len(each) if each.ndim else -1 for each in given}
        if len(sizes) > 1 or _described(given) != [(tuple(s.shape), s.dtype) for s in initial]:
            raise SpecError(
                f"the states are {[(tuple(s.shape), s.dtype) for s in given]}, expected (N, ...) "
                f"of {[(tuple(s.shape), s.dtype) for s in initial]}, as the module's "
                "initial_state() is, with one N for all"
            )
        self._states = given

    def _outputs(self, obs: Array, state: State) -> tuple[Any, ...]:
        """Calls the module: (*action_outputs, value, new_state)."""
        outputs: tuple[Any, ...] = call_module(self.module, as_tensor(obs).to(self._device), state)
        names = output_names(self.head)
        is_tuple = isinstance(outputs, tuple | list)
        if not is_tuple or (names is not None and len(outputs) != len(names) + 2):
            got = len(outputs) if is_tuple else "no tuple of"
            expected = ", ".join([*(names or ["*action_outputs"]), "value", "new_state"])
            raise SpecError(f"the module returned {got} outputs, expected a tuple ({expected})")
        check_module_outputs(outputs[:-1], names, len(obs))
        return outputs

    def _state_of(self, rows: Rows, begins: NDArray[np.bool_]) -> State:
        """The states (B, ...) that belong to the observations of `rows`."""
        initial = initial_state(self.module)
        self._grow(len(begins) if rows is None else int(rows.max(initial=-1)) + 1, initial)
        index = self._index(rows, len(begins))
        state = tuple(s[index] for s in self._states)
        return reset_where(as_tensor(begins).to(self._device), initial, state)

    def _index(self, rows: Rows, size: int) -> Tensor | slice:
        return slice(size) if rows is None else as_tensor(rows).to(self._device)

    def _grow(self, num_envs: int, initial: State) -> None:
        """Makes room for `num_envs` environments."""
        if not self._states:
            self._states = tuple(s.new_empty((0, *s.shape)) for s in initial)
        missing = num_envs - len(self._states[0])
        if missing > 0:
            self._states = tuple(
                torch.cat([old, first.expand(missing, *first.shape)])
                for old, first in zip(self._states, initial, strict=True)
            )

    def _keep(self, rows: Rows, state: State) -> None:
        expected = _described(self._states)
        if _described(state) != expected:
            raise SpecError(
                f"the module returned a state of {[(tuple(s.shape), s.dtype) for s in state]}, "
                f"expected (B, ...) of {expected} as in its initial_state()"
            )
        for kept, new in zip(self._states, state, strict=True):
            kept[self._index(rows, len(new))] = new


def _described(states: State) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Shape and dtype of one environment's part of each state."""
    return [(tuple(each.shape[1:]), each.dtype) for each in states]


def unroll(
    step: Callable[[Tensor, State], tuple[Any, ...]],
    inputs: Tensor,
    state: State,
    *,
    ended: Tensor,
    initial_state: State,
) -> tuple[Any, ...]:
    """Runs `step` over the T rows of a rollout, with initial states where episodes began.

    With unchanged weights it gives the policy's outputs while collecting; it is differentiable.

    Args:
      step: maps (input (B, ...), state) to (*outputs, new_state): a module as
        `RecurrentTorchPolicy` describes it or, which is faster, only its recurrent cell, between an
        encoder and heads that take all T * B rows at once.
      inputs         (T, B, ...)
      state          tuple of (B, ...)   before row 0: RolloutBatch.policy_state
      ended          (T, B) bool         terminated | truncated
      initial_state  tuple of (...)      of one environment, from the module
    Returns:
      *outputs       (T, B, ...) each, where `step` returned (B, ...)
      state          tuple of (B, ...)   after row T - 1, to value last_obs
    Raises:
      SpecError: inputs, ended and state do not agree in T and B.
    """
    if ended.shape != inputs.shape[:2]:
        raise SpecError(
            f"ended has shape {tuple(ended.shape)}, expected {tuple(inputs.shape[:2])} as inputs"
        )
    if len(state) != len(initial_state) or any(len(s) != inputs.shape[1] for s in state):
        raise SpecError(
            f"state has shapes {[tuple(s.shape) for s in state]}, expected {len(initial_state)} "
            f"tensors with {inputs.shape[1]} rows: is it policy_state of the same batch?"
        )
    rows: list[tuple[Tensor, ...]] = []
    for row, row_ended in zip(inputs, ended, strict=True):
        *outputs, state = step(row, state)
        rows.append(tuple(outputs))
        state = reset_where(row_ended, initial_state, state)
    return (*(torch.stack(column) for column in zip(*rows, strict=True)), state)


def initial_state(module: nn.Module) -> State:
    """Returns what the module's `initial_state` method returns, a tuple of (...)."""
    state: State = module.initial_state()  # type: ignore[operator]
    return state


def reset_where(begins: Tensor, initial: State, state: State) -> State:
    """Returns `state` (B, ...) with `initial` (...) in the rows where `begins` (B,) holds."""
    return tuple(
        torch.where(begins.view(-1, *[1] * first.ndim), first, s)
        for first, s in zip(initial, state, strict=True)
    )


_WHOSE = (
    "{0}() of a recurrent policy was called without whose observations these are: call {0}_rows() "
    "with the environments' rows and which of them begin an episode, as rollouts.Collector does"
)
