# SPDX-License-Identifier: Apache-2.0
"""Coordinators as actors of Ray, each with a share of the workers: the driver's end, and the actor.

Workers belong to the coordinator that started them: Ray ends them with it, and the next life of the
coordinator starts others. The arrays in a coordinator's answers belong to the driver. Arrays that
are so large that an answer has references to them belong to the coordinator, and are lost with it
unless they came to the driver before, see `parcels.py`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import ray as _typed_ray

from rollouts.errors import WorkerError
from rollouts.support.same_release import make_check
from rollouts.workers.fleet import FleetRules
from rollouts.workers.offers import WeightOffer
from rollouts.workers.on_ray.arrivals import with_arrays
from rollouts.workers.on_ray.futures import as_future
from rollouts.workers.on_ray.parcels import Parcel, ParcelPayload
from rollouts.workers.on_ray.ray_session import (
    WorkerLauncher,
    as_started,
    check_connected,
    connected,
    own_path,
)
from rollouts.workers.share import WorkerShare, share_config, share_rules, share_size
from rollouts.workers.share_reports import ShareReports
from rollouts.workers.slot import Answers, CoordinatorDied
from rollouts.workers.weight_store import WeightStore
from rollouts.workers.worker import WorkerInfo
from rollouts.workers.worker_config import WorkerConfig
from rollouts.workers.worker_failure import WorkerFailure

# ray annotates only half of what it exports
ray: Any = _typed_ray

# s that coordinators may take to report; for a late one its last report counts
_REPORT_S = 2.0


class Shares:
    """Launches coordinators, and keeps what they report. Thread-safe.

    Attributes:
      reports: Their reports so far.
      destination: Place where the fragments' arrays are taken.
      num_coordinators: Coordinators that have an equal share each.
    """

    def __init__(
        self,
        launch: WorkerLauncher,
        rules: FleetRules,
        num_workers: int,
        num_coordinators: int,
        weights: WeightStore,
    ) -> None:
        """Launches none yet.

        Args:
          launch: Starts a worker, in a coordinator's process.
          rules: The rules of a fleet of all workers.
          num_workers: Workers of all coordinators together, until `scale_to`.
          num_coordinators: See above.
          weights: The store that learns the names of the workers' policies.
        """
        self.reports = ShareReports(num_workers, num_coordinators)
        self.destination = launch.destination
        self.num_coordinators = num_coordinators
        self._num_workers = num_workers
        self._weights = weights
        self._recipe = (replace(launch, as_bytes=True), share_rules(rules, num_coordinators))
        self._lock = threading.Lock()
        self._newest: dict[int, ShareHandle] = {}
        # coordinators step no environments, so they reserve no CPU; Ray spreads them over nodes
        self._actor_class = ray.remote(
            num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )(_make_host_class())

    def launch(self, config: WorkerConfig) -> ShareHandle:
        """Starts the life `config.incarnation` of the coordinator `config.worker_id`."""
        number = config.worker_id
        size = share_size(self._num_workers, self.num_coordinators, number)
        recipe = ray.cloudpickle.dumps((share_config(config), *self._recipe))
        with connected():
            actor = self._actor_class.remote(own_path(), make_check(), recipe, size)
        handle = ShareHandle(actor, config, self)
        with self._lock:
            self._newest[number] = handle
        return handle

    def scale_to(self, num_workers: int) -> None:
        """Makes each coordinator scale its share; waits for none.

        To be called where nobody launches meanwhile: later lives begin with the new share.

        Args:
          num_workers: Workers of all coordinators together, at least one for each.
        """
        self._num_workers = num_workers
        self.reports.scale_to(num_workers)
        with self._lock:
            newest = [*self._newest.items()]
        for number, handle in newest:
            handle.scale_to(share_size(num_workers, self.num_coordinators, number))

    def note(self, config: WorkerConfig, report: dict[str, Any]) -> None:
        """Keeps what a coordinator reported."""
        self.reports.note(config.worker_id, config.incarnation, report)
        if report["policies"] is not None:
            self._weights.learn_policies(report["policies"])

    def ask_all(self) -> None:
        """Asks each coordinator that has started for a report; waits `_REPORT_S` at most."""
        with self._lock:
            handles = [handle for handle in self._newest.values() if handle.has_started]
        if not handles:
            return
        # without Ray, as after `close`, the last reports count
        with contextlib.suppress(WorkerError):
            with connected():
                refs = {handle.report(): handle for handle in handles}
            answered, _ = ray.wait([*refs], num_returns=len(refs), timeout=_REPORT_S)
            for ref in answered:
                with contextlib.suppress(ray.exceptions.RayError):
                    self.note(refs[ref].config, ray.get(ref))


class ShareHandle:
    """The driver's end of one life of a coordinator. No method blocks."""

    def __init__(self, actor: Any, config: WorkerConfig, shares: Shares) -> None:
        self.config = config
        self._actor, self._shares = actor, shares
        # made once, because Ray checks options each time that they are given
        self._collect = actor.collect.options(num_returns=2)
        self.has_started = False
        self._offered = 0  # the newest version that was sent to the coordinator
        self._num_calls = self._num_orders = 0

    def start(self) -> Future[WorkerInfo | WorkerFailure]:
        """Makes the coordinator launch its workers; does not wait for them."""

        def read(answer: Any) -> WorkerInfo | WorkerFailure:
            started = as_started(answer)
            self.has_started = isinstance(started, WorkerInfo)
            return started

        with connected():
            return as_future(self._actor.start.remote(), _as_death, read)

    def collect(
        self, offer: WeightOffer, num_fragments: int
    ) -> tuple[Future[Answers], Sequence[ParcelPayload]]:
        """Asks for fragments of any of its workers, all of which come in one parcel."""
        news = (offer,) if offer.version > self._offered else ()
        number, self._num_calls = self._num_calls, self._num_calls + 1
        with connected():
            answers, entries = self._collect.remote(number, num_fragments, *news)
            self._offered = offer.version
            parcel = Parcel(entries)

            def read(answer: Any) -> Answers:
                infos, failure, report = answer
                if report is not None:
                    self._shares.note(self.config, report)
                return (*infos, *([] if failure is None else [failure]))

            payloads = [ParcelPayload(parcel, index) for index in range(num_fragments)]
            answered = as_future(answers, _as_death, read)
            # on any node: reading a parcel of this node now costs no more than reading it later
            if self._shares.destination.takes_here:
                answered = with_arrays(answered, lambda _: [parcel.bring()])
            return answered, payloads

    def scale_to(self, num_workers: int) -> None:
        """Makes the coordinator scale its share, once it has started."""
        self._num_orders += 1
        with connected():
            self._actor.scale_to.remote(self._num_orders, num_workers)

    def report(self) -> Any:
        """Returns Ray's reference to a report. To be called inside `connected`."""
        return self._actor.report.remote()

    def kill(self) -> None:
        """Ends its process; Ray then ends its workers."""
        with contextlib.suppress(Exception), connected():
            ray.kill(self._actor, no_restart=True)


def _as_death(error: BaseException) -> BaseException:
    return CoordinatorDied(f"{type(error).__name__}: {error}")


def _make_host_class() -> type:
    """Makes the actor class around WorkerShare, local for the reason given in ray_session."""

    class CoordinatorHost:
        def __init__(
            self, sys_path: list[str], check: Any, recipe: bytes, num_workers: int
        ) -> None:
            import sys

            sys.path[:] = sys_path + [entry for entry in sys.path if entry not in sys_path]
            self._recipe = recipe
            self._share: Any = None
            # Ray runs the calls of an actor with `async` methods in any order: one of `scale_to`
            # may come before `start`, or before an earlier one
            self._num_workers, self._newest_order = num_workers, 0
            self._refusal = check()

        async def start(self) -> Any:
            # with another release no pickle of the driver's is read, and none is sent to it
            if self._refusal is not None:
                return self._refusal

            from rollouts.workers.on_ray.shares import build_share, describe
            from rollouts.workers.worker_failure import guarded

            def start() -> Any:
                self._share = build_share(self._recipe, self._num_workers)
                return describe()

            return guarded(start)

        async def collect(self, number: int, num_fragments: int, offer: Any = None) -> Any:
            import asyncio

            from rollouts.workers.on_ray.parcels import make_parcel

            asked = self._share.ask(number, num_fragments, offer)
            answer = await asyncio.wrap_future(asked)
            # on a thread beside the event loop, because it waits for arrays
            entries = await asyncio.to_thread(make_parcel, answer.handles)
            infos = [handle.info for handle in answer.handles]
            return (infos, answer.failure, self._share.take_news()), entries

        async def scale_to(self, order: int, num_workers: int) -> None:
            if order < self._newest_order:
                return
            self._num_workers, self._newest_order = num_workers, order
            # there is no share before `start`, which takes the number
            if self._share is not None:
                self._share.scale_to(num_workers)

        async def report(self) -> Any:
            return self._share.report()

    return CoordinatorHost


def build_share(recipe: bytes, num_workers: int) -> WorkerShare:
    """Makes a coordinator from what `Shares.launch` pickled, and launches its workers."""
    config, launch, rules = ray.cloudpickle.loads(recipe)
    return WorkerShare(config, num_workers, launch, rules=rules, check=check_connected)


def describe() -> WorkerInfo:
    """Returns the process and the host of this coordinator."""
    return WorkerInfo(pid=os.getpid(), host=socket.gethostname(), policies=())
