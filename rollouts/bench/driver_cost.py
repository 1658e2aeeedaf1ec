# SPDX-License-Identifier: Apache-2.0
"""Measures what a fragment costs the driver: RolloutCoordinator beside a bare loop of Ray calls.

A second coordinator makes one call per fragment, as the bare loop does. An optional third one is
like the first, but further coordinators, in actors, lead its workers. All have the same workers,
whose fragments are so small that the driver is the bottleneck. They take turns in one Ray session.
The process's CPU time is counted, so that other load on the machine affects all of them equally.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import ray as _typed_ray

from rollouts.bench.random_policy import make_random_policy
from rollouts.bench.stage_clock import merge_threads, timed_turn
from rollouts.learner.fragment import FragmentInfo
from rollouts.simulation import (
    DriverModel,
    JobModel,
    LearnerModel,
    NodeModel,
    WorkerModel,
    simulate,
)
from rollouts.simulation.measured import driver_of_calls, driver_of_stages
from rollouts.support.same_release import make_check
from rollouts.workers.coordinator_options import Placement, QueueLimits
from rollouts.workers.on_ray.coordinator import RolloutCoordinator
from rollouts.workers.on_ray.ray_session import _make_host_class
from rollouts.workers.on_ray.ray_weights import ray_part
from rollouts.workers.weight_store import WeightStore
from rollouts.workers.worker_config import WorkerConfig

# ray annotates only half of what it exports
ray: Any = _typed_ray

ENV_ID = "CartPole-v1"
CREDITS = 2
_QUEUE = QueueLimits(credits_per_worker=CREDITS)
_START_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverTask:
    """The work of all contestants.

    Attributes:
      num_workers: Actors; none reserves a CPU.
      num_envs: Environments of each.
      rollout_length: Steps T.
      num_fragments: Fragments of one turn.
      publish_every: Fragments between two versions of the weights; 0 for one version alone. Like
        a coordinator, the bare loop stores each version, and offers an actor only new ones.
      num_coordinators: Coordinators of the third contestant; with 1 there is no such contestant.
      max_queued_fragments: See `QueueLimits`; the bare loop has no such limit.
    """

    num_workers: int
    num_envs: int = 4
    rollout_length: int = 4
    num_fragments: int = 1000
    publish_every: int = 8
    num_coordinators: int = 1
    max_queued_fragments: int | None = None


@dataclass(slots=True)
class DriverCost:
    """Costs of one contestant, a number for each turn.

    Attributes:
      cpu_us: Microseconds of the driver's CPU time per fragment, of all its threads.
      per_s: Fragments per second of real time.
      stages: Stage -> microseconds of CPU time per fragment.
      per_call: Fragments per call of an actor.
      nbytes: Bytes of a fragment's arrays.
      fragment_s: Seconds in which workers collected a fragment: a hundred quantiles of each turn.
    """

    name: str
    cpu_us: list[float] = field(default_factory=list)
    per_s: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)
    per_call: list[float] = field(default_factory=list)
    nbytes: int = 0
    fragment_s: list[float] = field(default_factory=list)


class _Ours:
    """A RolloutCoordinator and its thread."""

    def __init__(self, task: DriverTask, *, num_coordinators: int = 1, **limits: Any) -> None:
        known = merge_threads()
        self._task = task
        self.coordinator = RolloutCoordinator(
            ENV_ID,
            make_random_policy,
            num_workers=task.num_workers,
            num_envs_per_worker=task.num_envs,
            rollout_length=task.rollout_length,
            num_coordinators=num_coordinators,
            placement=Placement(num_cpus=0),
            queue=QueueLimits(
                credits_per_worker=CREDITS,
                max_queued_fragments=task.max_queued_fragments,
                **limits,
            ),
        )
        (self.merge,) = merge_threads() - known

    def run(self) -> list[FragmentInfo]:
        """Takes the fragments of one turn."""
        return _take(self.coordinator, self._task)

    @property
    def num_calls(self) -> int:
        """Calls so far."""
        return int(self.coordinator.stats()["calls"])

    def pause(self) -> None:
        """Waits until all workers have finished their requests, and no more fragments come."""
        while not self._is_full():
            time.sleep(0.01)  # the coordinator has no call that waits for this

    def _is_full(self) -> bool:
        stats = self.coordinator.stats()
        fragments = stats["fragments"]
        return not fragments["in_flight"] and fragments["queued"] >= stats["outstanding_limit"]


def measure(task: DriverTask, *, repeats: int) -> list[DriverCost]:
    """Measures all contestants in turns, in the Ray of this process or in one that is started.

    Args:
      task: The work of each turn.
      repeats: Turns of each; the first is not counted.
    """
    names = ["RolloutCoordinator", "one fragment a call", "bare Ray"]
    with ExitStack() as stack:
        ours = [_Ours(task), _Ours(task, max_fragments_per_call=1)]
        if (num := task.num_coordinators) > 1:
            names.insert(2, f"{num} coordinators")
            ours.append(_Ours(task, num_coordinators=num))
        costs = [DriverCost(name) for name in names]
        for each in ours:
            stack.enter_context(each.coordinator)
        contestants: list[_Ours | _BareLoop] = [*ours, _BareLoop(task)]
        for turn in range(repeats + 1):
            for cost, one in zip(costs, contestants, strict=True):
                _measure_turn(cost, task, one, turn)
                one.pause()
    return costs


def _measure_turn(cost: DriverCost, task: DriverTask, one: _Ours | _BareLoop, turn: int) -> None:
    """Runs one turn; the first, in which workers start, is not counted."""
    num_calls = one.num_calls
    infos, times = timed_turn(one.run, one.merge)
    if turn == 0:
        return
    cost.nbytes = infos[-1].nbytes
    times_s = [info.collect_s for info in infos]
    cost.fragment_s += np.quantile(times_s, (np.arange(100) + 0.5) / 100).tolist()
    cost.per_call.append(task.num_fragments / (one.num_calls - num_calls))
    per = 1e6 / task.num_fragments
    cost.cpu_us.append(times.cpu_s * per)
    cost.per_s.append(task.num_fragments / times.seconds)
    for name, value in times.stages.items():
        cost.stages.setdefault(name, []).append(value * per)


def _take(coordinator: RolloutCoordinator, task: DriverTask) -> list[FragmentInfo]:
    coordinator.publish_weights({"w": np.zeros(1)})
    infos = []
    for number in range(1, task.num_fragments + 1):
        (fragment,) = coordinator.get_fragments(timeout_s=_START_S)
        infos.append(fragment.info)
        if task.publish_every and number % task.publish_every == 0:
            coordinator.publish_weights({"w": np.zeros(1)})
    return infos


class _BareLoop:
    """The same actors and calls, by Ray alone: wait, get both results, call again."""

    merge: threading.Thread | None = None

    def __init__(self, task: DriverTask) -> None:
        self._task, self.num_calls = task, 0
        host = ray.remote(num_cpus=0, max_restarts=0)(_make_host_class((), False))
        recipe = ray.cloudpickle.dumps({"make_policy": make_random_policy, "owns_process": True})
        sys_path = [os.path.abspath(entry) for entry in sys.path]
        self._actors = []
        for worker_id in range(task.num_workers):
            config = WorkerConfig(
                id=ENV_ID,
                num_envs=task.num_envs,
                rollout_length=task.rollout_length,
                num_threads=1,
                seed=1,
                env_options={},
                worker_id=worker_id,
            )
            pickled = ray.cloudpickle.dumps(config)
            self._actors.append(host.remote(sys_path, make_check(), recipe, pickled))
        ray.get([actor.start.remote() for actor in self._actors], timeout=_START_S)
        self._store = WeightStore(ray_part)
        # bound once, because Ray checks options each time that they are given
        self._collect = [actor.collect.options(num_returns=2) for actor in self._actors]
        self._given = [0] * task.num_workers
        self._flying: dict[Any, tuple[Any, int]] = {}  # info -> arrays and worker

    def run(self) -> list[FragmentInfo]:
        """Takes the fragments of one turn."""
        num_fragments, every = self._task.num_fragments, self._task.publish_every
        self._store.publish({"w": np.zeros(1)})
        if not self._flying:
            for worker in [*range(self._task.num_workers)] * CREDITS:
                self._call(worker)
        infos = []
        for number in range(1, num_fragments + 1):
            (info,), _ = ray.wait(list(self._flying), num_returns=1)
            batch, worker = self._flying.pop(info)
            infos.append(ray.get(info))
            ray.get(batch)
            if every and number % every == 0:
                self._store.publish({"w": np.zeros(1)})
            self._call(worker)
        return infos

    def pause(self) -> None:
        """Waits until the actors have finished their requests; the next turn takes the results."""
        ray.wait(list(self._flying), num_returns=len(self._flying))

    def _call(self, worker: int) -> None:
        self.num_calls += 1
        offer = self._store.latest
        assert offer is not None
        is_new = offer.version > self._given[worker]
        self._given[worker] = offer.version
        info, batch = self._collect[worker].remote(*([offer] if is_new else []))
        self._flying[info] = (batch, worker)


def to_text(task: DriverTask, costs: list[DriverCost]) -> str:
    """Returns a table of medians, and the ratios."""
    *ours, bare = costs
    lines = [
        f"{task.num_workers} workers, fragments of {task.rollout_length} x {task.num_envs} steps "
        f"({bare.nbytes} bytes), {task.num_fragments} in a turn, a version for each "
        f"{task.publish_every or task.num_fragments}",
        f"{'':24}{'us of driver CPU':>18}{'fragments/s':>14}{'a call':>10}",
    ]
    for cost in costs:
        cpu, rate = statistics.median(cost.cpu_us), statistics.median(cost.per_s)
        per_call = statistics.median(cost.per_call)
        lines.append(f"{cost.name:24}{cpu:18.0f}{rate:14.0f}{per_call:10.1f}")
        for stage, values in sorted(cost.stages.items(), key=lambda row: -max(row[1])):
            lines.append(f"  {stage:28}{statistics.median(values):12.0f}")
    for cost in ours:
        ratios = _ratios(cost, bare)
        lines.append(
            f"{cost.name} / bare: {statistics.median(ratios):.2f} (median of {len(ratios)} pairs, "
            f"{min(ratios):.2f} to {max(ratios):.2f})"
        )
    return "\n".join(lines)


def to_table(rows: Sequence[tuple[DriverTask, Sequence[DriverCost]]]) -> str:
    """Returns a line for each contestant of each task, with what a core of the driver can take.

    "limit/s" is the number of fragments that cost a second of CPU time, "simulated" the number that
    `simulated_limits` predicts, and "core" the share of a core that the driver used while it took
    them.
    """
    lines = [
        f"{'workers':>7}{'bytes':>9}{'a version':>11}  {'':22}{'us':>6}{'/ bare':>8}{'limit/s':>9}"
        f"{'simulated':>11}{'MB/s':>8}{'core':>6}"
    ]
    for task, costs in rows:
        every = task.publish_every or task.num_fragments
        simulated = simulated_limits(task, costs)
        for cost in costs:
            cpu = statistics.median(cost.cpu_us)
            ratio = statistics.median(_ratios(cost, costs[-1]))
            core = statistics.median(
                one * rate / 1e6 for one, rate in zip(cost.cpu_us, cost.per_s, strict=True)
            )
            limit = f"{simulated[cost.name]:.0f}" if cost.name in simulated else ""
            lines.append(
                f"{task.num_workers:7}{cost.nbytes:9}{every:11}  {cost.name:22}{cpu:6.0f}"
                f"{ratio:8.2f}{1e6 / cpu:9.0f}{limit:>11}{cost.nbytes / cpu:8.1f}{core:6.2f}"
            )
    return "\n".join(lines)


def simulated_limits(task: DriverTask, costs: Sequence[DriverCost]) -> dict[str, float]:
    """Simulates the workers with the costs of each stage, and the times, that were measured.

    Args:
      task: The work of the contestants.
      costs: Their costs.
    Returns:
      Fragments per second of the driver's CPU time, of "RolloutCoordinator" and of "one fragment a
      call". The simulator decides how many fragments share a call.
    """
    every = task.publish_every or task.num_fragments
    models = {
        cost.name: driver_of_stages(
            statistics.median(cost.cpu_us),
            {name: statistics.median(values) for name, values in cost.stages.items()},
            every,
        )
        for cost in costs[:2]
    }
    shared, alone = models["RolloutCoordinator"], models["one fragment a call"]
    shared = driver_of_calls(shared, alone, statistics.median(costs[0].per_call))
    return {
        "RolloutCoordinator": _simulated_limit(task, costs[0], every, shared, _QUEUE),
        "one fragment a call": _simulated_limit(
            task, costs[1], every, alone, replace(_QUEUE, max_fragments_per_call=1)
        ),
    }


def _simulated_limit(
    task: DriverTask, cost: DriverCost, every: int, driver: DriverModel, queue: QueueLimits
) -> float:
    job = JobModel(
        workers=WorkerModel(
            num_workers=task.num_workers,
            num_envs=task.num_envs,
            rollout_length=task.rollout_length,
            fragment_s=tuple(cost.fragment_s),
            call_s=0.0,
            fragment_bytes=0,
            start_s=0.0,
        ),
        # within one machine no link limits the rate
        nodes=NodeModel(workers_per_node=task.num_workers, bytes_per_s=1e15, latency_s=0.0),
        driver=driver,
        # an update of the simulated learner takes all fragments of a version at once
        queue=replace(
            queue,
            max_queued_fragments=task.max_queued_fragments
            or max(2 * every, CREDITS * task.num_workers),
        ),
        learners=LearnerModel(fragments_per_update=every, steps_per_s=1e15, weight_bytes=0),
    )
    report = simulate(job, duration_s=2.5, warm_up_s=0.5)
    return report.fragments_per_s / report.driver_load


def _ratios(cost: DriverCost, bare: DriverCost) -> list[float]:
    """Returns the ratio of the CPU times of each pair of turns."""
    return [one / other for one, other in zip(cost.cpu_us, bare.cpu_us, strict=True)]
