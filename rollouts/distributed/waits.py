# SPDX-License-Identifier: Apache-2.0
"""Counts the seconds that somebody waits."""

from __future__ import annotations

import time
from collections.abc import Callable


class WaitClock:
    """The seconds that all who wait have waited together, up to now. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts with nobody waiting; `clock` returns seconds."""
        self._clock = clock
        self._num_waiting = 0
        self._since = clock()
        self._total_s = 0.0

    @property
    def seconds(self) -> float:
        """Seconds waited, by whoever still waits too."""
        return self._total_s + self._num_waiting * (self._clock() - self._since)

    @property
    def num_waiting(self) -> int:
        """How many wait now. What was set is counted from then on."""
        return self._num_waiting

    @num_waiting.setter
    def num_waiting(self, num_waiting: int) -> None:
        self._total_s, self._since = self.seconds, self._clock()
        self._num_waiting = num_waiting
