# SPDX-License-Identifier: Apache-2.0
"""Slow and obvious models of the native replay store, to compare with it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from rollouts import _native

MIN_SIZE_1 = ("min_size", 1)


def table(name: str = "t", **changes: Any) -> dict[str, Any]:
    """Arguments of a table: uniform sampler, fifo remover, no ratio."""
    spec: dict[str, Any] = {
        "name": name,
        "max_size": 100,
        "sampler": "uniform",
        "remover": "fifo",
        "limiter": MIN_SIZE_1,
    }
    return spec | changes


def counting_store(
    rows: int, *tables: dict[str, Any], **options: Any
) -> tuple[_native.ReplayStore, _native.GatherPlan]:
    """A store of one stream whose column x is the row's number; a plan of that column."""
    options = {"num_streams": 1, "history_rows": max(rows, 1)} | options
    store = _native.ReplayStore([("x", "int64", (), 1, "zero")], tables or [table()], **options)
    if rows:
        store.append([0], {"x": np.arange(rows).reshape(rows, 1)})
    return store, _native.GatherPlan(store, [("x", "x", 0, 0)])


@dataclasses.dataclass
class LimiterModel:
    """Reverb's rule, with its counts."""

    samples_per_insert: float
    min_size: int
    min_diff: float
    max_diff: float
    inserts: int = 0
    samples: int = 0
    deletes: int = 0

    def can_insert(self, n: int) -> bool:
        if self.inserts + n - self.deletes <= self.min_size:
            return True
        return (self.inserts + n) * self.samples_per_insert - self.samples <= self.max_diff

    def can_sample(self, n: int) -> bool:
        if self.inserts - self.deletes < self.min_size:
            return False
        return self.inserts * self.samples_per_insert - self.samples - n >= self.min_diff


@dataclasses.dataclass
class StreamModel:
    """All rows of a stream, each with its whole observation."""

    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def gather(
        self, start: int, length: int, column: str, offset: int, count: int
    ) -> list[Any | None]:
        """The values of the rows; None outside the item."""
        first = offset if offset >= 0 else length + offset
        places = range(first, first + max(count, 1))
        return [self.rows[start + i][column] if 0 <= i < length else None for i in places]


class StackedEnv:
    """Observations of stacked frames, whose resets do all that Atari's options make them do."""

    def __init__(self, seed: int, stack: int, shape: tuple[int, ...]) -> None:
        self.random = np.random.default_rng(seed)
        self.shape = shape
        self.stack = np.zeros((stack, *shape), np.uint8)

    def frame(self) -> np.ndarray[Any, Any]:
        # few values, so that frames of zeros and equal ones after each other appear
        return np.full(self.shape, self.random.integers(0, 3), np.uint8)

    def push(self) -> None:
        self.stack = np.concatenate([self.stack[1:], self.frame()[None]])

    def reset(self) -> None:
        kind = self.random.integers(0, 5)
        if kind == 0:  # zeros, then the first frame
            self.stack[:] = 0
            self.push()
        elif kind == 1:  # the first frame, repeated
            self.stack[:] = self.frame()
        elif kind == 2:  # the game goes on, one step of no-op later
            self.push()
        elif kind == 3:  # the game goes on, after no-op and FIRE
            self.push()
            self.push()
        # else: from the same frame
