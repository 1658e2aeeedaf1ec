# SPDX-License-Identifier: Apache-2.0
"""Exit: ends this library's own threads before the interpreter shuts down.

A daemon thread that is in native code by then would have to be ended by force. `atexit` runs after
the non-daemon threads have ended, so these may use the objects that are closed here as long as they
run.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TIMEOUT_S = 1.0  # time that an exit waits for a thread in foreign code

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_pending: list[weakref.WeakMethod[Callable[[], object]]] = []
_exiting = threading.Event()


def call_at_exit(method: Callable[[], object]) -> None:
    """Calls a bound method when the process ends, unless its object is freed by then.

    The newest method is called first. All are called before the functions of libraries that were
    imported earlier, such as Ray's shutdown. The method may be called after the object was closed.
    """
    with _lock:
        _pending[:] = [each for each in _pending if each() is not None]
        _pending.append(weakref.WeakMethod(method))
    # atexit first calls the function that was registered last
    atexit.unregister(_call_all)
    atexit.register(_call_all)


@contextmanager
def silent_at_exit() -> Iterator[None]:
    """Silences a daemon thread whose call fails while the process ends: the thread then waits for
    the end.

    Otherwise its traceback is printed below the output of a program that succeeded.
    """
    try:
        yield
    except Exception:
        if _exiting.is_set() and threading.current_thread().daemon:
            threading.Event().wait()
        raise


def _call_all() -> None:
    _exiting.set()
    with _lock:
        pending, _pending[:] = list(_pending), []
    for each in reversed(pending):
        method = each()
        if method is None:
            continue
        try:
            method()
        except Exception:
            _log.warning("%s failed at exit", method.__qualname__, exc_info=True)


def _forget() -> None:
    # this is a forked process: the threads belong to its parent
    global _lock
    _lock = threading.Lock()
    _pending.clear()
    _exiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
