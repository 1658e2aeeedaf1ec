# SPDX-License-Identifier: Apache-2.0
"""One rollout that is collected while its caller does something else."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event
from typing import Generic, TypeVar

from rollouts.collecting.deadline import Deadline

Poll = Callable[[], None]
R = TypeVar("R")


class Prefetch(Generic[R]):
    """At most one rollout that is under way, or waits to be taken.

    Its thread waits for those of the pool, without the GIL. Not thread-safe.
    """

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="rollouts-prefetch")
        self._future: Future[R] | None = None
        self._dropped = Event()

    def start(self, collect: Callable[[Poll], R]) -> None:
        """Collects in another thread; `collect` calls its argument now and then."""
        assert self._future is None
        self._future = self._executor.submit(collect, self._poll)

    def take(self, deadline: Deadline) -> R | None:
        """Waits for the rollout that was started, if one was; raises what ended it.

        Raises:
          CallTimeoutError: It was not ready in time; it goes on.
        """
        if self._future is None:
            return None
        if not wait([self._future], deadline.remaining_s).done:
            raise deadline.error()
        batch = self._future.result()
        self._future = None
        return batch

    def drop(self) -> None:
        """Ends the rollout that is under way, and waits until it has ended."""
        if self._future is not None:
            self._dropped.set()
            wait([self._future])
            self._dropped.clear()
            self._future = None

    def close(self) -> None:
        """Ends the thread; may be called twice."""
        self.drop()
        self._executor.shutdown()

    def _poll(self) -> None:
        if self._dropped.is_set():
            raise _DroppedError


class _DroppedError(Exception):
    """Ends a rollout that nobody will take."""
