# SPDX-License-Identifier: Apache-2.0
"""RunReport: the results of a simulated run, as numbers and as text."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollouts.errors import RolloutsError
from rollouts.simulation.job_model import JobModel
from rollouts.simulation.modelled_cluster import ModelledCluster
from rollouts.simulation.run_record import Moment, RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Results of a run. Rates and loads are those after the warm-up.

    Attributes:
      steps_per_s: Env-steps delivered in a second.
      workers_steps_per_s: Env-steps per second of all workers while none waits or dies.
      fragments_per_s: Fragments delivered in a second.
      driver_load: Share of the time that the driver's process is busy.
      coordinator_load: Share of the time that a coordinator's actor is busy, the mean of all; 0.0
        where the driver leads the workers.
      learner_load: Share of the time that the learners spend learning.
      learner_link_load, learner_link_bytes_per_s: Means over the links into learners.
      worker_link_bytes_per_s: Bytes per second that leave a node of workers, the mean of all.
      weight_bytes_per_s: Bytes per second of weights that reach a node of workers, the mean of all.
      queue_depth, in_flight: Fragments that wait, and that are requested, averaged over time.
      lag_mean, lag_p99, lag_max, lag_limit: Versions; the limit is None if there is none.
      recovery_s: Seconds from each death until a replacement ran, without deaths still open.
      num_lasting: Deaths that are still open, without a replacement.
      num_node_deaths, num_worker_deaths: Deaths of nodes, and of workers alone.
      num_coordinator_deaths: Deaths of coordinators.
      account: Fragments "requested", "delivered", "queued", "in_flight" and "lost" by reason; the
        first number is the sum of all others.
      num_events: Events that were simulated.
      failure: The error that ended the run, if no worker was left.
      moments: Samples over time.
    """

    duration_s: float
    steps_per_s: float
    workers_steps_per_s: float
    fragments_per_s: float
    driver_load: float
    coordinator_load: float
    learner_load: float
    learner_link_load: float
    learner_link_bytes_per_s: float
    worker_link_bytes_per_s: float
    weight_bytes_per_s: float
    queue_depth: float
    in_flight: float
    lag_mean: float
    lag_p99: int
    lag_max: int
    lag_limit: int | None
    recovery_s: tuple[float, ...]
    num_lasting: int
    num_node_deaths: int
    num_worker_deaths: int
    num_coordinator_deaths: int
    account: Mapping[str, Any]
    num_events: int
    failure: str | None
    moments: tuple[Moment, ...]

    @property
    def efficiency(self) -> float:
        """`steps_per_s` as a share of `workers_steps_per_s`."""
        return self.steps_per_s / self.workers_steps_per_s

    @property
    def bottleneck(self) -> str:
        """The busiest part; "workers" if no other part is busy nearly all the time."""
        loads = {
            "the driver": self.driver_load,
            "the coordinators": self.coordinator_load,
            "the learners": self.learner_load,
            "the learners' links": self.learner_link_load,
        }
        busiest = max(loads, key=lambda name: loads[name])
        return busiest if loads[busiest] > 0.9 else "the workers"

    @classmethod
    def of(
        cls,
        job: JobModel,
        *,
        since: Moment,
        until: Moment,
        record: RunRecord,
        cluster: ModelledCluster,
        account: Mapping[str, Any],
        num_coordinator_deaths: int,
        num_events: int,
        failure: RolloutsError | None,
    ) -> RunReport:
        """Makes the report of what happened between two moments."""
        seconds = max(until.time_s - since.time_s, 1e-9)
        steps_per_s = (until.env_steps - since.env_steps) / seconds
        counted = [one for one in record.moments if one.time_s >= since.time_s] or [until]
        lags = sorted(record.lags.elements()) or [0]
        link = (until.fragment_bytes - since.fragment_bytes) / seconds
        weight = (until.weight_bytes - since.weight_bytes) / seconds
        num_nodes = -(-job.workers.num_workers // job.nodes.workers_per_node)
        per_learner = link / job.learners.num_learners
        return cls(
            duration_s=until.time_s,
            steps_per_s=steps_per_s,
            workers_steps_per_s=job.workers.steps_per_s,
            fragments_per_s=steps_per_s / job.workers.fragment_steps,
            driver_load=(until.driver_busy_s - since.driver_busy_s) / seconds
            + job.driver.idle_load,
            coordinator_load=(until.coordinator_busy_s - since.coordinator_busy_s) / seconds,
            learner_load=(until.learner_busy_s - since.learner_busy_s) / seconds,
            learner_link_load=per_learner / job.nodes.bytes_per_s,
            learner_link_bytes_per_s=per_learner,
            worker_link_bytes_per_s=link / num_nodes,
            weight_bytes_per_s=weight / num_nodes,
            queue_depth=sum(one.queue_depth for one in counted) / len(counted),
            in_flight=sum(one.in_flight for one in counted) / len(counted),
            lag_mean=sum(lags) / len(lags),
            lag_p99=lags[len(lags) * 99 // 100],
            lag_max=lags[-1],
            lag_limit=job.lag.max_lag,
            recovery_s=tuple(cluster.recovery_s),
            num_lasting=len(cluster.lost_at),
            num_node_deaths=cluster.num_node_deaths,
            num_worker_deaths=cluster.num_worker_deaths,
            num_coordinator_deaths=num_coordinator_deaths,
            account=_account_of(account),
            num_events=num_events,
            failure=None if failure is None else str(failure),
            moments=tuple(record.moments),
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns all results as plain values."""
        return {
            **dataclasses.asdict(self),
            "efficiency": self.efficiency,
            "bottleneck": self.bottleneck,
        }

    def to_text(self) -> str:
        """Returns a table."""
        limit = "no limit" if self.lag_limit is None else f"limit {self.lag_limit}"
        lag = f"mean {self.lag_mean:.2f}, p99 {self.lag_p99}, max {self.lag_max} ({limit})"
        into, out = self.learner_link_bytes_per_s, self.worker_link_bytes_per_s
        weights = f"{_bytes(self.weight_bytes_per_s)}/s of weights in"
        lost = ", ".join(f"{count} {why}" for why, count in self.account["lost"].items())
        rows = [
            ("throughput", f"{self.steps_per_s:,.0f} env-steps/s"),
            ("of the workers' sum", f"{self.efficiency:.3f}; most busy: {self.bottleneck}"),
            ("fragments", f"{self.fragments_per_s:,.1f}/s"),
            ("queue depth", f"{self.queue_depth:,.1f} queued, {self.in_flight:,.1f} in flight"),
            ("policy lag", lag),
            ("driver load", self._loads_text()),
            ("link of a learner", f"{_bytes(into)}/s in, load {self.learner_link_load:.2f}"),
            ("link of a worker's node", f"{_bytes(out)}/s out, {weights}"),
            ("deaths", self._deaths_text()),
            ("time to recover", self._recovery_text()),
            ("lost fragments", lost or "none"),
            ("simulated", f"{self.duration_s:,.0f} s in {self.num_events:,} events"),
        ]
        if self.failure is not None:
            rows.append(("ended early", self.failure))
        return "\n".join(f"{name:26}{text}" for name, text in rows)

    def _loads_text(self) -> str:
        own = f"; a coordinator {self.coordinator_load:.2f}" if self.coordinator_load else ""
        return f"{self.driver_load:.2f} of a core{own}; learners {self.learner_load:.2f}"

    def _deaths_text(self) -> str:
        return (
            f"{self.num_node_deaths} nodes, {self.num_worker_deaths} workers alone, "
            f"{self.num_coordinator_deaths} coordinators"
        )

    def _recovery_text(self) -> str:
        if not self.recovery_s:
            return "nothing died" if not self.num_lasting else "not yet"
        mean = sum(self.recovery_s) / len(self.recovery_s)
        rest = f"; {self.num_lasting} not yet" if self.num_lasting else ""
        return f"mean {mean:.1f} s, longest {max(self.recovery_s):.1f} s{rest}"


def _account_of(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the account of `RolloutCoordinator.stats`, in fragments."""
    fragments = stats["fragments"]
    lost = Counter(fragments["discarded"]) + Counter(fragments["interrupted"])
    names = ("requested", "delivered", "queued", "in_flight")
    return {**{name: fragments[name] for name in names}, "lost": dict(lost)}


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"
