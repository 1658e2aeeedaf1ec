# SPDX-License-Identifier: Apache-2.0
"""Which items the rows of an episode give: the arithmetic of n-step, sequences and episodes.

An episode of N steps is N + 1 rows: row t has obs_t and what the action there led to, the last one
only the final observation. An item is a range of rows; its last row serves its observation alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollouts.replay.config import Episodes, ItemKind, NStep, Sequences

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Segments(NamedTuple):
    """Parts of episodes, one row each (S,): where items may be made.

    Attributes:
      stream  the stream
      begin   row with which the episode began
      end     last row that exists
      ended   nothing comes after `end` in this episode
    """

    stream: Ints
    begin: Ints
    end: Ints
    ended: Mask


class Items(NamedTuple):
    """Items (K,) and where the next one of each segment (S,) would begin."""

    segment: Ints
    start: Ints
    length: Ints  # rows
    next_start: Ints


def item_rows(kind: ItemKind) -> int:
    """Rows of the longest item."""
    match kind:
        case NStep():
            return kind.n + 1
        case Sequences():
            return kind.length + 1
        case Episodes():
            return kind.max_length + 1


def reach_rows(kind: ItemKind) -> int:
    """How many rows behind the newest one an item may begin that was not made before."""
    return item_rows(kind) + (kind.step if isinstance(kind, Sequences) else 0)


def most_items(kind: ItemKind, num_steps: int, num_rows: int) -> int:
    """Returns how many items `num_steps` further steps of each environment may complete.

    An upper bound, whatever the steps before left open and wherever episodes end or are cut.

    Args:
      kind: What an item is.
      num_steps: Steps T of each environment.
      num_rows: Environments B.
    """
    if num_steps == 0:
        return 0
    match kind:
        case NStep():
            # one for each step, and for the n before that were not followed by n yet
            return num_rows * (num_steps + kind.n)
        case Sequences():
            length, period, at_end = kind.length, kind.step, kind.end_of_episode
        case Episodes():
            length, period, at_end = kind.max_length, kind.max_length, "truncate"
    # no two begin at the same step: those that may be open, one at the end, and the new ones
    most = (length - 1) // period + 2 + num_steps
    if at_end == "write":
        # all are whole: so far apart do they end, and so far apart those written at ends
        most = min(most, num_steps // min(period, length) + num_steps // length + 2)
    return num_rows * most


def make_items(kind: ItemKind, segments: Segments, start: Ints) -> Items:
    """Finds the items that are complete.

    Args:
      kind: What an item is.
      segments: Of several streams (S,).
      start (S,): Where the next item of each segment begins.
    """
    match kind:
        case NStep():
            return _n_steps(kind.n, segments, start)
        case Sequences():
            return _sequences(kind.length, kind.step, kind.end_of_episode, segments, start)
        case Episodes():
            return _sequences(kind.max_length, kind.max_length, "truncate", segments, start)


def _n_steps(n: int, segments: Segments, start: Ints) -> Items:
    last_start = np.where(segments.ended, segments.end - 1, segments.end - n)
    count = np.maximum(last_start - start + 1, 0)
    segment, index = _expand(count)
    first = start[segment] + index
    length = np.minimum(n + 1, segments.end[segment] - first + 1)
    return Items(segment, first, length, start + count)


def _sequences(steps: int, period: int, at_end: str, segments: Segments, start: Ints) -> Items:
    # those that fit
    end, begin = segments.end, segments.begin
    count = np.maximum((end - steps - start) // period + 1, 0)
    next_start = start + count * period
    segment, index = _expand(count)
    first = start[segment] + index * period

    # what is left at the end of an episode, unless the last one ended there
    is_covered = (next_start > begin) & (next_start - period + steps == end)
    left = segments.ended & ~is_covered
    if at_end == "write":
        rest = np.flatnonzero(left & (end - begin >= steps))
        rest_first = end[rest] - steps
    else:
        rest = np.flatnonzero(left & (next_start < end))
        rest_first = next_start[rest]
    length = np.full(len(segment) + len(rest), steps + 1, np.int64)
    length[len(segment) :] = end[rest] - rest_first + 1
    return Items(
        np.concatenate([segment, rest]), np.concatenate([first, rest_first]), length, next_start
    )


def _expand(count: Ints) -> tuple[Any, Any]:
    """Returns, for each of count[i] items of segment i, i and its number among them."""
    segment = np.repeat(np.arange(len(count)), count)
    index = np.arange(len(segment)) - np.repeat(np.cumsum(count) - count, count)
    return segment, index
