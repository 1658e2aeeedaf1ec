# SPDX-License-Identifier: Apache-2.0
"""JobModel: a job to simulate, in numbers that can be measured; a dataclass for each part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rollouts.checks import whole_number
from rollouts.errors import SpecError
from rollouts.support.field_checks import check_one_of, check_type, is_number
from rollouts.workers.coordinator_options import FaultPolicy, QueueLimits
from rollouts.workers.fleet import FleetRules
from rollouts.workers.lag import LagRule, SyncMode
from rollouts.workers.worker_config import WorkerConfig

WeightSource = Literal["learner", "tree"]


def _check_least(name: str, value: float, least: float) -> None:
    if not (is_number(value) and least <= value < math.inf):
        raise SpecError(f"{name} is {value!r}, expected a number of at least {least:g}")


def _check_share(name: str, value: float) -> None:
    if not (is_number(value) and 0 <= value <= 1):
        raise SpecError(f"{name} is {value!r}, expected a share from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerModel:
    """Workers, all alike but for stragglers.

    Attributes:
      num_workers: Workers of all coordinators together.
      num_envs: Environments B of each.
      rollout_length: Steps T of a fragment.
      fragment_s: Seconds of a fragment. One number is the median of a log-normal distribution;
        several numbers are measured times (`FragmentInfo.collect_s`), from which times are drawn.
      spread: Standard deviation of the logarithm, if fragment_s is one number.
      call_s: Further seconds between two fragments of a worker, such as Ray's part of a call.
      straggler_share: Share of workers that are always slower.
      straggler_factor: Factor on the stragglers' times.
      fragment_bytes: Bytes of a fragment's arrays.
      start_s: Seconds from getting a place on a node to the first call.
    """

    num_workers: int
    num_envs: int = 1000
    rollout_length: int = 128
    fragment_s: float | Sequence[float] = 8.0
    spread: float = 0.1
    call_s: float = 1e-3
    straggler_share: float = 0.0
    straggler_factor: float = 3.0
    fragment_bytes: int = 4_000_000
    start_s: float = 8.0

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range."""
        for name in ("num_workers", "num_envs", "rollout_length"):
            whole_number(f"workers.{name}", getattr(self, name), 1)
        whole_number("workers.fragment_bytes", self.fragment_bytes, 0)
        if not self.times or not all(0 < time < math.inf for time in self.times):
            raise SpecError(
                f"workers.fragment_s is {self.fragment_s!r}, expected seconds above 0: one number, "
                "or measured ones"
            )
        for name in ("spread", "call_s", "start_s"):
            _check_least(f"workers.{name}", getattr(self, name), 0.0)
        _check_share("workers.straggler_share", self.straggler_share)
        _check_least("workers.straggler_factor", self.straggler_factor, 1.0)

    @property
    def times(self) -> tuple[float, ...]:
        """`fragment_s` as measured times."""
        given = self.fragment_s
        return tuple(given) if isinstance(given, Sequence) else (float(given),)

    @property
    def mean_s(self) -> float:
        """The mean seconds of a fragment of a worker that is no straggler."""
        mean = sum(self.times) / len(self.times)
        return mean if len(self.times) > 1 else mean * math.exp(self.spread**2 / 2)

    @property
    def fragment_steps(self) -> int:
        """Env-steps of a fragment."""
        return self.num_envs * self.rollout_length

    @property
    def num_stragglers(self) -> int:
        """Workers that are always slower."""
        return round(self.num_workers * self.straggler_share)

    @property
    def steps_per_s(self) -> float:
        """Env-steps per second of all workers while none waits or dies."""
        slow_s = self.mean_s * self.straggler_factor + self.call_s
        num_fast = self.num_workers - self.num_stragglers
        rate = num_fast / (self.mean_s + self.call_s) + self.num_stragglers / slow_s
        return rate * self.fragment_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeModel:
    """Machines, their network, and their deaths, which come at random.

    Attributes:
      workers_per_node: Workers for which a node has room.
      spare_nodes: Nodes that are free at first.
      bytes_per_s: Bandwidth of a node's link in each direction, or of its object store if that is
        less.
      latency_s: Seconds that a message takes.
      deaths_per_hour: Share of the nodes that die in an hour.
      detect_s: Seconds until the driver knows that a node is gone.
      replace_s: Seconds until a new node replaces one that died.
      worker_deaths_per_hour: Share of the workers whose processes die in an hour, while their nodes
        go on; the driver notices at once.
    """

    workers_per_node: int = 8
    spare_nodes: int = 2
    bytes_per_s: float = 3e9
    latency_s: float = 2e-4
    deaths_per_hour: float = 0.0
    detect_s: float = 15.0
    replace_s: float = 300.0
    worker_deaths_per_hour: float = 0.0

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range."""
        whole_number("nodes.workers_per_node", self.workers_per_node, 1)
        whole_number("nodes.spare_nodes", self.spare_nodes, 0)
        if not 0 < self.bytes_per_s < math.inf:
            raise SpecError(f"nodes.bytes_per_s is {self.bytes_per_s}, expected a number above 0")
        for name in (
            *("latency_s", "deaths_per_hour", "detect_s", "replace_s"),
            "worker_deaths_per_hour",
        ):
            _check_least(f"nodes.{name}", getattr(self, name), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverModel:
    """Microseconds of a process that leads workers, as `rollouts bench coordinator` measures them.

    They hold for the driver, and for each coordinator's process where there are several.

    Attributes:
      take_us: Cost of each call that ends, with one fragment: future, inbox, state machine, queue.
      further_us: Cost of each further fragment of a call.
      submit_us: Cost of each call, with one fragment.
      submit_further_us: Cost of each further fragment that a call asks for.
      resolve_us: Cost of each fragment whose arrays are fetched in this process: by the learner, or
        by a coordinator that puts them into a parcel; 0 if learners' actors fetch them, see
        `RolloutCoordinator.hand_over`.
      publish_us: Cost of each version of the weights.
      idle_load: Share of a core that the process uses while nothing happens, for Ray's threads and
        the coordinator's clock; 0.0 if the costs above include it.
      deaths_per_hour: How often the process of each of several coordinators dies in an hour. Its
        workers, and the requests that it has not answered, are lost with it.
      restart_s: Seconds until a new coordinator starts workers in place of a dead one's.
    """

    take_us: float = 130.0
    further_us: float = 30.0
    submit_us: float = 90.0
    submit_further_us: float = 10.0
    resolve_us: float = 60.0
    publish_us: float = 300.0
    idle_load: float = 0.0
    deaths_per_hour: float = 0.0
    restart_s: float = 8.0

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range."""
        for name in (
            *("take_us", "further_us", "submit_us", "submit_further_us", "resolve_us"),
            *("publish_us", "idle_load", "deaths_per_hour", "restart_s"),
        ):
            _check_least(f"driver.{name}", getattr(self, name), 0.0)

    def call_us(self, num_fragments: int) -> float:
        """Returns the cost of a call that ends with a number of fragments."""
        return self.take_us + (num_fragments - 1) * self.further_us

    def making_us(self, num_fragments: int) -> float:
        """Returns the cost of making a call for a number of fragments."""
        return self.submit_us + (num_fragments - 1) * self.submit_further_us


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerModel:
    """Learners that share each batch equally and publish one sequence of weight versions.

    Attributes:
      num_learners: Learners, each on its own node; the first coordinator is on the first one's.
      fragments_per_update: Fragments of an update, for all learners together.
      steps_per_s: Env-steps per second that one learner learns from.
      updates_per_version: Updates between two versions of the weights.
      prefetch: Whether the next batch is fetched while this one is learned from.
      weight_bytes: Bytes of a version.
      weights_from: "learner": each node gets them from the learner. "tree": each node passes them
        on to two others. The time of Ray's object store, where a node may get them from any copy,
        lies between the two.
    """

    num_learners: int = 1
    fragments_per_update: int = 8
    steps_per_s: float = 1e9
    updates_per_version: int = 1
    prefetch: bool = False
    weight_bytes: int = 10_000_000
    weights_from: WeightSource = "learner"

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range."""
        for name in ("num_learners", "fragments_per_update", "updates_per_version"):
            whole_number(f"learners.{name}", getattr(self, name), 1)
        whole_number("learners.weight_bytes", self.weight_bytes, 0)
        if not self.steps_per_s > 0:
            raise SpecError(
                f"learners.steps_per_s is {self.steps_per_s}, expected a number above 0"
            )
        check_one_of("learners.weights_from", self.weights_from, get_args(WeightSource))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    """A run: its workers, nodes, driver and learners, and the rules of its coordinators.

    Attributes:
      num_coordinators: See `RolloutCoordinator`.
      sync_mode, queue, faults: See `RolloutCoordinator`.
    """

    workers: WorkerModel
    nodes: NodeModel = NodeModel()
    driver: DriverModel = DriverModel()
    learners: LearnerModel = LearnerModel()
    num_coordinators: int = 1
    sync_mode: SyncMode = "free_running"
    queue: QueueLimits = QueueLimits()
    faults: FaultPolicy = FaultPolicy()

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range, or parts do not fit together."""
        check_type("workers", self.workers, WorkerModel, "WorkerModel(num_workers=8)")
        check_type("nodes", self.nodes, NodeModel, "NodeModel()")
        check_type("driver", self.driver, DriverModel, "DriverModel()")
        check_type("learners", self.learners, LearnerModel, "LearnerModel()")
        check_type("queue", self.queue, QueueLimits, "QueueLimits()")
        check_type("faults", self.faults, FaultPolicy, "FaultPolicy()")
        whole_number("num_coordinators", self.num_coordinators, 1)
        self._check_coordinators()
        capacity = self.queue.max_queued_fragments or (
            self.workers.num_workers * self.queue.credits_per_worker
        )
        if self.learners.fragments_per_update > capacity:
            raise SpecError(
                f"learners.fragments_per_update is {self.learners.fragments_per_update}, expected "
                f"at most {capacity}: no more are ever queued; raise queue.max_queued_fragments"
            )
        self.lag  # noqa: B018  raises where the three contradict each other

    @property
    def lag(self) -> LagRule:
        """The rule for old fragments."""
        return LagRule.of(self.sync_mode, self.queue.max_policy_lag, self.queue.lag_policy)

    @property
    def rules(self) -> FleetRules:
        """The rules of a fleet of all workers."""
        return FleetRules(faults=self.faults, queue=self.queue, lag=self.lag)

    @property
    def config(self) -> WorkerConfig:
        """The config of the first worker."""
        return WorkerConfig(
            id="simulated",
            num_envs=self.workers.num_envs,
            rollout_length=self.workers.rollout_length,
            num_threads=1,
            seed=0,
            env_options={},
        )

    def _check_coordinators(self) -> None:
        number = self.num_coordinators
        if number == 1 and self.driver.deaths_per_hour:
            raise SpecError(
                f"driver.deaths_per_hour is {self.driver.deaths_per_hour:g} and num_coordinators "
                "is 1, expected several: the only one is the learner's process, which nothing "
                "replaces"
            )
        if number > self.workers.num_workers:
            raise SpecError(
                f"num_coordinators is {number}, expected at most workers.num_workers "
                f"({self.workers.num_workers}): each leads some"
            )
        if number > 1 and self.queue.merge == "ordered":
            raise SpecError(
                f"num_coordinators is {number} and queue.merge is 'ordered', expected 'arrival': "
                "fragments of several coordinators have no order"
            )
