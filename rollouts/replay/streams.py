# SPDX-License-Identifier: Apache-2.0
"""The open episodes of all streams: turns appended rows into items for every table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.replay.config import ItemKind
from rollouts.replay.items import Ints, Mask, Segments, make_items

Array = NDArray[Any]

_MOST_FOUND = 256

# of the items that begin at each of a stream's last rows (N, history_rows), once any was given
_PRIORITY = "start_priority"

# items (stream, start, length) of one table, in the order of time
Made = tuple[Ints, Ints, Ints]


class Streams:
    """One stream per env_id, made at first sight; what is open in each. The caller locks.

    Arrays are by stream (N,); `next_start` is (tables, N).
    """

    def __init__(
        self,
        store: _native.ReplayStore,
        kinds: Sequence[ItemKind],
        obs: tuple[Any, Any],
        history_rows: int,
    ) -> None:
        """Begins without streams.

        Args:
          store: Of the rows.
          kinds: Of the tables' items.
          obs: Shape and dtype of an observation.
          history_rows: Behind a stream's newest row, where items may begin.
        """
        self._store = store
        self._kinds = tuple(kinds)
        self._history_rows = history_rows
        self.env_id: Ints = np.zeros(0, np.int64)
        self._order: Ints = np.zeros(0, np.int64)  # streams by env_id
        self._found: dict[bytes, Ints] = {}  # by the bytes of env_id: what `find` found
        self._arrays: dict[str, Array] = {
            "is_open": np.zeros(0, np.bool_),
            "begin": np.zeros(0, np.int64),
            "end": np.zeros(0, np.int64),  # last row
            "awaits_reset": np.zeros(0, np.bool_),  # the next step only resets the environment
            "is_cut": np.zeros(0, np.bool_),  # the next row begins an episode
            "is_known": np.zeros(0, np.bool_),  # whether next_obs is the env's next observation
            "next_obs": np.zeros((0, *obs[0]), obs[1]),
            "next_start": np.zeros((0, len(self._kinds)), np.int64),
        }

    def find(self, env_id: Array) -> Ints:
        """Returns the streams (B,) of `env_id` (B,), making those that are new.

        Raises:
          SpecError: an env_id twice, or below 0.
        """
        wanted = np.asarray(env_id).astype(np.int64, copy=False)
        key = wanted.tobytes()
        if wanted.ndim == 1 and key in self._found:
            return self._found[key]
        if wanted.ndim != 1 or len(np.unique(wanted)) != len(wanted) or (wanted < 0).any():
            raise SpecError(
                f"env_id is {env_id}, expected (B,) numbers of at least 0 without repeats: add "
                "joined rollouts of one environment one after the other"
            )
        new = wanted[~np.isin(wanted, self.env_id)]
        if len(new):
            self._grow(new)
        by_id = self.env_id[self._order]
        found: Ints = self._order[np.searchsorted(by_id, wanted)]
        # writers come back with the same environments; those that never do must not pile up
        if len(self._found) >= _MOST_FOUND:
            self._found.clear()
        self._found[key] = found
        return found

    def known(self, env_id: Array | None) -> Ints:
        """Returns the streams of those of `env_id` that were seen; None: all."""
        if env_id is None:
            return np.arange(len(self.env_id))
        return np.flatnonzero(np.isin(self.env_id, np.asarray(env_id, np.int64)))

    def broken(self, stream: Ints, obs: Array) -> Ints:
        """Returns the streams whose open episode `obs` (B, ...) does not continue, to the bit."""
        known = self._arrays["is_known"][stream]
        before = self._arrays["next_obs"][stream]
        same = _bytes_of(before, len(stream)) == _bytes_of(np.ascontiguousarray(obs), len(stream))
        result: Ints = stream[known & ~same.all(axis=1)]
        return result

    def remember(self, stream: Ints, next_obs: Array) -> None:
        """Keeps what the next step of each environment must begin with."""
        self._arrays["next_obs"][stream] = next_obs
        self._arrays["is_known"][stream] = True

    def forget(self, stream: Ints) -> None:
        """Lets the next step of each environment begin anywhere."""
        self._arrays["is_known"][stream] = False

    def awaits_reset(self, stream: Ints) -> Mask:
        """Tells (B,) whose next step only resets the environment."""
        result: Mask = self._arrays["awaits_reset"][stream]
        return result

    def await_reset(self, stream: Ints, awaits: Mask) -> None:
        """Sets `awaits_reset`."""
        self._arrays["awaits_reset"][stream] = awaits

    def firsts(self, stream: Ints, valid: Mask) -> Mask | None:
        """Marks (T, B) the rows that begin an episode because the one before was cut; None: none.

        Args:
          stream (B,): That rows are appended to.
          valid (T, B): Which rows are.
        """
        cut = np.flatnonzero(self._arrays["is_cut"][stream] & valid.any(axis=0))
        if not len(cut):
            return None
        first = np.zeros(valid.shape, np.bool_)
        first[valid.argmax(axis=0)[cut], cut] = True
        return first

    def appended(self, stream: Ints, row: Ints, ended: Mask) -> list[Made]:
        """Takes note of rows and returns the items they complete, by table.

        Args:
          stream (B,): As appended.
          row (T, B): Number of each row, -1 where none was written.
          ended (T, B): After which rows a final row follows.
        """
        if row.size and row.min() >= 0 and not ended.any():
            # the most common case, where every row is there and no episode ends
            first_row = row[0]
            segments, goes_on = self._going_on(stream, first_row, row[-1])
            self._arrays["is_cut"][stream] = False
        else:
            segments, goes_on = self._segments(stream, row, ended)
            self._arrays["is_cut"][stream[(row >= 0).any(axis=0)]] = False
            first_row = np.where(row >= 0, row, np.iinfo(np.int64).max).min(axis=0, initial=2**62)
        base = np.zeros(len(self.env_id), np.int64)
        base[stream] = first_row
        made = self._make(segments, goes_on)
        if len(row) == 1:
            return made
        # a batch is inserted as if it had come step by step
        return [_by_time(items, base) for items in made]

    @property
    def has_priorities(self) -> bool:
        """Whether `set_priorities` was ever called."""
        return _PRIORITY in self._arrays

    def set_priorities(self, stream: Ints, row: Ints, priority: Array) -> None:
        """Keeps the priorities of the items that begin at rows.

        Args:
          stream (B,): As appended.
          row (T, B): Number of each row, -1 where none was written.
          priority (T, B): nan where the table's highest one is meant.
        """
        if _PRIORITY not in self._arrays:
            # a ring for each stream: rows further back begin no new item
            shape = (len(self.env_id), self._history_rows)
            self._arrays[_PRIORITY] = np.full(shape, np.nan)
        streams = np.broadcast_to(stream, row.shape)
        written = row >= 0
        place = row[written] % self._history_rows
        self._arrays[_PRIORITY][streams[written], place] = priority[written]

    def priorities(self, stream: Ints, start: Ints) -> Array:
        """Returns the priorities (K,) of items that begin at rows `start` (K,)."""
        result: Array = self._arrays[_PRIORITY][stream, start % self._history_rows]
        return result

    def cut(self, stream: Ints, *, keep_obs: bool) -> list[Made]:
        """Ends the open episodes of `stream` at their last row; returns the items left, by table.

        With `keep_obs` what `remember` was told still holds.
        """
        state = self._arrays
        open_ones = stream[state["is_open"][stream]]
        segments = Segments(
            open_ones,
            state["begin"][open_ones],
            state["end"][open_ones],
            np.ones(len(open_ones), np.bool_),
        )
        made = self._make(segments, np.ones(len(open_ones), np.bool_))
        state["is_open"][stream] = False
        if not keep_obs:
            state["is_known"][stream] = False
            state["awaits_reset"][stream] = False
        # the rows stay known to the store: items of theirs may still wait to be inserted
        state["is_cut"][stream] = True
        return made

    def num_open(self, stream: Ints) -> int:
        """Counts the open episodes among `stream`."""
        return int(self._arrays["is_open"][stream].sum())

    def state(self) -> dict[str, Array]:
        """Returns arrays that `load_state` takes."""
        return {"env_id": self.env_id, **self._arrays}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Takes over arrays of `state`."""
        self.env_id = np.array(state["env_id"])
        self._order = np.argsort(self.env_id)
        self._found.clear()
        optional = {_PRIORITY} & state.keys()
        names = self._arrays.keys() - {_PRIORITY} | optional
        self._arrays = {name: np.array(state[name]) for name in names}

    def _grow(self, env_id: Ints) -> None:
        first = self._store.add_streams(len(env_id))
        assert first == len(self.env_id)
        self.env_id = np.concatenate([self.env_id, env_id])
        self._order = np.argsort(self.env_id)
        for name, array in self._arrays.items():
            fill = np.nan if name == _PRIORITY else 0
            added = np.full((len(env_id), *array.shape[1:]), fill, array.dtype)
            self._arrays[name] = np.concatenate([array, added])

    def _going_on(self, stream: Ints, first_row: Ints, last_row: Ints) -> tuple[Segments, Mask]:
        """What `_segments` finds where rows first_row to last_row (B,) end no episode."""
        state = self._arrays
        was_open: Mask = state["is_open"][stream]
        begin = np.where(was_open, state["begin"][stream], first_row)
        state["is_open"][stream] = True
        state["begin"][stream] = begin
        state["end"][stream] = last_row
        return Segments(stream, begin, last_row, np.zeros(len(stream), np.bool_)), was_open

    def _segments(self, stream: Ints, row: Ints, ended: Mask) -> tuple[Segments, Mask]:
        """Finds the episodes that the rows belong to, and which go on from before.

        Episodes that end here come first, by stream and time, then those that stay open.
        """
        state = self._arrays
        has_rows = row.max(axis=0, initial=-1) >= 0
        first_row = np.where(row >= 0, row, np.iinfo(np.int64).max).min(axis=0, initial=2**62)
        was_open = state["is_open"][stream]
        begin = np.where(was_open, state["begin"][stream], first_row)

        # stream-major, so that an episode begins where the one before it in the list ended
        column, t = np.nonzero(ended.T)
        final_row = row[t, column] + 1
        is_first = np.ones(len(column), np.bool_)
        is_first[1:] = column[1:] != column[:-1]
        ended_begin = np.where(is_first, begin[column], np.roll(final_row, 1) + 1)

        # an episode that stays open begins after the last end, if there was one
        last_row = row.max(axis=0, initial=-1)
        np.maximum.at(begin, column, final_row + 1)
        stays = np.flatnonzero(has_rows & (last_row >= begin))
        had_no_end = np.ones(len(stream), np.bool_)
        had_no_end[column] = False

        is_open = has_rows & (last_row >= begin)
        state["is_open"][stream] = np.where(has_rows, is_open, state["is_open"][stream])
        state["begin"][stream[stays]] = begin[stays]
        state["end"][stream[stays]] = last_row[stays]
        goes_on = np.concatenate([is_first & was_open[column], (had_no_end & was_open)[stays]])
        return Segments(
            np.concatenate([stream[column], stream[stays]]),
            np.concatenate([ended_begin, begin[stays]]),
            np.concatenate([final_row, last_row[stays]]),
            np.concatenate([np.ones(len(column), np.bool_), np.zeros(len(stays), np.bool_)]),
        ), goes_on

    def _make(self, segments: Segments, goes_on: Mask) -> list[Made]:
        """Makes the items of all tables; keeps where the next ones begin."""
        made: list[Made] = []
        still_open = np.flatnonzero(~segments.ended)
        for table, kind in enumerate(self._kinds):
            kept = self._arrays["next_start"][segments.stream, table]
            start = np.where(goes_on, kept, segments.begin)
            items = make_items(kind, segments, start)
            streams = segments.stream[still_open]
            self._arrays["next_start"][streams, table] = items.next_start[still_open]
            made.append((segments.stream[items.segment], items.start, items.length))
        return made


def _by_time(items: Made, base: Ints) -> Made:
    stream, start, length = items
    when = start - base[stream]
    # most often each stream has as many items, at the same times: nothing to sort
    other = np.flatnonzero(stream != stream[0]) if len(stream) else stream
    count = int(other[0]) if len(other) else len(stream)
    if count and len(stream) % count == 0:
        grid = when.reshape(-1, count)
        if (grid == grid[0]).all() and (grid[0, 1:] > grid[0, :-1]).all():
            return _transposed(stream, count), _transposed(start, count), _transposed(length, count)
    order = np.argsort(when, kind="stable")
    return stream[order], start[order], length[order]


def _transposed(array: Ints, count: int) -> Ints:
    return np.ascontiguousarray(array.reshape(-1, count).T).reshape(-1)


def _bytes_of(array: Array, rows: int) -> Array:
    """Views an array (B, ...) as (B, bytes)."""
    return np.frombuffer(array, np.uint8).reshape(rows, -1) if array.nbytes else np.zeros((rows, 0))
