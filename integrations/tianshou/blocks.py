# SPDX-License-Identifier: Apache-2.0
"""`BlockWriter`: puts many transitions into a VectorReplayBuffer at once, as `add` would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer, ReplayBufferManager

Array = npt.NDArray[Any]
Path = tuple[str, ...]
Leaf = Array | torch.Tensor

# most transitions of a block; more would not fit the processor's cache
_MAX_ROWS = 8192
_MAX_BYTES = 1 << 20
_REW, _DONE = ("rew",), ("done",)


class Ended(NamedTuple):
    """The episodes that ended in a step, in row order: E of them.

    Attributes:
      rows      (E,) int64    which rows of the step
      returns   (E,) float64
      lengths   (E,) int64
      starts    (E,) int64    buffer index of their first transition
    """

    rows: Array
    returns: Array
    lengths: Array
    starts: Array


class BlockWriter:
    """Gathers steps of some environments and writes them into the columns of a buffer.

    Between `load` and `store` the counters of the sub-buffers are kept in arrays here, so that no
    other code may add to the buffer or read it.
    """

    def __init__(self, buffer: Any) -> None:
        """Takes a buffer that `fits`."""
        self.buffer = buffer
        self._sizes = np.array([one.maxsize for one in buffer.buffers])
        self._ids = np.arange(len(self._sizes))
        self._prioritized = isinstance(buffer, PrioritizedReplayBuffer)
        self._columns: dict[Path, list[Leaf]] = {}
        self._index: list[Array] = []
        self._rows = self._max_rows = 0

    @staticmethod
    def fits(buffer: Any) -> bool:
        """True where `add` is Tianshou's own for vectors of plain or prioritised buffers."""
        kind = type(buffer)
        if not isinstance(buffer, ReplayBufferManager):
            return False
        if kind.add is not ReplayBufferManager.add and (
            kind.add is not PrioritizedReplayBuffer.add
            or kind.init_weight is not PrioritizedReplayBuffer.init_weight
        ):
            return False
        own = ReplayBuffer._update_state_pre_add
        return all(type(one)._update_state_pre_add is own for one in buffer.buffers)

    def load(self) -> None:
        """Reads the counters of the sub-buffers."""
        states = [one.__dict__ for one in self.buffer.buffers]

        def read(name: str, dtype: type) -> Array:
            return np.array([state[name] for state in states], dtype)

        self._insertion = read("_insertion_idx", int)
        self._filled = read("_size", int)
        self._returns = read("_ep_return", float)
        self._lengths = read("_ep_len", int)
        self._starts = read("_ep_start_idx", int)
        self._added = np.zeros(len(states), int)

    def store(self) -> None:
        """Writes the gathered steps, and writes the counters back to the sub-buffers."""
        self.flush()
        self._filled = np.minimum(self._filled + self._added, self._sizes)
        touched = np.flatnonzero(self._added)
        last = (self._insertion - 1) % self._sizes
        rows = zip(
            touched.tolist(),
            self._insertion[touched].tolist(),
            self._filled[touched].tolist(),
            self._returns[touched].tolist(),
            self._lengths[touched].tolist(),
            self._starts[touched].tolist(),
            last[touched].tolist(),
            strict=True,
        )
        buffers = self.buffer.buffers
        for i, insertion, filled, episode_return, length, start, at in rows:
            state = buffers[i].__dict__
            state["_insertion_idx"], state["_size"] = insertion, filled
            state["_ep_return"], state["_ep_len"] = episode_return, length
            state["_ep_start_idx"] = start
            state["last_index"][0] = at
        self.buffer.last_index[touched] = last[touched] + self.buffer._offset[touched]
        self.buffer._lengths[touched] = self._filled[touched]
        self._added[:] = 0

    def has_columns(self, leaves: Mapping[Path, Leaf]) -> bool:
        """True when the buffer's storage has a place for each of these columns."""
        stored = dict(_leaves(self.buffer._meta))
        known = {path for path in stored if path[0] in ReplayBuffer._reserved_keys}
        return known == set(leaves)

    def append(self, ids: Array, leaves: Mapping[Path, Leaf]) -> tuple[Array, Ended]:
        """Takes one step of the environments `ids`, which are all different.

        Args:
          ids: (R,) int, the sub-buffers.
          leaves: (R, ...) arrays by path in the storage, such as ("obs",), including ("rew",) and
            ("done",); they are kept until the next flush and must not change.

        Returns:
          (R,) int, the buffer's index of each transition, and the episodes that ended.
        """
        if self._rows and (
            self._rows + len(ids) > self._max_rows
            # no transition may overwrite another one of its block
            or len(self._index) == self._sizes.min()
            or leaves.keys() != self._columns.keys()
        ):
            self.flush()
        if not self._rows:
            self._begin_block(leaves)
        # views of all rows cost less than gathering; the rows may have arrived in another order
        is_everything = len(ids) == len(self._sizes) and bool((ids == self._ids).all())
        rows: Any = slice(None) if is_everything else ids
        offset = self.buffer._offset
        index = self._insertion[rows] + offset[rows]
        following = self._insertion[rows] + 1
        following[following == self._sizes[rows]] = 0
        self._insertion[rows] = following
        self._added[rows] += 1
        self._returns[rows] += leaves[_REW]
        self._lengths[rows] += 1
        ended = self._end_episodes(ids, np.flatnonzero(leaves[_DONE]))

        for path, leaf in leaves.items():
            self._columns[path].append(leaf)
        self._index.append(index)
        self._rows += len(ids)
        return index, ended

    def extend(self, ids: Array, leaves: Mapping[Path, Leaf]) -> tuple[Array, Array]:
        """Takes T successive steps of the environments `ids`, which are all different.

        Args:
          ids: (R,) int, the sub-buffers.
          leaves: (T, R, ...) arrays as in `append`.

        Returns:
          Returns (E,) float64 and lengths (E,) int64 of the episodes that ended, by step and row.
        """
        self.flush()
        done, num_steps = leaves[_DONE], len(leaves[_DONE])
        returns, lengths = self._account(ids, np.asarray(leaves[_REW]), np.asarray(done))
        # steps that later ones of the same block would overwrite are left out
        first = max(0, num_steps - int(self._sizes[ids].max()))
        steps = np.arange(first, num_steps)[:, None]
        index = (self._insertion[ids] + steps) % self._sizes[ids] + self.buffer._offset[ids]
        self._insertion[ids] = (self._insertion[ids] + num_steps) % self._sizes[ids]
        self._added[ids] += num_steps
        self._columns = {
            path: [leaf[first:].reshape(-1, *leaf.shape[2:])] for path, leaf in leaves.items()
        }
        self._index, self._rows = [index.reshape(-1)], index.size
        self.flush()
        return returns, lengths

    def _account(self, ids: Array, reward: Array, done: Array) -> tuple[Array, Array]:
        """Counts T steps of each environment; gives returns and lengths of ended episodes."""
        num_steps = len(done)
        ends = done.T.ravel()
        # each environment's steps follow each other, cut where an episode or the block ends
        cuts = ends.copy()
        cuts[num_steps - 1 :: num_steps] = True
        last = np.flatnonzero(cuts)
        begins = np.concatenate([[0], last[:-1] + 1])
        returns = np.add.reduceat(reward.T.ravel().astype(float), begins)
        lengths = last - begins + 1
        env, is_first = last // num_steps, begins % num_steps == 0
        returns[is_first] += self._returns[ids]
        lengths[is_first] += self._lengths[ids]
        # sums of the episodes that go on after the block; those of the others start again at 0
        is_over = ends[last]
        is_last = last % num_steps == num_steps - 1
        goes_on = is_last & ~is_over
        self._returns[ids] = self._lengths[ids] = 0
        self._returns[ids[env[goes_on]]] = returns[goes_on]
        self._lengths[ids[env[goes_on]]] = lengths[goes_on]
        new = goes_on & ~is_first
        where = ids[env[new]]
        self._starts[where] = (self._insertion[where] + begins[new] % num_steps) % self._sizes[
            where
        ]
        over = ids[env[is_last & is_over]]
        self._starts[over] = (self._insertion[over] + num_steps) % self._sizes[over]
        order = np.lexsort((env[is_over], last[is_over] % num_steps))
        return returns[is_over][order], lengths[is_over][order]

    def _begin_block(self, leaves: Mapping[Path, Leaf]) -> None:
        self._columns = {path: [] for path in leaves}
        row_bytes = sum(leaf.nbytes for leaf in leaves.values()) // len(leaves[_REW])
        self._max_rows = min(_MAX_ROWS, _MAX_BYTES // max(1, row_bytes))

    def _end_episodes(self, ids: Array, rows: Array) -> Ended:
        if not len(rows):
            return _NONE_ENDED
        envs = ids[rows]
        offset = self.buffer._offset[envs]
        ended = Ended(rows, self._returns[envs], self._lengths[envs], self._starts[envs] + offset)
        self._returns[envs] = 0.0
        self._lengths[envs] = 0
        self._starts[envs] = self._insertion[envs]
        return ended

    def flush(self) -> None:
        """Writes the gathered steps into the storage."""
        if not self._rows:
            return
        meta = self.buffer._meta
        index = _join(self._index)
        for path, stored in _leaves(meta):
            column = self._columns.get(path)
            if column is not None:
                stored[index] = _join(column)
            else:
                # a hook added this column in earlier episodes: it stays empty here
                stored[index] = None if _is_object(stored) else 0
        if self._prioritized:
            self.buffer.init_weight(index)
        self._columns, self._index, self._rows = {}, [], 0


_NONE_ENDED = Ended(*(np.zeros(0, dtype) for dtype in (int, float, int, int)))


def _leaves(batch: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in batch.__dict__.items():
        if isinstance(value, Batch):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def leaves_of(name: str, batch: Any) -> dict[Path, Leaf] | None:
    """The arrays of a Batch by path below `name`; None where it holds anything else."""
    found = dict(_leaves(batch, (name,)))
    plain = all(
        isinstance(leaf, torch.Tensor) or (isinstance(leaf, np.ndarray) and leaf.dtype != object)
        for leaf in found.values()
    )
    return found if plain else None


def _is_object(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype == np.object_


def _join(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if isinstance(parts[0], torch.Tensor) else np.concatenate(parts)
