# SPDX-License-Identifier: Apache-2.0
"""The columns of a buffer's rows, and conversion of rollouts and steps to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch
from rollouts.checks import whole_number
from rollouts.errors import DTypeError, SpecError
from rollouts.replay.arguments import as_example
from rollouts.specs import EnvSpec

Array = NDArray[Any]

EXTRAS = "extras."
STATE = "policy_state."


def stack_num(spec: EnvSpec) -> int:
    """Frames that an environment stacks along axis 0 of its observations; 1: it does not stack."""
    return int(spec.options.get("stack_num", 1))


class Columns:
    """The columns of a row. Arrays are checked here, and converted to the columns' dtypes."""

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        *,
        stack_num: int,
        policy_state: Sequence[Array],
        extras: Mapping[str, Any],
    ) -> None:
        """Raises SpecError for spaces without a single shape and dtype, or without the stacked
        frames."""
        obs_shape, self.obs_dtype = _shape_dtype("single_observation_space", observation_space)
        action_shape, action_dtype = _shape_dtype("single_action_space", action_space)
        self.obs_shape = obs_shape
        self.stack_num = whole_number("stack_num", stack_num, 1, 64)
        if stack_num > 1 and obs_shape[:1] != (stack_num,):
            raise SpecError(
                f"stack_num is {stack_num}, but observations have shape {obs_shape}: expected the "
                "frames of a stack along axis 0, or stack_num=1 for observations without frames"
            )
        frame = obs_shape[1:] if stack_num > 1 else obs_shape
        steps = {
            "action": (action_dtype, action_shape),
            "reward": (np.dtype(np.float32), ()),
            "terminated": (np.dtype(np.bool_), ()),
            "truncated": (np.dtype(np.bool_), ()),
            "policy_version": (np.dtype(np.int64), ()),
        }
        if not isinstance(extras, Mapping):
            raise SpecError(f"extras is {extras!r}, expected a dict of names and examples")
        if not isinstance(policy_state, list | tuple):
            raise SpecError(f"policy_state is {policy_state!r}, expected a tuple of examples")
        self.extras = tuple(extras)
        self.num_states = len(policy_state)
        for name, example in extras.items():
            array = as_example(f"extras[{name!r}]", example)
            steps[f"{EXTRAS}{name}"] = array.dtype, array.shape
        for index, example in enumerate(policy_state):
            array = as_example(f"policy_state[{index}]", example)
            steps[f"{STATE}{index}"] = array.dtype, array.shape
        # all but the observation: name -> dtype and shape
        self.steps = steps
        # in the order of the columns of a row
        self.native = [
            ("obs", self.obs_dtype, frame, stack_num, "repeat"),
            *((name, dtype, shape, 1, "zero") for name, (dtype, shape) in steps.items()),
        ]

    def describe(self) -> list[Any]:
        """Returns, for JSON, what must be equal in two buffers for one to read the other's
        state."""
        return [[n, d.str, list(shape), stack] for n, d, shape, stack, _ in self.native]

    def of_batch(self, batch: RolloutBatch) -> tuple[Any, ...]:
        """Returns a rollout's arrays in the order of the columns; SpecError if one is missing."""
        extras = [self._extra_of(batch, name) for name in self.extras]
        states = [self._extra_of(batch, f"{STATE}{index}") for index in range(self.num_states)]
        return (*(getattr(batch, name) for name in _OF_BATCH), *extras, *states)

    def of_step(
        self, extras: Mapping[str, Any], policy_state: Sequence[Any], values: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Returns `values` of one step, then its extras and policy states, in the columns' order.

        Raises:
          SpecError: An extra or a state is missing. DTypeError: `extras` is no mapping or
            `policy_state` no sequence.
        """
        if (
            not (self.extras or self.num_states)
            and type(policy_state) is tuple
            and not policy_state
        ):
            return values
        if not isinstance(policy_state, Sequence) or not isinstance(extras, Mapping):
            raise DTypeError(
                f"policy_state is {policy_state!r} and extras {extras!r}, expected a sequence of "
                "arrays and a dict of them"
            )
        if len(policy_state) != self.num_states:
            raise SpecError(
                f"policy_state has {len(policy_state)} arrays, expected {self.num_states} as in "
                "the buffer's own policy_state"
            )
        missing = [name for name in self.extras if name not in extras]
        if missing:
            raise SpecError(f"extras has no {missing[0]!r}, which the buffer was made with")
        return (*values, *(extras[name] for name in self.extras), *policy_state)

    def convert(
        self, name: str, value: Any, leading: tuple[int, ...], dtype: Any, shape: tuple[int, ...]
    ) -> Array:
        """Returns a value as the array (*leading, *shape) that the core reads.

        Raises:
          SpecError: another shape, or a dtype that cannot be converted.
        """
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise SpecError(f"{name} is no array: {error}") from None
        if array.shape != (*leading, *shape):
            raise SpecError(f"{name} has shape {array.shape}, expected {(*leading, *shape)}")
        if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
            raise SpecError(f"{name} has dtype {array.dtype}, expected {dtype}")
        return np.require(array, dtype, ("C", "A"))

    def _extra_of(self, batch: RolloutBatch, name: str) -> Array:
        if name in batch.extras:
            return batch.extras[name]
        if name in ("log_prob", "value"):
            return np.asarray(getattr(batch, name))
        raise SpecError(
            f"the batch has no extras[{name!r}], which the buffer was made with; it has "
            f"{sorted(batch.extras)}. States of a RecurrentTorchPolicy come with keep_states=True"
        )


_OF_BATCH = ("obs", "action", "reward", "terminated", "truncated", "policy_version")


def _shape_dtype(name: str, space: gymnasium.Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    if not isinstance(space, gymnasium.Space):
        raise DTypeError(f"{name} is {space!r}, expected a gymnasium.Space")
    if space.shape is None or space.dtype is None:
        raise SpecError(
            f"{name} is {space}, expected a space of arrays of one shape and dtype, such as Box, "
            "Discrete or MultiDiscrete: flatten others (gymnasium.spaces.flatten_space)"
        )
    return tuple(space.shape), np.dtype(space.dtype)
