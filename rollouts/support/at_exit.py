# SPDX-License-Identifier: Apache-2.0
"""Exit: ends this library's own threads before the interpreter takes itself apart.

A daemon thread that is in native code by then would have to be ended by force. `atexit` runs when
the threads that are not daemons have ended, so that these may use what is closed here.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TIMEOUT_S = 1.0  # time that an exit waits for a thread that is busy with foreign code

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_pending: list[weakref.WeakMethod[Callable[[], object]]] = []
_exiting = threading.Event()


def call_at_exit(method: Callable[[], object]) -> None:
    """Calls a bound method when the process ends, unless its object is gone by then.

    The newest is called first, and all before what libraries imported earlier have registered,
    such as Ray its shutdown. The method may be called after the object was closed.
    """
    with _lock:
        _pending[:] = [each for each in _pending if each() is not None]
        _pending.append(weakref.WeakMethod(method))
    # registered last, called first
    atexit.unregister(_call_all)
    atexit.register(_call_all)


@contextmanager
def silent_at_exit() -> Iterator[None]:
    """Silences a daemon thread whose call fails because the process ends: it waits to be ended.

    Its traceback would be printed below the output of a program that ended well.
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
    # the threads are the parent's
    global _lock
    _lock = threading.Lock()
    _pending.clear()
    _exiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
