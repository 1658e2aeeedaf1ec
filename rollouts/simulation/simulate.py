# SPDX-License-Identifier: Apache-2.0
"""`simulate`: a whole run in simulated time."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from rollouts.checks import whole_number
from rollouts.errors import SpecError
from rollouts.learner.fragment import FragmentHandle
from rollouts.simulation.event_loop import EventLoop
from rollouts.simulation.job_model import JobModel
from rollouts.simulation.modelled_cluster import ModelledCluster
from rollouts.simulation.modelled_driver import ModelledDriver
from rollouts.simulation.modelled_learner import ModelledLearner
from rollouts.simulation.modelled_worker import FragmentTimes, ModelledWorker
from rollouts.simulation.run_record import Moment, RunRecord
from rollouts.simulation.run_report import RunReport
from rollouts.workers.weights import WeightStore
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
      loop, cluster, drivers, learner, record: Its parts.
      workers: All incarnations, if `keep_workers` is set.
      dead_drivers: Coordinators that died, whose accounts are kept.
      dead_drivers: Coordinators that died, whose accounts stay.
    """

    def __init__(
        self,
        job: JobModel,
        *,
        seed: int = 0,
        keep_workers: bool = False,
        on_delivery: Callable[[ModelledDriver, Sequence[FragmentHandle]], None] = (
            lambda driver, handles: None
        ),
    ) -> None:
        """Makes all parts; simulates nothing yet.

        Args:
          job, seed: See `simulate`.
          keep_workers: Whether `workers` keeps all incarnations.
          on_delivery: Called with a coordinator and the fragments that it delivered.
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
        self.dead_drivers: list[ModelledDriver] = []
        self._random = random
        self.drivers = [self._make_driver(number, 0) for number in range(job.num_coordinators)]
        self.learner = ModelledLearner(
            job,
            self.loop,
            drivers=self.drivers,
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
        for driver in self.drivers:
            driver.begin(self.job.workers_each)
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
            accounts=[driver.fleet.stats() for driver in self.all_drivers],
            num_coordinator_deaths=len(self.dead_drivers),
            num_events=self.loop.num_events,
            failure=self.learner.failure,
        )

    @property
    def all_drivers(self) -> list[ModelledDriver]:
        """Living and dead coordinators."""
        return [*(one for one in self.drivers if not one.is_dead), *self.dead_drivers]

    def _make_driver(self, number: int, life: int) -> ModelledDriver:
        def launch(config: WorkerConfig) -> ModelledWorker:
            index = config.worker_id * self.job.num_coordinators + number
            worker = ModelledWorker(
                config,
                number,
                life,
                is_slow=index < self.job.workers.num_stragglers,
                model=self.job.workers,
                cluster=self.cluster,
                loop=self.loop,
                times=self._times,
                latency_s=self.job.nodes.latency_s,
            )
            if self._keep_workers:
                self.workers.append(worker)
            return worker

        return ModelledDriver(
            self.job,
            self.loop,
            number=number,
            life=life,
            weights=self._weights,
            launch=launch,
            after_turn=lambda: self.learner.try_take(),
        )

    def _end_warm_up(self) -> None:
        self._counted_from = self._moment()
        self.cluster.begin_deaths()
        self._kill_later()

    def _kill_later(self) -> None:
        per_hour = self.job.driver.deaths_per_hour * len(self.drivers)
        if per_hour > 0:
            wait_s = self._random.exponential(3600.0 / per_hour)
            self.loop.at(self.loop.now + wait_s, self._kill_one)

    def _kill_one(self) -> None:
        """Ends a coordinator, if one lives; another one replaces it."""
        self._kill_later()
        living = [driver for driver in self.drivers if not driver.is_dead]
        if not living:
            return
        driver = living[int(self._random.integers(len(living)))]
        self.cluster.lose_workers_of(driver.number)
        driver.die()
        self.dead_drivers.append(driver)
        self.learner.lost(driver)
        self.loop.at(self.loop.now + self.job.driver.restart_s, self._replace, driver)

    def _replace(self, dead: ModelledDriver) -> None:
        driver = self._make_driver(dead.number, dead.life + 1)
        self.drivers[dead.number] = driver
        driver.begin(self.job.workers_each)

    def _sample_every(self, seconds: float) -> None:
        self.record.moments.append(self._moment(self.record.mean_lag()))
        self.loop.at(self.loop.now + seconds, self._sample_every, seconds)

    def _moment(self, lag: float = 0.0) -> Moment:
        drivers, cluster = self.drivers, self.cluster
        return Moment(
            time_s=self.loop.now,
            env_steps=self.record.env_steps,
            queue_depth=sum(driver.queue.depth for driver in drivers),
            in_flight=sum(driver.fleet.in_flight for driver in drivers),
            driver_busy_s=sum(driver.busy_s for driver in self.all_drivers) / len(drivers),
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
