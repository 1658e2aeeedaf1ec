# SPDX-License-Identifier: Apache-2.0
"""Closes at the interpreter's exit what was left open, while its threads may still end.

A daemon thread that is inside native code when the interpreter goes can abort the process, so that
a good run looks crashed. Functions of `atexit` run before that, the last registered first: what was
built upon something else is closed before it, and before the libraries that it uses.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol


class Closable(Protocol):
    """What has threads; its `close` ends them within a bounded time."""

    def close(self) -> None: ...


class CloseAtExit:
    """Calls `close` of an object at exit, unless `forget` was called or the object is gone."""

    def __init__(self, closable: Closable) -> None:
        """Keeps no reference: whoever has a thread running is kept by it."""
        self._closable = weakref.ref(closable)
        self._pid = os.getpid()
        atexit.register(self)

    def __call__(self) -> None:
        """Closes, in the process in which the threads are: a fork has none of them."""
        closable = self._closable()
        if closable is not None and os.getpid() == self._pid:
            closable.close()

    def forget(self) -> None:
        """Leaves exit alone; for `close` itself. Any number of times."""
        atexit.unregister(self)
