# SPDX-License-Identifier: Apache-2.0
"""One rollout that is collected while its caller does other work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event
from typing import Generic, TypeVar

from rollouts.collecting.deadline import Deadline
from rollouts.support.no_room import started_executor

Poll = Callable[[], None]
R = TypeVar("R")

_NAME = "rollouts-prefetch"


class Prefetch(Generic[R]):
    """Prefetch: at most one rollout that is in progress, or waits to be taken.

    Its thread waits for the pool's threads, without the GIL. Not thread-safe.
    """

    def __init__(self, *, begins: bool = False) -> None:
        """Starts the thread if `begins`, but no rollout yet; raises the errors of `begin`."""
        self._executor = started_executor(1, _NAME) if begins else None
        self._future: Future[R] | None = None
        self._dropped = Event()

    def begin(self) -> ThreadPoolExecutor:
        """Starts the thread, unless it runs already.

        Raises:
          SpecError: The system cannot start a thread.
        """
        if self._executor is None:
            self._executor = started_executor(1, _NAME)
        return self._executor

    def start(self, collect: Callable[[Poll], R]) -> None:
        """Calls `collect` in another thread, with a function that it must call now and then.

        Raises:
          SpecError: As `begin`.
        """
        assert self._future is None
        self._future = self.begin().submit(collect, self._poll)

    def take(self, deadline: Deadline) -> R | None:
        """Waits for the rollout that was started, if one was; raises the error that ended it.

        Raises:
          CallTimeoutError: It was not ready in time; the thread goes on collecting it.
        """
        if self._future is None:
            return None
        if not wait([self._future], deadline.remaining_s).done:
            raise deadline.error()
        batch = self._future.result()
        self._future = None
        return batch

    def drop(self) -> None:
        """Ends the rollout that is in progress, and waits until it has ended."""
        if self._future is not None:
            self._dropped.set()
            wait([self._future])
            self._dropped.clear()
            self._future = None

    def close(self) -> None:
        """Ends the thread; may be called twice."""
        self.drop()
        if self._executor is not None:
            self._executor.shutdown()

    def _poll(self) -> None:
        if self._dropped.is_set():
            raise _DroppedError


class _DroppedError(Exception):
    """Ends a rollout that will not be taken."""
