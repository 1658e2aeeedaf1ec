# SPDX-License-Identifier: Apache-2.0
"""The columns of a buffer's rows, and rollouts and steps as arrays of these columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch
from rollouts.errors import SpecError
from rollouts.specs import EnvSpec

Array = NDArray[Any]

EXTRAS = "extras."
STATE = "policy_state."


def stack_num(spec: EnvSpec) -> int:
    """Frames that an environment stacks along axis 0 of its observations; 1: it does not."""
    return int(spec.options.get("stack_num", 1))


class Rows(NamedTuple):
    """Rows to append: columns and masks (T, B, ...), final observations (K, *obs_shape)."""

    columns: dict[str, Array]
    valid: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    final_obs: Array | None


class Columns:
    """What a row holds. All arrays are checked here, and converted to the columns' dtypes."""

    def __init__(
        self,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        *,
        stack_num: int,
        policy_state: Sequence[Array],
        extras: Mapping[str, Any],
    ) -> None:
        """Raises SpecError for spaces without one shape and dtype, or a stack that is not there."""
        obs_shape, self.obs_dtype = _shape_dtype("single_observation_space", observation_space)
        action_shape, action_dtype = _shape_dtype("single_action_space", action_space)
        self.obs_shape = obs_shape
        self.stack_num = stack_num
        if stack_num < 1 or (stack_num > 1 and obs_shape[:1] != (stack_num,)):
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
        self.extras = tuple(extras)
        self.num_states = len(policy_state)
        for name, example in extras.items():
            steps[EXTRAS + name] = np.asarray(example).dtype, np.shape(example)
        for index, example in enumerate(policy_state):
            steps[f"{STATE}{index}"] = np.asarray(example).dtype, np.shape(example)
        # all but the observation: name -> dtype and shape
        self.steps = steps
        self.native = [
            ("obs", self.obs_dtype, frame, stack_num, "repeat"),
            *((name, dtype, shape, 1, "zero") for name, (dtype, shape) in steps.items()),
        ]

    def describe(self) -> list[Any]:
        """Returns what two buffers must share to read each other's states, for JSON."""
        return [[n, d.str, list(shape), stack] for n, d, shape, stack, _ in self.native]

    def from_batch(self, batch: RolloutBatch) -> Rows:
        """Returns a rollout as rows.

        Raises:
          SpecError: an array is missing or does not fit its column.
        """
        ended = batch.terminated | batch.truncated
        if ended.any() and batch.final_obs is None:
            raise SpecError(
                f"the batch has no final_obs, but {int(ended.sum())} episodes ended in it: collect "
                "with Collector(..., keep_final_obs=True)"
            )
        arrays: dict[str, Array] = {name: getattr(batch, name) for name in _OF_BATCH}
        for name in self.extras:
            arrays[EXTRAS + name] = self._extra_of(batch, name)
        for index in range(self.num_states):
            arrays[f"{STATE}{index}"] = self._extra_of(batch, f"{STATE}{index}")
        columns = self._converted(arrays, batch.reward.shape)
        return Rows(columns, np.ones(ended.shape, np.bool_), ended, self._final(batch, ended))

    def from_step(
        self,
        obs: Array,
        step: Mapping[str, Any],
        *,
        extras: Mapping[str, Array],
        policy_state: Sequence[Array],
    ) -> dict[str, Array]:
        """Returns one step of B environments as columns (1, B, ...); errors as `from_batch`."""
        obs = np.asarray(obs)
        rows = obs.shape[0] if obs.ndim else 0
        arrays = {"obs": obs, **step}
        if len(policy_state) != self.num_states:
            raise SpecError(
                f"policy_state has {len(policy_state)} arrays, expected {self.num_states} as in "
                "the buffer's own policy_state"
            )
        for name in self.extras:
            if name not in extras:
                raise SpecError(f"extras has no {name!r}, which the buffer was made with")
            arrays[EXTRAS + name] = extras[name]
        arrays |= {f"{STATE}{i}": state for i, state in enumerate(policy_state)}
        version = np.broadcast_to(np.asarray(arrays["policy_version"], np.int64), (rows,))
        arrays["policy_version"] = version
        arrays = {name: np.asarray(array)[None] for name, array in arrays.items()}
        return self._converted(arrays, (1, rows))

    def final_columns(self, final_obs: Array | None) -> dict[str, Array] | None:
        """Returns final observations as the store takes them."""
        return None if final_obs is None else {"obs": final_obs}

    def as_obs(self, name: str, obs: Any, rows: int) -> Array:
        """Returns observations (rows, *obs_shape) in the column's dtype, contiguous."""
        return self._convert(name, np.asarray(obs), (rows,), self.obs_dtype, self.obs_shape)

    def _final(self, batch: RolloutBatch, ended: NDArray[np.bool_]) -> Array | None:
        if batch.final_obs is None or not ended.any():
            return None
        return self.as_obs("final_obs", batch.final_obs, int(ended.sum()))

    def _extra_of(self, batch: RolloutBatch, name: str) -> Array:
        if name in batch.extras:
            return batch.extras[name]
        if name in ("log_prob", "value"):
            return np.asarray(getattr(batch, name))
        raise SpecError(
            f"the batch has no extras[{name!r}], which the buffer was made with; it has "
            f"{sorted(batch.extras)}. States of a RecurrentTorchPolicy come with keep_states=True"
        )

    def _converted(self, arrays: Mapping[str, Array], leading: tuple[int, ...]) -> dict[str, Array]:
        obs = self._convert("obs", arrays["obs"], leading, self.obs_dtype, self.obs_shape)
        steps = {
            name: self._convert(name, arrays[name], leading, dtype, shape)
            for name, (dtype, shape) in self.steps.items()
        }
        return {"obs": obs, **steps}

    def _convert(
        self, name: str, array: Array, leading: tuple[int, ...], dtype: Any, shape: tuple[int, ...]
    ) -> Array:
        if array.shape != (*leading, *shape):
            raise SpecError(f"{name} has shape {array.shape}, expected {(*leading, *shape)}")
        if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
            raise SpecError(f"{name} has dtype {array.dtype}, expected {dtype}")
        return np.ascontiguousarray(array, dtype)


_OF_BATCH = ("obs", "action", "reward", "terminated", "truncated", "policy_version")


def _shape_dtype(name: str, space: gymnasium.Space[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    if space.shape is None or space.dtype is None:
        raise SpecError(
            f"{name} is {space}, expected a space of arrays of one shape and dtype, such as Box, "
            "Discrete or MultiDiscrete: flatten others (gymnasium.spaces.flatten_space)"
        )
    return tuple(space.shape), np.dtype(space.dtype)
