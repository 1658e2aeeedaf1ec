# SPDX-License-Identifier: Apache-2.0
"""CPU time of a driver by stage, while a coordinator works for a learner."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from rollouts.learner.fragment import FragmentHandle
from rollouts.learner.queue import LearnerQueue
from rollouts.workers.fleet import Fleet
from rollouts.workers.on_ray.ray_session import ActorHandle
from rollouts.workers.on_ray.shares import ShareHandle
from rollouts.workers.weight_store import WeightStore

T = TypeVar("T")

# functions, with the stage to which their own time is added; the rest of a thread's time is a row
_STAGES: tuple[tuple[str, type, str], ...] = (
    ("submit", ActorHandle, "collect"),
    ("submit", ShareHandle, "collect"),
    ("state machine", Fleet, "handle"),
    ("state machine", Fleet, "look"),
    ("queue", LearnerQueue, "admit"),
    ("queue", LearnerQueue, "levels"),
    ("queue", LearnerQueue, "drop_stale"),
    ("queue", LearnerQueue, "_take"),
    ("queue", LearnerQueue, "deliver"),
    ("resolve", FragmentHandle, "resolve"),
    ("weights", WeightStore, "publish"),
)


@dataclass(frozen=True, slots=True)
class TurnTimes:
    """Times of one turn.

    Attributes:
      cpu_s: CPU time of the driver's process, of all its threads.
      seconds: Real time.
      stages: Stage -> seconds of CPU time.
    """

    cpu_s: float
    seconds: float
    stages: dict[str, float]


def timed_turn(run: Callable[[], T], merge: threading.Thread | None) -> tuple[T, TurnTimes]:
    """Runs a turn; returns its result and its times.

    Args:
      run: The learner's part, on this thread.
      merge: The coordinator's thread; None for a bare loop.
    """
    clock = _StageClock()
    with clock.watching():
        threads = [threading.current_thread(), *([merge] if merge else [])]
        before = [_cpu_of(thread) for thread in threads]
        began, cpu = time.perf_counter(), time.process_time()
        result = run()
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
        spent = sum(map(_cpu_of, threads)) - sum(before)
    stages = dict(clock.seconds)
    stages["futures (Ray's threads)"] = cpu - spent
    on_learner = sum(stages.get(name, 0.0) for name in ("resolve", "weights"))
    if merge is None:
        stages["the loop"] = spent - on_learner
    else:
        # the queue is used on both threads
        known = sum(stages.get(name, 0.0) for name in ("submit", "state machine", "queue"))
        stages["inbox and learner's loop"] = spent - known - on_learner
    return result, TurnTimes(cpu, seconds, stages)


def merge_threads() -> set[threading.Thread]:
    """Returns the threads of this process's coordinators."""
    return {one for one in threading.enumerate() if one.name == "rollouts-merge"}


def merge_thread() -> threading.Thread:
    """Returns the thread of this process's only coordinator."""
    (thread,) = merge_threads()
    return thread


def _cpu_of(thread: threading.Thread) -> float:
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


class _StageClock:
    """CPU time that threads spend in some functions, without that of functions called inside."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = threading.local()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Times the functions of `_STAGES` inside the block."""
        before = [(owner, name, getattr(owner, name)) for _, owner, name in _STAGES]
        for stage, owner, name in _STAGES:
            setattr(owner, name, self._timed(stage, getattr(owner, name)))
        try:
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)

    def _timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            outer = getattr(self._inner, "seconds", 0.0)
            self._inner.seconds = 0.0
            began = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                whole = time.thread_time() - began
                own = whole - self._inner.seconds
                self.seconds[stage] = self.seconds.get(stage, 0.0) + own
                self._inner.seconds = outer + whole

        return timed
