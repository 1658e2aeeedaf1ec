# SPDX-License-Identifier: Apache-2.0
"""A segment's steps by environment: the ends of episodes, and arrays that hold chunks in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Ends(NamedTuple):
    """Ends of episodes, (E,) each: the arena rows t and the environments `row`."""

    t: Array
    row: Array
    terminated: Array
    truncated: Array
    final_obs: Array

    @classmethod
    def joined(cls, parts: Sequence[Ends], obs: Array) -> Ends:
        """Joins all parts in their order; without parts, the result is empty, with rows like `obs`
        (N, ...)."""
        if not parts:
            none, never = np.zeros(0, np.int64), np.zeros(0, np.bool_)
            return cls(none, none, never, never, obs[:0])
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))


class Chunks(NamedTuple):
    """Steps begin..end of the environments `row`, all (C,).

    Attributes:
      is_first: Whether it is the environment's first: its episode may have begun before `first`.
    """

    row: Array
    begin: Array
    end: Array
    is_first: Array


def done_chunks(ends: Ends, first: int) -> Chunks:
    """The steps from arena row `first` on that lead to each of the ends, in their order."""
    order = np.lexsort((ends.t, ends.row))
    row, end = ends.row[order], ends.t[order] + 1
    is_first, begin = np.ones(len(row), np.bool_), np.full(len(row), first)
    is_first[1:] = row[1:] != row[:-1]
    begin[1:] = np.where(is_first[1:], first, end[:-1])
    back = np.argsort(order)
    return Chunks(ends.row, begin[back], ends.t + 1, is_first[back])


def going_chunks(ends: Ends, first: int, last: int, num_envs: int) -> Chunks:
    """The steps up to arena row `last` that no end follows, in the order of environments."""
    begin = np.full(num_envs, first)
    is_first = np.ones(num_envs, np.bool_)
    np.maximum.at(begin, ends.row, ends.t + 1)
    is_first[ends.row] = False
    row = np.flatnonzero(begin < last)
    return Chunks(row, begin[row], np.full(len(row), last), is_first[row])


class ByEnv:
    """Copies of a segment's arrays by environment: the rows of a chunk follow each other.

    In `obs` each final observation has its own row, between the observation before it and the
    first one of the next episode.
    """

    def __init__(
        self,
        columns: Mapping[str, Array],
        obs: Array,
        infos: Mapping[str, Array],
        num_steps: int,
        ends: Ends,
    ) -> None:
        """Copies the first `num_steps` rows of arrays (T, N, ...), of `obs` one more."""
        self._num_steps = num_steps
        self._columns = {
            name: np.ascontiguousarray(array[:num_steps].swapaxes(0, 1)).reshape(
                -1, *array.shape[2:]
            )
            for name, array in columns.items()
        }
        num_envs = obs.shape[1]
        # each end of an episode before row t moves the environment's later observations down by one
        shift = np.zeros((num_steps + 1, num_envs), np.int64)
        shift[ends.t + 1, ends.row] = 1
        shift = shift.cumsum(axis=0)
        per_env = num_steps + 1 + shift[-1]
        at = np.cumsum(per_env) - per_env + np.arange(num_steps + 1)[:, None] + shift
        self._obs = np.empty((int(per_env.sum()), *obs.shape[2:]), obs.dtype)
        self._obs[at] = obs[: num_steps + 1]
        self._obs[at[ends.t + 1, ends.row] - 1] = ends.final_obs
        self._at = at.tolist()
        self._infos = {name: array[: num_steps + 1] for name, array in infos.items()}

    def obs_of(self, row: int, begin: int, count: int) -> Array:
        """Observations (count, ...) from arena row `begin` on; the last may be a final one."""
        first = self._at[begin][row]
        return self._obs[first : first + count]

    def columns_of(self, row: int, begin: int, end: int) -> dict[str, Array]:
        """Arrays (end - begin, ...) of an environment's steps."""
        first = row * self._num_steps
        rows = slice(first + begin, first + end)
        return {name: array[rows] for name, array in self._columns.items()}

    def infos_of(self, row: int, begin: int, count: int) -> list[dict[str, Any]]:
        """A dict for each observation of `obs_of`."""
        names = list(self._infos)
        values = (array[begin : begin + count, row] for array in self._infos.values())
        return [dict(zip(names, each, strict=True)) for each in zip(*values, strict=True)]
