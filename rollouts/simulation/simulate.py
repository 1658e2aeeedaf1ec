# SPDX-License-Identifier: Apache-2.0
"""`simulate`: a whole run in simulated time."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from rollouts.checks import whole_number
from rollouts.errors import SpecError
from rollouts.learner.fragment import FragmentHandle
from rollouts.simulation.event_loop import EventLoop
from rollouts.simulation.job_model import JobModel
from rollouts.simulation.modelled_cluster import ModelledCluster, ModelledNode
from rollouts.simulation.modelled_learner import ModelledLearner
from rollouts.simulation.modelled_process import ModelledProcess
from rollouts.simulation.modelled_share import ModelledShare
from rollouts.simulation.modelled_worker import FragmentTimes, ModelledWorker
from rollouts.simulation.run_record import Moment, RunRecord
from rollouts.simulation.run_report import RunReport
from rollouts.workers.share import driver_rules
from rollouts.workers.share_reports import ShareReports
from rollouts.workers.slot import Launch
from rollouts.workers.small_arrays import LARGE_BYTES
from rollouts.workers.weight_store import WeightStore
from rollouts.workers.worker_config import WorkerConfig

_NUM_MOMENTS = 240


def simulate(
    job: JobModel, *, duration_s: float = 600.0, warm_up_s: float | None = None, seed: int = 0
) -> RunReport:
    """Runs a job in simulated time: the fleet, the queue and the rules of a real coordinator.

    Args:
      job: The job to simulate.
      duration_s: Simulated seconds.
      warm_up_s: Seconds at the start in which throughput is not counted and nothing dies; None for
        the start of the workers and four fragments, at most half of duration_s.
      seed: Another seed gives another run; the same seed gives the same run, event by event.
    Returns:
      The results.
    Raises:
      SpecError: A number is out of range.
    """
    if not 0 < duration_s < math.inf:
        raise SpecError(f"duration_s is {duration_s}, expected seconds above 0")
    whole_number("seed", seed, 0)
    if warm_up_s is None:
        warm_up_s = min(job.workers.start_s + 4 * job.workers.mean_s, duration_s / 2)
    if not 0 <= warm_up_s < duration_s:
        raise SpecError(f"warm_up_s is {warm_up_s}, expected less than duration_s ({duration_s})")
    run = SimulatedRun(job, seed=seed)
    with _no_log_of_deaths():
        run.go_on(duration_s, warm_up_s)
    return run.report()


class SimulatedRun:
    """A run that can be continued event by event.

    Attributes:
      loop, cluster, driver, learner, record: Its parts.
      shares: All lives of all coordinators; empty where the driver leads the workers.
      workers: All incarnations, if `keep_workers` is set.
    """

    def __init__(
        self,
        job: JobModel,
        *,
        seed: int = 0,
        keep_workers: bool = False,
        on_delivery: Callable[[Sequence[FragmentHandle]], None] = lambda handles: None,
    ) -> None:
        """Makes all parts; simulates nothing yet.

        Args:
          job, seed: See `simulate`.
          keep_workers: Whether `workers` keeps all incarnations.
          on_delivery: Called with the fragments that learners got.
        """
        self.job = job
        self.loop, self.record = EventLoop(), RunRecord()
        random = np.random.default_rng(seed)
        self.cluster = ModelledCluster(job, self.loop, random)
        self.workers: list[ModelledWorker] = []
        self._times = FragmentTimes(job.workers, random)
        self._keep_workers = keep_workers
        self._weights = WeightStore()
        self._counted_from: Moment | None = None
        self.shares: list[ModelledShare] = []
        self._reports = ShareReports(job.workers.num_workers, job.num_coordinators)
        self._num_coordinator_deaths = 0
        self._random = random
        self.driver = self._make_driver()
        self.learner = ModelledLearner(
            job,
            self.loop,
            driver=self.driver,
            cluster=self.cluster,
            weights=self._weights,
            record=self.record,
            on_delivery=on_delivery,
        )

    def go_on(
        self,
        duration_s: float,
        warm_up_s: float = 0.0,
        after_each: Callable[[], None] | None = None,
    ) -> None:
        """Starts all parts and simulates some seconds; calls `after_each` after each event."""
        job = self.job
        several = job.num_coordinators > 1
        self.driver.begin(job.num_coordinators if several else job.workers.num_workers)
        self.learner.begin()
        self._sample_every(duration_s / _NUM_MOMENTS)
        self.loop.at(warm_up_s, self._end_warm_up)
        self.loop.run_until(duration_s, after_each)

    def report(self) -> RunReport:
        """Returns the results up to now."""
        return RunReport.of(
            self.job,
            since=self._counted_from or self._moment(),
            until=self._moment(),
            record=self.record,
            cluster=self.cluster,
            account=self.stats(),
            num_coordinator_deaths=self._num_coordinator_deaths,
            num_events=self.loop.num_events,
            failure=self.learner.failure,
        )

    @property
    def living_shares(self) -> list[ModelledShare]:
        """Coordinators that live."""
        return [share for share in self.shares if not share.is_over]

    def stats(self) -> dict[str, Any]:
        """Returns what `RolloutCoordinator.stats` does."""
        own = self.driver.fleet.stats()
        if self.job.num_coordinators == 1:
            return own
        for share in self.living_shares:
            self._note(share, share.report())
        return self._reports.stats(own)

    def _note(self, share: ModelledShare, report: dict[str, Any]) -> None:
        self._reports.note(share.config.worker_id, share.config.incarnation, report)

    def _make_driver(self) -> ModelledProcess:
        job, here = self.job, self.cluster.learner_nodes[0]
        num_slots, rules = job.workers.num_workers, job.rules
        start: Launch = partial(
            self._launch, owner=here, target=here if self.cluster.brings else None
        )
        if job.num_coordinators > 1:
            num_slots, rules = job.num_coordinators, driver_rules(rules, num_slots)
            start = self._launch_share
        return ModelledProcess(
            job.driver,
            self.loop,
            config=job.config,
            num_slots=num_slots,
            rules=rules,
            weights=self._weights,
            launch=start,
            after_turn=lambda: self.learner.try_take(),
        )

    def _launch_share(self, config: WorkerConfig) -> ModelledShare:
        # as Ray does, a worker brings small arrays to the process that owns them
        is_small = self.job.workers.fragment_bytes < LARGE_BYTES

        def launch(config: WorkerConfig, node: ModelledNode) -> ModelledWorker:
            return self._launch(config, owner=node, target=node if is_small else None)

        share = ModelledShare(
            config, self.job, self.loop, self.cluster, launch=launch, on_report=self._note
        )
        self.shares.append(share)
        return share

    def _launch(
        self, config: WorkerConfig, *, owner: ModelledNode, target: ModelledNode | None
    ) -> ModelledWorker:
        worker = ModelledWorker(
            config,
            owner=owner,
            target=target,
            is_slow=config.worker_id < self.job.workers.num_stragglers,
            model=self.job.workers,
            cluster=self.cluster,
            loop=self.loop,
            times=self._times,
            latency_s=self.job.nodes.latency_s,
        )
        if self._keep_workers:
            self.workers.append(worker)
        return worker

    def _end_warm_up(self) -> None:
        self._counted_from = self._moment()
        self.cluster.begin_deaths()
        self._kill_later()

    def _kill_later(self) -> None:
        per_hour = self.job.driver.deaths_per_hour * self.job.num_coordinators
        if per_hour > 0:
            wait_s = self._random.exponential(3600.0 / per_hour)
            self.loop.at(self.loop.now + wait_s, self._kill_one)

    def _kill_one(self) -> None:
        """Ends a coordinator's process, if one lives; the driver's fleet replaces it."""
        self._kill_later()
        if living := self.living_shares:
            share = living[int(self._random.integers(len(living)))]
            self._num_coordinator_deaths += 1
            self.cluster.lose_workers_of(share.config.worker_id)
            share.kill()

    def _sample_every(self, seconds: float) -> None:
        self.record.moments.append(self._moment(self.record.mean_lag()))
        self.loop.at(self.loop.now + seconds, self._sample_every, seconds)

    def _moment(self, lag: float = 0.0) -> Moment:
        driver, cluster = self.driver, self.cluster
        return Moment(
            time_s=self.loop.now,
            env_steps=self.record.env_steps,
            queue_depth=driver.queue.depth,
            in_flight=driver.fleet.in_flight,
            driver_busy_s=driver.busy_s,
            coordinator_busy_s=sum(one.process.busy_s for one in self.shares)
            / self.job.num_coordinators,
            learner_busy_s=self.record.learner_busy_s,
            workers=cluster.num_running,
            lag=lag,
            fragment_bytes=sum(node.into.num_bytes for node in cluster.learner_nodes),
            weight_bytes=cluster.gone_bytes + sum(node.into.num_bytes for node in cluster.nodes),
        )


@contextmanager
def _no_log_of_deaths() -> Iterator[None]:
    """Keeps the fleet from logging simulated deaths."""
    log = logging.getLogger("rollouts.workers.fleet")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
