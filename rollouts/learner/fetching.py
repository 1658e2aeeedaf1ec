# SPDX-License-Identifier: Apache-2.0
"""Fetches fragments that leave LearnerQueue, to this process or to that of another learner."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from rollouts.errors import ClosedError, WorkerError
from rollouts.learner.fragment import FragmentHandle

# longest time for which one attempt to fetch arrays blocks, so that `get` notices close()
_SLICE_S = 0.5

T = TypeVar("T")


class Transfer(Protocol):
    """One attempt to send a fragment to a learner in another process.

    `wait` raises TimeoutError while the fragment is on its way, and WorkerError if its arrays are
    lost. After `keep` the fragment belongs to the learner; after `take_back` it never will.
    """

    @property
    def handle(self) -> FragmentHandle: ...

    def wait(self, timeout_s: float) -> None: ...

    def keep(self) -> None: ...

    def take_back(self) -> None: ...


@dataclass(slots=True, eq=False)
class Claim:
    """The fragments of one call, and the number still lacking; guarded by the queue's lock."""

    num_lacking: int
    taken: list[FragmentHandle] = field(default_factory=list)


def in_slices(
    attempt: Callable[[float], T], deadline: float | None, is_closed: Callable[[], bool]
) -> T:
    """Repeats short attempts until one does not time out, so that close() and the deadline work."""
    while True:
        remaining_s = float("inf") if deadline is None else deadline - time.monotonic()
        try:
            return attempt(min(_SLICE_S, max(0.0, remaining_s)))
        except TimeoutError:
            if is_closed():
                raise ClosedError("the learner queue is closed") from None
            if remaining_s <= _SLICE_S:
                raise


def bring(transfer: Transfer, deadline: float | None, is_closed: Callable[[], bool]) -> Transfer:
    """Waits for a transfer; takes it back if its fragment must return to the queue."""
    try:
        in_slices(transfer.wait, deadline, is_closed)
    except WorkerError:
        raise
    except BaseException:
        transfer.take_back()
        raise
    return transfer
