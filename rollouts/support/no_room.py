# SPDX-License-Identifier: Apache-2.0
"""Threads, processes and files that a system does not give, said in one sentence."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator

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
      advice: What else there is to do.
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


def _error(what: str, lacking: str, advice: str) -> SpecError:
    return SpecError(f"could not start {what}: the system gives no more {lacking}; or {advice}")
