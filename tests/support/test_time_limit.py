# SPDX-License-Identifier: Apache-2.0
"""A test that waits for what never comes fails, and is not what the others wait for."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from time_limit import LIMIT_S, ends_within


def ask_on() -> None:
    while True:
        try:
            raise TimeoutError
        except Exception:
            continue


@pytest.mark.parametrize("wait", [ask_on, threading.Event().wait], ids=["a loop", "an event"])
def test_what_never_comes_ends_the_test(wait: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"not ended after 0\.05 s"), ends_within(0.05):
        wait()


def test_what_catches_the_interrupt_fails_still() -> None:
    late = pytest.raises(pytest.fail.Exception, match="not ended")
    with late, ends_within(0.05), contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def test_a_call_of_ray_that_never_returns_ends_the_test(ray_session: Any) -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Busy:
        def wait(self) -> None:
            threading.Event().wait()

    busy = Busy.remote()
    with pytest.raises(pytest.fail.Exception, match="not ended"), ends_within(1.0):
        ray.get(busy.wait.remote())
    ray.kill(busy)


def test_a_test_that_fails_in_time_fails_for_its_own_reason() -> None:
    with pytest.raises(ValueError, match="own"), ends_within(LIMIT_S):
        raise ValueError("own")


def test_each_test_has_a_limit_and_an_own_one_gives_it_back() -> None:
    handler = signal.getsignal(signal.SIGALRM)
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= LIMIT_S
    with ends_within(LIMIT_S):
        assert signal.getsignal(signal.SIGALRM) is not handler
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
