# SPDX-License-Identifier: Apache-2.0
"""A fleet of acted workers on one thread, with a clock of its own."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from dataclasses import fields
from typing import Any

from acted_worker import ActedWorker, worker_config
from counter_world import weights

from rollouts.learner.fragment import Fragment
from rollouts.learner.queue import LearnerQueue
from rollouts.workers import FaultPolicy, QueueLimits
from rollouts.workers.fleet import Fleet, FleetRules
from rollouts.workers.slot import Slot
from rollouts.workers.weight_store import WeightStore
from rollouts.workers.worker_config import WorkerConfig

HANG_TIMEOUT_S = 10.0
START_TIMEOUT_S = 20.0


def fleet_rules(values: dict[str, Any]) -> FleetRules:
    """Puts each value into the part of the rules that it is a field of."""
    parts = [
        {each.name: values.pop(each.name) for each in fields(kind) if each.name in values}
        for kind in (FaultPolicy, QueueLimits)
    ]
    return FleetRules(faults=FaultPolicy(**parts[0]), queue=QueueLimits(**parts[1]), **values)


class World:
    """A fleet, the news that nobody told it yet, and the time.

    `fragment_s` is the time that workers say a fragment took: with the default each is worth a call
    of its own. `make_s` is the CPU time between two readings of its clock, one before and one after
    a call is made.
    """

    def __init__(
        self, num_workers: int, *, fragment_s: float = 1.0, make_s: float = 0.0, **rules: Any
    ) -> None:
        self.fragment_s = fragment_s
        self.workers: dict[tuple[int, int], ActedWorker] = {}
        self.news: list[tuple[Slot, Future[Any]]] = []
        self.now = 0.0
        self.store = WeightStore()
        timeouts = {
            "hang_timeout_s": HANG_TIMEOUT_S,
            "start_timeout_s": START_TIMEOUT_S,
            "restart_window_s": 0.0,
        }
        self.rules = fleet_rules(timeouts | rules)
        self.queue = LearnerQueue(
            1,
            on_change=lambda: self.fleet.submit(),
            is_stale=self.rules.lag.is_stale(lambda: self.store.version),
        )
        readings = itertools.count()
        self.fleet = Fleet(
            worker_config(),
            self.launch,
            weights=self.store,
            queue=self.queue,
            rules=self.rules,
            on_done=lambda slot, future: self.news.append((slot, future)),
            clock=lambda: self.now,
            cpu_clock=lambda: next(readings) * make_s,
        )
        self.delivered: list[Fragment] = []
        self.lags: list[int] = []
        self.fleet.scale_to(num_workers)

    def launch(self, config: WorkerConfig) -> ActedWorker:
        assert (config.worker_id, config.incarnation) not in self.workers
        worker = ActedWorker(config, self.fragment_s)
        self.workers[config.worker_id, config.incarnation] = worker
        return worker

    def publish(self) -> None:
        self.store.publish(weights())
        self.fleet.publish()
        self.fleet.look()

    def tell(self, index: int = 0) -> None:
        self.fleet.handle(self.news.pop(index))

    def tell_all(self) -> None:
        while self.news:
            self.tell()

    @property
    def living(self) -> list[ActedWorker]:
        return [worker for worker in self.workers.values() if not worker.is_killed]

    def appear_all(self) -> None:
        for worker in self.living:
            if not worker.starting.done():
                worker.appear()
        self.tell_all()

    def work(self) -> None:
        """Completes every call in flight."""
        for worker in self.living:
            while worker.is_open:
                worker.complete()
        self.tell_all()

    def get(self, num: int) -> list[Fragment]:
        """Takes `num` fragments if they are there."""
        fragments = self.queue.get(num, timeout_s=0)
        self.lags += [self.store.version - f.min_policy_version for f in fragments]
        self.delivered += fragments
        return fragments

    def wait_and_get(self, num: int) -> list[Fragment]:
        """Takes `num` fragments, letting the workers work while the learner waits."""

        def work() -> None:
            for _ in range(100):
                self.fleet.look()
                levels = self.queue.levels()
                if levels.depth >= levels.wanted:
                    return
                self.appear_all()
                self.work()

        self.queue._on_change = work
        try:
            return self.get(num)
        finally:
            self.queue._on_change = self.fleet.submit

    def outstanding(self) -> int:
        return self.fleet.in_flight + self.queue.depth
