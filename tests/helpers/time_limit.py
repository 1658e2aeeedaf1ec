# SPDX-License-Identifier: Apache-2.0
"""An end for whatever a test waits for, be it a worker that died or a loop that asks on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# far above the longest test, which learns for some minutes, and below the limits of CI
LIMIT_S = 1500.0


@contextmanager
def ends_within(limit_s: float) -> Iterator[None]:
    """Fails the test whose block takes longer, with the stack of what it waits in.

    The failure is no Exception, which a loop might expect and go on after. Tests that are not run
    by the main thread, which alone gets signals, have no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def fail(signum: int, frame: Any) -> None:
        pytest.fail(f"the test has not ended after {limit_s} s")

    before = signal.signal(signal.SIGALRM, fail)
    rest_s, _ = signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, rest_s)
        signal.signal(signal.SIGALRM, before)
