# SPDX-License-Identifier: Apache-2.0
"""Workers played by the test: it says when they appear, complete a fragment, fail or die."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from counter_world import CounterCollector, make_policy, weights

from rollouts.workers import CollectOptions, Fragment, RolloutWorker, WorkerConfig
from rollouts.workers.offers import WeightOffer
from rollouts.workers.worker import WorkerInfo
from rollouts.workers.worker_failure import WorkerFailure


def worker_config() -> WorkerConfig:
    """The settings of a fleet of acted workers."""
    return WorkerConfig(
        id="Counter",
        num_envs=2,
        rollout_length=4,
        num_threads=1,
        seed=0,
        env_options={},
        collect=CollectOptions(make_collector=CounterCollector),
    )


class ActedWorker:
    """A worker whose calls end when the test says so.

    A FleetThread asks on its own thread, so that a call may come while the test ends the others.
    """

    def __init__(self, config: WorkerConfig, fragment_s: float = 1.0) -> None:
        self.config = config
        self.fragment_s = fragment_s  # the time that it says a fragment took
        self.starting: Future[Any] = Future()
        self.calls: list[tuple[WeightOffer, Future[Any], list[Any]]] = []
        self.is_killed = self.is_dead = False
        self._worker = RolloutWorker(config, make_policy)
        self._num_answered = 0
        # guards calls and is_dead; no future ends while it is held, as that calls the FleetThread
        self._lock = threading.Lock()

    def start(self) -> Future[Any]:
        return self.starting

    def collect(
        self, offer: WeightOffer, num_fragments: int
    ) -> tuple[Future[Any], Sequence[Callable[[float], Any]]]:
        future: Future[Any] = Future()
        payloads: list[Any] = [None] * num_fragments
        with self._lock:
            is_dead = self.is_dead
            self.calls.append((offer, future, payloads))
        if is_dead:
            future.set_exception(OSError("actor died"))
        return future, [
            lambda timeout_s, index=index: payloads[index] for index in range(num_fragments)
        ]

    def kill(self) -> None:
        self.is_killed = True

    def appear(self) -> None:
        self.starting.set_result(WorkerInfo(pid=1, host="here", policies=("",)))

    def complete(self, index: int | None = None, num_fragments: int | None = None) -> None:
        """Completes the oldest open call, or the one given; all its fragments, or only so many."""
        index = self._num_answered if index is None else index
        future, infos = self.calls[index][1], self._collect(index, num_fragments)
        self._num_answered += 1
        future.set_result(infos if len(self.calls[index][2]) > 1 else infos[0])

    def _collect(self, index: int, num_fragments: int | None) -> tuple[Any, ...]:
        """Collects the first fragments of a call; returns what describes them."""
        offer, _, payloads = self.calls[index]
        infos = []
        for place in range(len(payloads) if num_fragments is None else num_fragments):
            fragment = self._worker.collect(offer)
            payloads[place] = fragment.payload
            infos.append(replace(fragment.info, collect_s=self.fragment_s))
        return tuple(infos)

    def lose(self) -> Fragment:
        """Collects a fragment that answers no call."""
        return self._worker.collect(WeightOffer.of(1, weights()))

    @property
    def is_open(self) -> bool:
        return any(not future.done() for _, future, _ in self.calls)

    @property
    def num_asked(self) -> int:
        """Fragments of the oldest open call."""
        return len(self.calls[self._num_answered][2])

    def raise_error(self, num_completed: int = 0) -> None:
        """Fails in the oldest open call, after so many of its fragments."""
        _, future, payloads = self.calls[self._num_answered]
        infos = self._collect(self._num_answered, num_completed)
        self._num_answered += 1
        failure = WorkerFailure(message="", traceback="oops")
        future.set_result((*infos, failure) if len(payloads) > 1 else failure)

    def die(self) -> None:
        """Fails all open calls and any further one, as Ray does."""
        with self._lock:
            self.is_dead = True
            futures = [self.starting, *(call[1] for call in self.calls)]
        for future in futures:
            if not future.done():
                future.set_exception(OSError("actor died"))
