# SPDX-License-Identifier: Apache-2.0
"""Fetching of fragments that leave LearnerQueue: into this process, or into another learner's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from rollouts.errors import ClosedError, WorkerError
from rollouts.learner.fragment import FragmentHandle

# how long one attempt to fetch arrays may block before `get` looks for close() again
_SLICE_S = 0.5

T = TypeVar("T")


class Transfer(Protocol):
    """One attempt to bring a fragment to a learner that is elsewhere.

    `wait` raises TimeoutError while it is on its way, WorkerError where its arrays are lost. Then
    the fragment is the learner's after `keep`; after `take_back` it never is.
    """

    @property
    def handle(self) -> FragmentHandle: ...

    def wait(self, timeout_s: float) -> None: ...

    def keep(self) -> None: ...

    def take_back(self) -> None: ...


@dataclass(slots=True, eq=False)
class Claim:
    """The fragments that one call has, and how many it lacks; the queue's lock guards it."""

    num_lacking: int
    taken: list[FragmentHandle] = field(default_factory=list)


def in_slices(
    attempt: Callable[[float], T], deadline: float | None, is_closed: Callable[[], bool]
) -> T:
    """Calls until it does not time out, so that close() and the deadline are seen meanwhile."""
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
    """Waits for a transfer; takes it back where its fragment goes back into the queue."""
    try:
        in_slices(transfer.wait, deadline, is_closed)
    except WorkerError:
        raise
    except BaseException:
        transfer.take_back()
        raise
    return transfer
