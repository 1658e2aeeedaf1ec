# SPDX-License-Identifier: Apache-2.0
"""`UpdateTurns`: lets threads use a learner one after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from rollouts.errors import ProtocolError

# Longer timeouts count as none, because a lock cannot wait longer than some hundred years.
_LONGEST_S = 1e6


class UpdateTurns:
    """Gives one thread at a time its turn. Native code's own lock covers only computation."""

    def __init__(self) -> None:
        self._lock, self._pid = Lock(), os.getpid()

    @contextmanager
    def take(self, timeout_s: float | None) -> Iterator[float | None]:
        """Waits for the turn, and yields the seconds that are left.

        Raises:
          TimeoutError: Another thread took longer.
          ProtocolError: This is a forked child, and a thread of the parent had the turn.
        """
        self._check_fork()
        left_s = timeout_s
        if not self._lock.acquire(blocking=False):
            left_s = self._wait(timeout_s)
        try:
            yield left_s
        finally:
            self._lock.release()

    def _wait(self, timeout_s: float | None) -> float | None:
        # native code refuses other times than these
        if timeout_s is None or not 0 <= timeout_s < _LONGEST_S:
            self._lock.acquire()
            return timeout_s
        begun = time.monotonic()
        if not self._lock.acquire(timeout=timeout_s):
            raise TimeoutError(f"another thread's update took longer than {timeout_s} s")
        return max(0.0, timeout_s - (time.monotonic() - begun))

    def _check_fork(self) -> None:
        """Refuses a lock that a thread of the parent held: it would never be released."""
        if self._pid == os.getpid():
            return
        if self._lock.locked():
            raise ProtocolError(
                "the learner was training when this process was forked; make another in this "
                "process"
            )
        self._pid = os.getpid()
