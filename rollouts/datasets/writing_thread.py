# SPDX-License-Identifier: Apache-2.0
"""`WritingThread`: a thread that writes what it is given, with a bound on the bytes that wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from rollouts.errors import ClosedError
from rollouts.support.no_room import start_thread

One = TypeVar("One")


class WritingThread(Generic[One]):
    """Calls a function with one object after the other, in its own thread.

    `put` waits while `max_bytes` are waiting, so memory is bounded and the writer sets the pace. An
    error of the function is raised by the next `put` or `finish`; objects that still wait are
    dropped.
    """

    def __init__(self, write: Callable[[One], None], max_bytes: int) -> None:
        """Starts the thread.

        Raises:
          SpecError: The system cannot start a thread.
        """
        self._write, self._max_bytes = write, max_bytes
        # guards all attributes below
        self._changed = threading.Condition()
        self._waiting: deque[tuple[One, int]] = deque()
        self._bytes = 0
        self._is_writing = self._is_closing = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rollouts-recorder", daemon=True)
        start_thread(self._thread)

    def put(self, one: One, nbytes: int) -> None:
        """Passes an object on; waits while too many bytes are waiting.

        Raises:
          ClosedError: `finish` was called. Also an earlier error of the function.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._error is not None
                    or not self._bytes
                    or self._bytes + nbytes <= self._max_bytes
                )
            )
            self._raise()
            if self._is_closing:
                raise ClosedError("the recorder is closed")
            self._waiting.append((one, nbytes))
            self._bytes += nbytes
            self._changed.notify_all()

    def wait(self) -> None:
        """Waits until all objects are written.

        Raises:
          An error of the function.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._error is not None or not (self._waiting or self._is_writing)
            )
            self._raise()

    def finish(self) -> None:
        """Waits until all objects are written, and ends the thread; may be called twice.

        Raises:
          An error of the function.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        with self._changed:
            self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting) or self._is_closing)
                if not self._waiting or self._error is not None:
                    return
                one, nbytes = self._waiting.popleft()
                self._is_writing = True
            try:
                self._write(one)
            except BaseException as error:  # the caller's thread raises it
                with self._changed:
                    self._error = error
                    self._waiting.clear()
            # frees the written object while this thread waits
            del one
            with self._changed:
                self._bytes = self._bytes - nbytes if self._waiting else 0
                self._is_writing = False
                self._changed.notify_all()
