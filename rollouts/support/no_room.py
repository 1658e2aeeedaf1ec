# SPDX-License-Identifier: Apache-2.0
"""Errors for threads, processes and files that the system refuses to give."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from rollouts.errors import SpecError

_LACKING = {
    errno.EMFILE: "open files (raise `ulimit -n`)",
    errno.ENFILE: "open files",
    errno.EAGAIN: "processes or threads (raise `ulimit -u`, or the container's limit of pids)",
    errno.ENOMEM: "memory",
}


@contextlib.contextmanager
def named_if_no_room(what: str, advice: str) -> Iterator[None]:
    """Raises an error that names what a block could not start for lack of files, threads or memory.

    Args:
      what: What the block starts, such as "8 processes".
      advice: Further advice for the error.
    Raises:
      SpecError: The system lacks room; the same error as that of native pools for their threads.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _LACKING:
            raise
        raise _error(what, _LACKING[error.errno], advice) from error
    except RuntimeError as error:
        # Python's own error has no errno
        if "start new thread" not in str(error):
            raise
        raise _error(what, _LACKING[errno.EAGAIN], advice) from error


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread.

    Raises:
      SpecError: The system gives no more threads.
    """
    with named_if_no_room(f"the thread {thread.name!r}", "ask for less num_threads elsewhere"):
        thread.start()


def started_executor(
    num_threads: int, name: str, begin: Callable[[], None] = lambda: None
) -> ThreadPoolExecutor:
    """Makes an executor that starts all of its threads now; an ordinary one starts each with its
    first work.

    Args:
      num_threads: The number of threads.
      name: Prefix of the threads' names.
      begin: Function that each thread calls first.
    Raises:
      SpecError: The system gives too few threads; those that were started end.
    """
    executor = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
    everybody_is_here = threading.Barrier(num_threads)

    def begin_together() -> None:
        everybody_is_here.wait()
        begin()

    try:
        what = f"{num_threads} threads {name!r}" if num_threads > 1 else f"the thread {name!r}"
        with named_if_no_room(what, "ask for less num_threads elsewhere"):
            begun = [executor.submit(begin_together) for _ in range(num_threads)]
        for each in begun:
            each.result()
    except BaseException:
        everybody_is_here.abort()
        executor.shutdown(cancel_futures=True)
        raise
    return executor


def _error(what: str, lacking: str, advice: str) -> SpecError:
    return SpecError(f"could not start {what}: the system gives no more {lacking}; or {advice}")
