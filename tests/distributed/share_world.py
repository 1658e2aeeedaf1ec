# SPDX-License-Identifier: Apache-2.0
"""A driver's fleet of coordinators, each with a fleet of acted workers, on one thread."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from acted_worker import ActedWorker
from fleet_world import World

from rollouts.learner.queue import LearnerQueue
from rollouts.workers.fleet import Fleet, FleetRules
from rollouts.workers.offers import OfferedWeights, WeightOffer
from rollouts.workers.share import share_config, share_rules, share_size
from rollouts.workers.share_calls import ShareAnswer, ShareCalls
from rollouts.workers.share_reports import ShareReports
from rollouts.workers.slot import CoordinatorDied, Slot
from rollouts.workers.worker import WorkerInfo
from rollouts.workers.worker_config import WorkerConfig


class LateFetch:
    """Fetches what is known only when the call was answered."""

    def __init__(self) -> None:
        self.fetch: Callable[[float], Any]

    def __call__(self, timeout_s: float) -> Any:
        return self.fetch(timeout_s)


class ActedShare:
    """The driver's end of a coordinator and the coordinator itself, of which the test is the time.

    Calls come in any order that the test likes, and so do the ends of workers' calls.
    """

    def __init__(
        self,
        config: WorkerConfig,
        num_workers: int,
        rules: FleetRules,
        clock: Callable[[], float],
        fragment_s: float,
    ) -> None:
        self.config, self.fragment_s = config, fragment_s
        self.starting: Future[Any] = Future()
        self.is_killed = self.is_dead = False
        self.workers: dict[tuple[int, int], ActedWorker] = {}
        self.news: list[tuple[Slot, Future[Any]]] = []
        self.asked: list[tuple[int, int, WeightOffer, Future[Any], list[LateFetch]]] = []
        self.open: list[tuple[int, Future[Any]]] = []
        self.queue = LearnerQueue(1)
        self._num_workers, self._num_calls, self._num_reports = num_workers, 0, 0
        self._weights, self._calls = OfferedWeights(), ShareCalls()
        self.fleet = Fleet(
            share_config(config),
            self.launch,
            weights=self._weights,
            queue=self.queue,
            rules=rules,
            on_done=lambda slot, future: self.news.append((slot, future)),
            clock=clock,
        )

    def launch(self, config: WorkerConfig) -> ActedWorker:
        assert (config.worker_id, config.incarnation) not in self.workers
        worker = ActedWorker(config, self.fragment_s)
        self.workers[config.worker_id, config.incarnation] = worker
        return worker

    def start(self) -> Future[Any]:
        return self.starting

    def appear(self) -> None:
        self.fleet.scale_to(self._num_workers)
        self.starting.set_result(WorkerInfo(pid=1, host="here", policies=()))

    def collect(
        self, offer: WeightOffer, num_fragments: int
    ) -> tuple[Future[Any], Sequence[LateFetch]]:
        future: Future[Any] = Future()
        fetches = [LateFetch() for _ in range(num_fragments)]
        if self.is_dead:
            future.set_exception(CoordinatorDied("it died"))
        else:
            self.open.append((num_fragments, future))
            self.asked.append((self._num_calls, num_fragments, offer, future, fetches))
            self._num_calls += 1
        return future, fetches

    def arrive(self, index: int) -> None:
        """Makes one of the calls that are on their way arrive."""
        number, num_fragments, offer, future, fetches = self.asked.pop(index)
        if self._weights.take(offer):
            self.fleet.publish()
        answer = self._calls.ask(self.queue, number, num_fragments)
        answer.add_done_callback(lambda done: self._answer(done.result(), future, fetches))
        self.turn()

    def _answer(self, answer: ShareAnswer, future: Future[Any], fetches: list[LateFetch]) -> None:
        for handle, fetch in zip(answer.handles, fetches, strict=False):
            fetch.fetch = handle.fetch
        infos = [handle.info for handle in answer.handles]
        self.open = [each for each in self.open if each[1] is not future]
        future.set_result((*infos, *([answer.failure] if answer.failure else [])))

    def turn(self, *ended: tuple[Slot, Future[Any]]) -> None:
        """Makes a turn, as the merge thread of a coordinator does."""
        self.fleet.handle(*ended)
        self.fleet.look()
        self._calls.serve(self.queue)

    def report(self) -> dict[str, Any]:
        self._num_reports += 1
        return {**self.fleet.stats(), "number": self._num_reports, "policies": ("",)}

    def scale_to(self, num_workers: int) -> None:
        """Scales the share, or what it begins with; Ray keeps both in this order."""
        self._num_workers = num_workers
        if self.starting.done() and not self.is_dead:
            self.fleet.scale_to(num_workers)
            self.turn()

    @property
    def living(self) -> list[ActedWorker]:
        return [worker for worker in self.workers.values() if not worker.is_killed]

    @property
    def is_open(self) -> bool:
        return bool(self.open)

    @property
    def num_open(self) -> int:
        """Fragments of open calls."""
        return sum(num for num, _ in self.open)

    def complete(self) -> None:
        """Completes every open call, of which workers may die as often as they like."""
        while self.asked:
            self.arrive(0)
        for _ in range(1000):
            for worker in self.living:
                if not worker.starting.done():
                    worker.appear()
                while worker.is_open:
                    worker.complete()
            while self.news:
                self.turn(self.news.pop(0))
            if not self.open:
                return
            self.turn()
        raise AssertionError(f"{self.open} are open, and workers are {self.fleet.stats()}")

    def die(self) -> None:
        """Ends the process, and with it its workers and all that it has."""
        self.is_dead = True
        for worker in self.living:
            worker.kill()
        for future in (self.starting, *(future for _, future in self.open)):
            if not future.done():
                future.set_exception(CoordinatorDied("it died"))
        self.open, self.asked, self.news = [], [], []

    def kill(self) -> None:
        self.is_killed = True
        if not self.is_dead:
            self.die()


class ShareWorld(World):
    """A driver whose fleet has coordinators in its slots."""

    def __init__(
        self, num_coordinators: int, num_workers: int, *, fragment_s: float = 1.0, **rules: Any
    ) -> None:
        self.num_coordinators, self.num_workers = num_coordinators, num_workers
        self.reports = ShareReports(num_workers, num_coordinators)
        self.shares: dict[tuple[int, int], ActedShare] = {}
        super().__init__(num_coordinators, fragment_s=fragment_s, num_shared=num_workers, **rules)

    def launch(self, config: WorkerConfig) -> Any:
        key = (config.worker_id, config.incarnation)
        assert key not in self.shares
        self.shares[key] = ActedShare(
            config,
            share_size(self.num_workers, self.num_coordinators, config.worker_id),
            share_rules(self.rules, self.num_coordinators),
            lambda: self.now,
            self.fragment_s,
        )
        return self.shares[key]

    def scale_to(self, num_workers: int) -> None:
        """Scales all shares, as `RayRunner.scale_to` does."""
        self.fleet.scale_to(self.num_coordinators, num_shared=num_workers)
        self.num_workers = num_workers
        self.reports.scale_to(num_workers)
        for share in self.living:
            number = share.config.worker_id
            share.scale_to(share_size(num_workers, self.num_coordinators, number))

    @property
    def living(self) -> Any:
        return [share for share in self.shares.values() if not (share.is_dead or share.is_killed)]

    def stats(self) -> dict[str, Any]:
        """Returns the one account of all, with what coordinators say that are there."""
        for (number, life), share in self.shares.items():
            if not share.is_dead and share.starting.done():
                self.reports.note(number, life, share.report())
        return self.reports.stats(self.fleet.stats())

    def shuffle_calls(self, dice: random.Random) -> None:
        """Makes calls that are on their way arrive in any order."""
        for share in self.living:
            while share.asked and share.starting.done():
                share.arrive(dice.randrange(len(share.asked)))
