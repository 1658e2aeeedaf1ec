# SPDX-License-Identifier: Apache-2.0
"""An end for whatever a test waits for, be it a worker that died or a loop that asks on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# far above the longest test, which learns for some minutes, and below the limits of CI
LIMIT_S = 1500.0


@contextmanager
def ends_within(limit_s: float) -> Iterator[None]:
    """Fails the test whose block takes longer.

    What the block waits in gets a KeyboardInterrupt: Ray's calls end at no other exception, and a
    loop that goes on after errors ends at it. The failure says so even where the block caught it.
    Tests that are not run by the main thread, which alone gets signals, have no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_late = False

    def interrupt(signum: int, frame: Any) -> None:
        nonlocal is_late
        is_late = True
        raise KeyboardInterrupt(f"the test has not ended after {limit_s} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    rest_s, _ = signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    except BaseException as error:
        if not is_late:
            raise
        reason = error
    else:
        reason = None
    finally:
        signal.setitimer(signal.ITIMER_REAL, rest_s)
        signal.signal(signal.SIGALRM, before)
    if is_late:
        raise pytest.fail.Exception(f"the test has not ended after {limit_s} s") from reason


class TimeLimits:
    """A plugin of pytest: what each test, its fixtures' making and their closing may take."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        with ends_within(LIMIT_S):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        with ends_within(LIMIT_S):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, Any]:
        with ends_within(LIMIT_S):
            return (yield)
