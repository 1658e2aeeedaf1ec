# SPDX-License-Identifier: Apache-2.0
"""A signal that something has happened: wakes all threads that wait for it."""

from __future__ import annotations

import threading


class Signal:
    """A counter of events. Thread-safe; nothing else is called while its lock is held."""

    def __init__(self) -> None:
        """Begins at 0."""
        self._changed = threading.Condition(threading.Lock())
        self._count = 0

    @property
    def count(self) -> int:
        """Number of calls of `wake`; read it before checking whether there is a reason to wait."""
        with self._changed:
            return self._count

    def wake(self) -> None:
        """Wakes all waiting threads."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout_s: float) -> None:
        """Waits until `count` is no longer `seen`, for at most timeout_s."""
        with self._changed:
            self._changed.wait_for(lambda: self._count != seen, timeout_s)
