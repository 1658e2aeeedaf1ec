# SPDX-License-Identifier: Apache-2.0
"""Threads, processes and files that a system does not give, said in one sentence."""

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
    """Names what a block could not start for lack of files, processes, threads or memory.

    Args:
      what: Is being started, such as "8 processes".
      advice: Further advice for the error.
    Raises:
      SpecError: It could not; as native pools say of their threads.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _LACKING:
            raise
        raise _error(what, _LACKING[error.errno], advice) from error
    except RuntimeError as error:
        # Python's own words, which have no number
        if "start new thread" not in str(error):
            raise
        raise _error(what, _LACKING[errno.EAGAIN], advice) from error


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread.

    Raises:
      SpecError: The system gives no further one.
    """
    with named_if_no_room(f"the thread {thread.name!r}", "ask for less num_threads elsewhere"):
        thread.start()


def started_executor(
    num_threads: int, name: str, begin: Callable[[], None] = lambda: None
) -> ThreadPoolExecutor:
    """Makes an executor whose threads are all there, as its own start with what they are given.

    Args:
      num_threads: The number of threads.
      name: What their names begin with.
      begin: Each calls it first.
    Raises:
      SpecError: The system gives too few; none stays.
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
