# SPDX-License-Identifier: Apache-2.0
"""Counts seconds: those that threads or workers wait, and those that this process is running."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class WaitClock:
    """The seconds that all waiters have waited up to now, summed. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts with nobody waiting; `clock` returns seconds."""
        self._clock = clock
        self._num_waiting = 0
        self._since = clock()
        self._total_s = 0.0

    @property
    def seconds(self) -> float:
        """Seconds waited so far, including those of waits that are not over."""
        return self._total_s + self._num_waiting * (self._clock() - self._since)

    @property
    def num_waiting(self) -> int:
        """The number of waiters now; a new number counts from when it is set."""
        return self._num_waiting

    @num_waiting.setter
    def num_waiting(self, num_waiting: int) -> None:
        self._total_s, self._since = self.seconds, self._clock()
        self._num_waiting = num_waiting


class AwakeClock:
    """The seconds that this process was running, for callers that read it often. Thread-safe.

    Where the process was stopped, or the machine slept, most of the gap is left out, so that no
    deadline passes because of it. Never goes back.
    """

    def __init__(self, max_gap_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts at 0; counts at most `max_gap_s` between two readings of `clock`."""
        self._max_gap_s = max_gap_s
        self._clock = clock
        self._lock = threading.Lock()
        self._last = clock()
        self._seconds = 0.0

    def __call__(self) -> float:
        """Returns the seconds up to now."""
        with self._lock:
            now = self._clock()
            self._seconds += min(now - self._last, self._max_gap_s)
            self._last = now
            return self._seconds
