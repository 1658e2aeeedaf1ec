# SPDX-License-Identifier: Apache-2.0
"""Calls plain and recurrent policies through one interface.

A recurrent policy also gets the indices of the environments of its observations. On the host, torch
values the last observation of a truncated episode here (`final_value`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import StepBatch
from rollouts.collecting.masks import NAME, ActionMasks
from rollouts.policies.output_checks import check_output, check_policy, check_value

if TYPE_CHECKING:
    from rollouts.policy import Policy, PolicyOutput, RecurrentPolicy
    from rollouts.recurrent import RecurrentTorchPolicy

Array = NDArray[Any]
Rows = NDArray[np.intp] | None


class PolicyCalls(Protocol):
    """`rows` (B,) are the environments' indices in the pool; None means all in order."""

    def reset(self) -> None:
        """Marks every environment's next observation as the first of an episode."""
        ...

    def act(self, obs: Array, rows: Rows, at: int | NDArray[np.intp]) -> PolicyOutput:
        """Acts on `obs` (B, ...), rows `at` of the rollout; rows from T on are of the next one."""
        ...

    def see_ends(self, step: StepBatch, rows: Rows) -> None:
        """Records the episodes that `step` ended."""
        ...

    def final_value(self, obs: Array, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Values final observations; called before `see_ends` for the same step."""
        ...

    def last_value(
        self, obs: Array, known: Array | None, is_known: NDArray[np.bool_] | None
    ) -> NDArray[np.float32]:
        """Values (N,) the observations after a rollout; `known` has values that `act` gave."""
        ...

    def take_states(self) -> tuple[Array, ...]:
        """Returns the states (N, ...) before row 0 of the rollout, and begins the next rollout."""
        ...

    def go_on(self, states: tuple[Array, ...], begins: NDArray[np.bool_]) -> None:
        """Takes over from native code: states (N, ...) and whether environments begin episodes."""
        ...


def make_policy_calls(
    policy: Policy, *, num_envs: int, rollout_length: int, masks: ActionMasks | None = None
) -> PolicyCalls:
    """Chooses the class by the methods of `rollouts.policy.RecurrentPolicy`."""
    check_policy(policy)
    if hasattr(policy, "act_rows"):
        return _RecurrentCalls(cast("RecurrentPolicy", policy), num_envs, rollout_length, masks)
    return _PlainCalls(policy, masks)


def _masked(act: Callable[..., PolicyOutput], masks: ActionMasks | None, rows: Rows) -> Any:
    """Returns `act` with the masks of `rows` as a further argument, or as it is without masks.

    The masks come back in the output's extras.
    """
    if masks is None:
        return act
    mask = masks.now.copy() if rows is None else masks.now[rows]

    def masked(*given: Any) -> PolicyOutput:
        output = act(*given, action_mask=mask)
        return replace(output, extras={**output.extras, NAME: mask})

    return masked


class _PlainCalls:
    def __init__(self, policy: Policy, masks: ActionMasks | None) -> None:
        self._policy, self._masks = policy, masks

    def reset(self) -> None:
        """Does nothing: the policy has no memory."""

    def act(self, obs: Array, rows: Rows, at: int | NDArray[np.intp]) -> PolicyOutput:
        output: PolicyOutput = _masked(self._policy.act, self._masks, rows)(obs)
        check_output(output, len(obs))
        return output

    def see_ends(self, step: StepBatch, rows: Rows) -> None:
        """Does nothing: the policy has no memory."""

    def final_value(self, obs: Array, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        return check_value(self._policy.value(obs), len(obs))

    def last_value(
        self, obs: Array, known: Array | None, is_known: NDArray[np.bool_] | None
    ) -> NDArray[np.float32]:
        return check_value(self._policy.value(obs), len(obs))

    def take_states(self) -> tuple[Array, ...]:
        return ()

    def go_on(self, states: tuple[Array, ...], begins: NDArray[np.bool_]) -> None:
        """Does nothing: the policy has no memory."""


class _RecurrentCalls:
    # an asynchronous pool's environment may be ahead in the next rollout, or the one after it
    _ROLLOUTS = 3

    def __init__(
        self,
        policy: RecurrentPolicy,
        num_envs: int,
        rollout_length: int,
        masks: ActionMasks | None,
    ) -> None:
        self._policy, self._masks = policy, masks
        self._num_envs = num_envs
        self._rollout_length = rollout_length
        self.reset()

    def reset(self) -> None:
        self._begins = np.ones(self._num_envs, np.bool_)
        self._states: tuple[Array, ...] = ()

    def act(self, obs: Array, rows: Rows, at: int | NDArray[np.intp]) -> PolicyOutput:
        begins = self._begins if rows is None else self._begins[rows]
        self._keep_states(rows, begins, np.broadcast_to(at, begins.shape))
        act = _masked(self._policy.act_rows, self._masks, rows)
        output: PolicyOutput = act(obs, rows, begins)
        check_output(output, len(obs))
        return output

    def see_ends(self, step: StepBatch, rows: Rows) -> None:
        self._begins[slice(None) if rows is None else rows] = step.terminated | step.truncated

    def final_value(self, obs: Array, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        return self._value(obs, rows, np.zeros(len(rows), np.bool_))

    def last_value(
        self, obs: Array, known: Array | None, is_known: NDArray[np.bool_] | None
    ) -> NDArray[np.float32]:
        if known is None or is_known is None:
            return self._value(obs, None, self._begins)
        # where the policy has already acted on an observation, its state belongs to a later one
        value = np.array(known, np.float32)
        rows = np.flatnonzero(~is_known)
        if rows.size:
            value[rows] = self._value(obs[rows], rows, self._begins[rows])
        return value

    def take_states(self) -> tuple[Array, ...]:
        taken = tuple(kept[0].copy() for kept in self._states)
        for kept in self._states:
            kept[:-1] = kept[1:]
        return taken

    def go_on(self, states: tuple[Array, ...], begins: NDArray[np.bool_]) -> None:
        self._begins = begins.copy()
        # native code computes only this class of recurrent policies
        cast("RecurrentTorchPolicy", self._policy).take_over(states)

    def _value(self, obs: Array, rows: Rows, begins: NDArray[np.bool_]) -> NDArray[np.float32]:
        return check_value(self._policy.value_rows(obs, rows, begins), len(obs))

    def _keep_states(self, rows: Rows, begins: NDArray[np.bool_], at: NDArray[np.intp]) -> None:
        """Keeps the states of rows at the start of a rollout."""
        opens = at % self._rollout_length == 0
        if not opens.any():
            return
        chosen = np.flatnonzero(opens) if rows is None else rows[opens]
        states = self._policy.states(chosen, begins[opens])
        if not self._states:
            shape = (self._ROLLOUTS, self._num_envs)
            self._states = tuple(np.zeros((*shape, *s.shape[1:]), s.dtype) for s in states)
        for kept, state in zip(self._states, states, strict=True):
            kept[at[opens] // self._rollout_length, chosen] = state
