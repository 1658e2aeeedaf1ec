# SPDX-License-Identifier: Apache-2.0
"""Autoscaler: the number of workers, from who waits for whom. No threads, no Ray."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rollouts.checks import whole_number
from rollouts.errors import SpecError

# states of workers that are wanted, see `Slot`
_WANTED = ("starting", "running", "benched")


class Scalable(Protocol):
    """Those methods of a `RolloutCoordinator` that an Autoscaler calls."""

    def stats(self) -> Mapping[str, Any]: ...

    def scale_to(self, num_workers: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _Waits:
    """Seconds that learner and workers had waited at a time."""

    at: float
    learner_s: float
    workers_s: float

    @classmethod
    def read(cls, stats: Mapping[str, Any], now: float) -> _Waits:
        return cls(now, stats["learner_wait_s"], stats["workers_wait_s"])


class Autoscaler:
    """Adds workers while the learner waits for them, and takes some away while they wait for it.

    Call `step` after each update. Every `interval_s` it compares the share of the time in which
    `get` waited with the share in which a running worker did, on average:

    - The learner waited for more than `learner_wait` of the time: the workers become
      1 / (1 - share) times as many, whose data the learner takes without a wait, and at most twice
      as many.
    - It did not, and workers waited for more than `workers_wait` of the time: so many are taken
      away that the others would wait for half of `workers_wait`, and at most half of them.
    - Neither, or both at the same time, because the driver is slower than either: nothing changes.

    Nothing changes while workers start. In "synchronous" mode both sides wait in turns, so workers
    are added, up to `max_workers`, until the learner waits for less than `learner_wait`.
    """

    def __init__(
        self,
        coordinator: Scalable,
        *,
        max_workers: int,
        min_workers: int = 1,
        interval_s: float = 30.0,
        learner_wait: float = 0.1,
        workers_wait: float = 0.3,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins with the workers that the coordinator has; scales none.

        Args:
          coordinator: A `RolloutCoordinator` with workers.
          max_workers: Most workers, up to its placement.max_workers.
          min_workers: Fewest workers; with several coordinators at least one for each.
          interval_s: Seconds between two decisions: a few updates, and longer than a worker needs
            to start.
          learner_wait: Share of the time that the learner may wait, above 0 and below 1.
          workers_wait: Share of the time that workers may wait, above 0 and below 1.
          clock: Returns seconds.

        Raises:
          SpecError: A number is out of range.
        """
        whole_number("min_workers", min_workers, 1)
        whole_number("max_workers", max_workers, min_workers)
        if not 0 < interval_s < math.inf:
            raise SpecError(f"interval_s is {interval_s}, expected a number of seconds above 0")
        for name, share in (("learner_wait", learner_wait), ("workers_wait", workers_wait)):
            if not 0 < share < 1:
                raise SpecError(f"{name} is {share}, expected a share of the time, above 0 below 1")
        self._coordinator, self._clock, self._interval_s = coordinator, clock, interval_s
        self._fewest, self._most = min_workers, max_workers
        self._learner_wait, self._workers_wait = learner_wait, workers_wait
        stats = coordinator.stats()
        self._num_workers = _count(stats, _WANTED)
        self._before = _Waits.read(stats, clock())

    @property
    def num_workers(self) -> int:
        """The number of workers that are wanted."""
        return self._num_workers

    def step(self) -> int:
        """Scales the workers if an interval is over; returns how many are wanted.

        Raises:
          ProtocolError, ClosedError, WorkerError: See `RolloutCoordinator.scale_to`.
        """
        now = self._clock()
        seconds = now - self._before.at
        if seconds < self._interval_s:
            return self._num_workers
        stats = self._coordinator.stats()
        waits = _Waits.read(stats, now)
        # the caller may have scaled them, too
        self._num_workers = _count(stats, _WANTED)
        running = _count(stats, ("running",))
        if running and not _count(stats, ("starting", "draining")):
            num_workers = self._choose(
                (waits.learner_s - self._before.learner_s) / seconds,
                (waits.workers_s - self._before.workers_s) / (seconds * running),
            )
            if num_workers != self._num_workers:
                self._coordinator.scale_to(num_workers)
                self._num_workers = num_workers
        self._before = waits
        return self._num_workers

    def _choose(self, learner_wait: float, workers_wait: float) -> int:
        """Returns how many workers there should be, from the shares of time that each waited."""
        now = wanted = self._num_workers
        # sides that wait in turns have shares of 1 together, at most
        if learner_wait + workers_wait > 1 + self._learner_wait:
            wanted = now  # both wait for the driver
        elif learner_wait > self._learner_wait:
            wanted = math.ceil(now / max(0.5, 1 - learner_wait))
        elif workers_wait > self._workers_wait:
            busy = (1 - workers_wait) / (1 - self._workers_wait / 2)
            wanted = max(math.ceil(now / 2), math.ceil(now * busy))
        return max(self._fewest, min(self._most, wanted))


def _count(stats: Mapping[str, Any], states: tuple[str, ...]) -> int:
    return sum(row["state"] in states for row in stats["workers"])
