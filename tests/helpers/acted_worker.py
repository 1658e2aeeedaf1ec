# SPDX-License-Identifier: Apache-2.0
"""Workers played by the test: it says when they appear, complete a fragment, fail or die."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
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

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self.starting: Future[Any] = Future()
        self.calls: list[tuple[WeightOffer, Future[Any], dict[str, Any]]] = []
        self.is_killed = self.is_dead = False
        self._worker = RolloutWorker(config, make_policy)
        self._num_answered = 0
        # guards calls and is_dead; no future ends while it is held, as that calls the FleetThread
        self._lock = threading.Lock()

    def start(self) -> Future[Any]:
        return self.starting

    def collect(self, offer: WeightOffer) -> tuple[Future[Any], Callable[[float], Any]]:
        future: Future[Any] = Future()
        box: dict[str, Any] = {}
        with self._lock:
            is_dead = self.is_dead
            self.calls.append((offer, future, box))
        if is_dead:
            future.set_exception(OSError("actor died"))
        return future, lambda timeout_s: box["batch"]

    def kill(self) -> None:
        self.is_killed = True

    def appear(self) -> None:
        self.starting.set_result(WorkerInfo(pid=1, host="here", policies=("",)))

    def complete(self, index: int | None = None) -> None:
        """Completes the oldest open call, or the one given."""
        index = self._num_answered if index is None else index
        offer, future, box = self.calls[index]
        fragment = self._worker.collect(offer)
        box["batch"] = fragment.payload
        self._num_answered += 1
        future.set_result(fragment.info)

    def lose(self) -> Fragment:
        """Collects a fragment that answers no call."""
        return self._worker.collect(WeightOffer.of(1, weights()))

    @property
    def is_open(self) -> bool:
        return any(not future.done() for _, future, _ in self.calls)

    def raise_error(self) -> None:
        _, future, _ = self.calls[self._num_answered]
        self._num_answered += 1
        future.set_result(WorkerFailure(message="", traceback="oops"))

    def die(self) -> None:
        """Fails all open calls and any further one, as Ray does."""
        with self._lock:
            self.is_dead = True
            futures = [self.starting, *(call[1] for call in self.calls)]
        for future in futures:
            if not future.done():
                future.set_exception(OSError("actor died"))
