# SPDX-License-Identifier: Apache-2.0
"""EventLoop: simulated time, which advances from event to event."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Action = Callable[..., None]


class EventLoop:
    """Events in the order of their times; simultaneous ones run in the order of the calls of `at`.

    Attributes:
      now: Seconds since the start.
      num_events: Events that took place.
    """

    def __init__(self) -> None:
        """Starts at 0 without events."""
        self.now = 0.0
        self.num_events = 0
        self._num_asked = 0
        self._events: list[tuple[float, int, Action, tuple[Any, ...]]] = []

    def clock(self) -> float:
        """Returns `now`, as a function for code that takes a clock."""
        return self.now

    def at(self, time: float, action: Action, *args: Any) -> None:
        """Calls the action at a time, or now if that time has passed."""
        self._num_asked += 1
        heapq.heappush(self._events, (max(time, self.now), self._num_asked, action, args))

    def run_until(self, end: float, after_each: Callable[[], None] | None = None) -> None:
        """Advances to a time; calls `after_each` after each event."""
        events = self._events
        while events and events[0][0] <= end:
            self.now, _, action, args = heapq.heappop(events)
            self.num_events += 1
            action(*args)
            if after_each is not None:
                after_each()
        self.now = end
