# SPDX-License-Identifier: Apache-2.0
"""Columns of a replay buffer from the results of a step."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
from tianshou.data import Batch

from .action import Action
from .blocks import BlockWriter, Ended, Leaf, Path, leaves_of
from .vector_env import Step

Array = npt.NDArray[Any]


class StepWriter:
    """Writes steps of environments to a buffer: in blocks, or by `add` where a column is new."""

    def __init__(self, buffer: Any) -> None:
        """Takes a buffer that `BlockWriter.fits`."""
        self._blocks = BlockWriter(buffer)
        self._buffer = buffer
        self._save_next = bool(buffer._save_obs_next)
        self._last_only = bool(buffer._save_only_last_obs)
        self._paths: frozenset[Path] | None = None  # keys that the buffer is known to have

    def load(self) -> None:
        """Begins to use the buffer; until `store`, no other code may use it."""
        self._paths = None
        self._blocks.load()

    def store(self) -> None:
        """Leaves the buffer as `add` would have left it."""
        self._blocks.store()

    def write(self, obs: Array, action: Action, step: Step, done: Array) -> tuple[Array, Ended]:
        """Adds a step of environments, which are all different.

        Args:
          obs: (R, *obs_shape), for which the actions were chosen; must not change afterwards.
          action: `act` and `policy` are used, and copied.
          step: The result of the step.
          done: (R,) bool

        Returns:
          (R,) int, the buffer's index of each transition, and the episodes that ended.
        """
        leaves = self._leaves(obs, action, step, done)
        if leaves is not None:
            paths = frozenset(leaves)
            if paths != self._paths and self._blocks.has_columns(leaves):
                self._paths = paths
            if paths == self._paths:
                return self._blocks.append(step.env_id, leaves)
        return self._add(obs, action, step, done)

    def write_all(self, obs: Array, act: Array, steps: Step) -> tuple[Array, Array]:
        """Adds T steps of different environments; the policy has no entries in the buffer.

        Args:
          obs: (T, R, *obs_shape), for which the actions were chosen.
          act: (T, R, *action_shape)
          steps: The results of the steps, (T, R, ...); env_id is (R,).

        Returns:
          Returns (E,) float64 and lengths (E,) int64 of the episodes that ended, by step and row.
        """
        ids, done = steps.env_id, steps.terminated | steps.truncated
        leaves = self._leaves_of_all(obs, act, steps, done)
        if self._blocks.has_columns(leaves):
            return self._blocks.extend(ids, leaves)
        # the first step makes the columns
        first = Step(
            steps.obs[0], steps.reward[0], steps.terminated[0], steps.truncated[0], ids, {}
        )
        _, ended = self._add(obs[0], Action(act[0], act[0], Batch(), None, None), first, done[0])
        rest = {path: leaf[1:] for path, leaf in leaves.items()}
        if len(obs) == 1:
            return ended.returns, ended.lengths
        returns, lengths = self._blocks.extend(ids, rest)
        return np.append(ended.returns, returns), np.append(ended.lengths, lengths)

    def _leaves_of_all(self, obs: Array, act: Array, steps: Step, done: Array) -> dict[Path, Array]:
        leaves: dict[Path, Array] = {
            ("obs",): obs[:, :, -1] if self._last_only else obs,
            ("act",): act,
            ("rew",): steps.reward,
            ("terminated",): steps.terminated,
            ("truncated",): steps.truncated,
            ("done",): done,
            ("info", "env_id"): np.broadcast_to(steps.env_id, done.shape),
        }
        if self._save_next:
            leaves["obs_next",] = steps.obs[:, :, -1] if self._last_only else steps.obs
        return leaves

    def _leaves(
        self, obs: Array, action: Action, step: Step, done: Array
    ) -> dict[Path, Leaf] | None:
        """Arrays by path in the buffer's storage; None if the policy's entry has other objects."""
        policy = leaves_of("policy", action.policy)
        if policy is None:
            return None
        leaves: dict[Path, Leaf] = {
            ("obs",): obs[:, -1] if self._last_only else obs,
            ("act",): action.act.copy(),
            ("rew",): step.reward,
            ("terminated",): step.terminated,
            ("truncated",): step.truncated,
            ("done",): done,
            ("info", "env_id"): step.env_id,
        }
        if self._save_next:
            leaves["obs_next",] = step.obs[:, -1] if self._last_only else step.obs
        for name, values in numbers(step.info).items():
            leaves["info", name] = values
        for path, leaf in policy.items():
            # recurrent policies change their states in place
            leaves[path] = copy.copy(leaf) if isinstance(leaf, np.ndarray) else leaf.clone()
        return leaves

    def _add(self, obs: Array, action: Action, step: Step, done: Array) -> tuple[Array, Ended]:
        """Fills the columns through Tianshou's `add`, which makes them."""
        self._blocks.store()
        info = {name: wide(values) for name, values in numbers(step.info).items()}
        batch = Batch(
            obs=obs,
            act=action.act,
            policy=action.policy,
            obs_next=step.obs,
            rew=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            done=done,
            info=Batch(env_id=step.env_id, **info),
        )
        index, returns, lengths, starts = self._buffer.add(batch, buffer_ids=step.env_id)
        self.load()
        rows = np.flatnonzero(done)
        return index, Ended(rows, returns[rows], lengths[rows], starts[rows])


def numbers(info: dict[str, Array]) -> dict[str, Array]:
    """The columns without Python objects, such as the message of an environment that failed."""
    return {
        name: values
        for name, values in info.items()
        if values.dtype != object and not name.startswith("_")
    }


def wide(values: Array) -> Array:
    """Converts to the dtype that an array of Python numbers has."""
    return values.astype({"i": np.int64, "u": np.int64, "f": np.float64}.get(values.dtype.kind))
