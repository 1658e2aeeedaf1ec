# SPDX-License-Identifier: Apache-2.0
"""Lengths of items, and the number of items that further steps may give.

native/include/rollouts/replay/items.h defines which rows of an episode make which items.
"""

from __future__ import annotations

from rollouts.replay.config import Episodes, Hindsight, ItemKind, NStep, Sequences


def item_rows(kind: ItemKind) -> int:
    """Rows of the longest item."""
    match kind:
        case NStep():
            return kind.n + 1
        case Sequences():
            return kind.length + 1
        case Episodes() | Hindsight():
            return kind.max_length + 1


def native_kind(kind: ItemKind) -> tuple[int, int, str]:
    """Returns steps, period and the rule for the rest at an episode's end, for the core."""
    match kind:
        case NStep():
            return kind.n, 1, "shorten"
        case Sequences():
            return kind.length, kind.step, "write" if kind.end_of_episode == "write" else "keep"
        case Episodes():
            return kind.max_length, kind.max_length, "keep"
        case Hindsight():
            at_end = "pieces" if kind.strategy == "episode" else "tails"
            return kind.max_length, kind.max_length, at_end


def reach_rows(kind: ItemKind) -> int:
    """Largest distance from the newest row to the first row of an item that is not made yet."""
    return item_rows(kind) + (kind.step if isinstance(kind, Sequences) else 0)


def most_items(kind: ItemKind, num_steps: int, num_rows: int) -> int:
    """Returns how many items `num_steps` further steps of each environment may complete.

    It is an upper bound, for any open items of earlier steps and wherever episodes end or are cut.

    Args:
      kind: What an item is.
      num_steps: Steps T of each environment.
      num_rows: Environments B.
    """
    if num_steps == 0:
        return 0
    match kind:
        case NStep():
            # one for each step, and one for each of the n steps before that wait for later ones
            return num_rows * (num_steps + kind.n)
        case Hindsight():
            # one for each step, and one for each step of the open piece
            return num_rows * (num_steps + kind.max_length)
        case Sequences():
            length, period, at_end = kind.length, kind.step, kind.end_of_episode
        case Episodes():
            length, period, at_end = kind.max_length, kind.max_length, "truncate"
    # no two items begin at the same step; counted are the open ones, one at the end, and the new
    # ones
    most = (length - 1) // period + 2 + num_steps
    if at_end == "write":
        # all have the full length, which limits both the regular ones and those at ends of episodes
        most = min(most, num_steps // min(period, length) + num_steps // length + 2)
    return num_rows * most
