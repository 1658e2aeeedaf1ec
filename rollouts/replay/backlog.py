# SPDX-License-Identifier: Apache-2.0
"""Items whose rows are stored and that a rate limiter does not let into their table yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.replay.streams import Made

Array = NDArray[Any]

# how long one wait may hold the buffer's lock
_SLICE_S = 0.05

_COLUMNS = ("stream", "start", "length", "priority")


class Backlog:
    """One queue of items per table, oldest first. The caller locks.

    An item's priority is nan where the table's highest one is meant.
    """

    def __init__(self, store: _native.ReplayStore, tables: Sequence[str]) -> None:
        """Begins empty."""
        self._store = store
        self._queues: dict[str, list[list[Array]]] = {name: [] for name in tables}
        self.wait_s = dict.fromkeys(tables, 0.0)

    def __len__(self) -> int:
        """Items of all tables."""
        return sum(self.sizes().values())

    def sizes(self) -> dict[str, int]:
        """Items by table."""
        return {name: sum(len(i[0]) for i in queue) for name, queue in self._queues.items()}

    def push(self, made: Sequence[Made], priorities: Sequence[Array]) -> None:
        """Adds items of all tables, with their priorities (K,)."""
        for queue, items, priority in zip(self._queues.values(), made, priorities, strict=True):
            queue += _parts([*items, priority])

    def insert(self, deadline: float | None, pause: Callable[[], None]) -> int:
        """Inserts what may be, waiting until `deadline` (of time.monotonic; None: for ever).

        Args:
          deadline: After which no more waiting is done.
          pause: Called between waits; may let go of the caller's lock and take it again.

        Returns:
          Items inserted.
        """
        # no table waits for another's limiter
        inserted = sum(self._drain(name, 0.0) for name in self._queues)
        for name, queue in self._queues.items():
            begin = time.monotonic()
            while queue and (deadline is None or time.monotonic() < deadline):
                left = _SLICE_S if deadline is None else max(0.0, deadline - time.monotonic())
                inserted += self._drain(name, min(left, _SLICE_S))
                pause()
            self.wait_s[name] += time.monotonic() - begin
        return inserted

    def state(self) -> dict[str, Array]:
        """Returns the items as arrays, for `load_state`."""
        result: dict[str, Array] = {}
        for index, queue in enumerate(self._queues.values()):
            for column, name in enumerate(_COLUMNS):
                dtype = np.float64 if name == "priority" else np.int64
                parts = [np.asarray(items[column], dtype) for items in queue]
                result[f"{index}.{name}"] = np.concatenate([*parts, np.zeros(0, dtype)])
        return result

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Takes over the arrays of `state`."""
        for index, queue in enumerate(self._queues.values()):
            items = [np.array(state[f"{index}.{name}"]) for name in _COLUMNS]
            queue[:] = _parts(items)

    def _drain(self, table: str, timeout_s: float) -> int:
        """Inserts one table's items until one has to wait longer than `timeout_s`."""
        queue, inserted = self._queues[table], 0
        while queue:
            stream, start, length, priority = items = queue[0]
            given = None if np.isnan(priority[0]) else priority
            keys = self._store.insert(table, stream, start, length, given, timeout_s=timeout_s)
            inserted += len(keys)
            if len(keys) < len(stream):
                queue[0] = [column[len(keys) :] for column in items]
                return inserted
            queue.pop(0)
        return inserted


def _parts(items: list[Array]) -> list[list[Array]]:
    """Splits columns of items, as one call of insert takes one kind of priority."""
    if not len(items[0]):
        return []
    is_default = np.isnan(items[3])
    if is_default.all() or not is_default.any():
        return [items]
    turns = np.flatnonzero(is_default[1:] != is_default[:-1]) + 1
    return [list(part) for part in zip(*(np.split(c, turns) for c in items), strict=True)]
