# SPDX-License-Identifier: Apache-2.0
"""Real workers and a learner whose work takes a known time: a run to compare predictions with.

Workers sleep for most of each fragment, so that many fit on few CPUs while the driver has the same
work as on a cluster.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np

from rollouts.batch import RolloutBatch
from rollouts.bench.random_policy import make_random_policy
from rollouts.bench.stage_clock import TurnTimes, merge_thread, timed_turn
from rollouts.learner.fragment import Fragment
from rollouts.simulation import DriverModel
from rollouts.simulation.measured import driver_of_stages
from rollouts.workers import CollectOptions, Placement, QueueLimits
from rollouts.workers.call_size import share_of
from rollouts.workers.on_ray.coordinator import RolloutCoordinator
from rollouts.workers.worker import build_collector
from rollouts.workers.worker_config import MakePolicy, WorkerConfig

ENV_ID = "CartPole-v1"
ROLLOUT_LENGTH = 4
_CREDITS = 2
_START_S = 600.0
_SAMPLE_S = 0.05
_IDLE_S = 3.0
_EAGER_UPDATES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedTask:
    """A job on one machine.

    Attributes:
      num_workers: Ray actors; they reserve no CPUs.
      num_coordinators: See `RolloutCoordinator`.
      num_envs: Environments of each worker, for larger fragments.
      fragment_s: Median seconds of a fragment; they are drawn from a log-normal distribution.
      spread: Standard deviation of the logarithm.
      learner_load: Seconds of an update, as a share of the time in which all workers make its
        fragments; above 1 the learner is the bottleneck.
      fragments_each: Fragments of an update from each worker; many small ones share calls.
      seconds: Real time of a turn.
    """

    num_workers: int
    num_coordinators: int = 1
    num_envs: int = 1
    fragment_s: float = 0.1
    fragments_each: float = 0.5
    spread: float = 0.2
    learner_load: float = 0.5
    seconds: float = 15.0

    @property
    def fragments_per_update(self) -> int:
        """Fragments of an update."""
        return max(1, int(self.num_workers * self.fragments_each))

    @property
    def room(self) -> int:
        """Most fragments in flight and queued: two of each worker, or two updates if more."""
        return max(_CREDITS * self.num_workers, 2 * self.fragments_per_update)

    @property
    def queue(self) -> QueueLimits:
        """The limits of the job."""
        return QueueLimits(credits_per_worker=_CREDITS, max_queued_fragments=self.room)

    def per_call_of_driver(self, per_call: float) -> float:
        """Returns the fragments of a driver's call; `per_call` are those of a worker's call."""
        if self.num_coordinators == 1:
            return per_call
        return share_of(self.room, self.num_coordinators)

    @property
    def learn_s(self) -> float:
        """Seconds of an update."""
        made_s = self.fragments_per_update * self.fragment_s / self.num_workers
        return self.learner_load * made_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Results to compare: those of a real run, or of a simulated one.

    Attributes:
      fragments_per_s: Fragments delivered in a second.
      driver_load: CPU time of the driver's process as a share of the real time.
      queue_depth: Fragments that wait for the learner, averaged over time.
      lag_mean: Versions between a fragment's weights and the newest when it is taken, averaged.
    """

    fragments_per_s: float
    driver_load: float
    queue_depth: float
    lag_mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedTurn:
    """One turn of a real run: its results, and the times and costs that a model needs.

    Attributes:
      levels: Results.
      driver: Costs of the driver's process.
      collect_s: Seconds of each fragment.
      call_s: Median seconds between two calls of a worker that never waits for a request.
      per_call: Fragments of a call, the mean.
      learn_s: Seconds of an update, the mean.
      nbytes: Bytes of a fragment's arrays.
      load_average: The machine's load average after the turn.
    """

    levels: Levels
    driver: DriverModel
    collect_s: tuple[float, ...]
    call_s: float
    per_call: float
    learn_s: float
    nbytes: int
    load_average: float


def run(tasks: Sequence[PacedTask], *, repeats: int) -> list[list[PacedTurn]]:
    """Runs jobs in the Ray of this process or one that is started; returns the turns of each.

    Args:
      tasks: Jobs that differ only in their learner; they run in turn with the same workers.
      repeats: Turns of each.
    """
    task = tasks[0]
    make_collector = partial(PacedCollector, fragment_s=task.fragment_s, spread=task.spread)
    with RolloutCoordinator(
        ENV_ID,
        make_random_policy,
        num_workers=task.num_workers,
        num_envs_per_worker=task.num_envs,
        rollout_length=ROLLOUT_LENGTH,
        num_coordinators=task.num_coordinators,
        placement=Placement(num_cpus=0),
        queue=task.queue,
        collect=CollectOptions(make_collector=make_collector),
    ) as coordinator:
        idle_load = _idle_load_of(coordinator)
        coordinator.publish_weights({"w": np.zeros(1)})
        call_s = _call_seconds_of(coordinator, task)
        return [
            [_run_turn(coordinator, each, idle_load, call_s) for _ in range(repeats)]
            for each in tasks
        ]


class PacedCollector:
    """The usual collector, with a drawn duration for each fragment.

    `extras` of its rollouts have "clock" (T, B, 2) float64. Its first cell contains the start and
    the end of the fragment, in seconds of this machine's monotonic clock; the others are 0.
    """

    def __init__(
        self, config: WorkerConfig, make_policy: MakePolicy, *, fragment_s: float, spread: float
    ) -> None:
        """Makes the usual collector; arguments: see `PacedTask`."""
        inner = cast("Any", build_collector(config, make_policy))
        self.env, self.policy, self.close = inner.env, inner.policy, inner.close
        self._collect = inner.collect
        self._fragment_s, self._spread = fragment_s, spread
        self._random = np.random.default_rng(config.policy_seed)

    def collect(self) -> RolloutBatch:
        """Collects, and sleeps for the rest of the fragment's time."""
        began = time.monotonic()
        batch: RolloutBatch = self._collect()
        wanted_s = self._fragment_s * float(np.exp(self._spread * self._random.standard_normal()))
        time.sleep(max(0.0, began + wanted_s - time.monotonic()))
        clock = np.zeros((*batch.reward.shape, 2))
        clock[0, 0] = began, time.monotonic()
        return dataclasses.replace(batch, extras={**batch.extras, "clock": clock})


@dataclass(slots=True)
class _PacedLearner:
    """Takes batches, sleeps instead of learning, and publishes weights."""

    coordinator: RolloutCoordinator[Any]
    task: PacedTask
    fragments: list[Fragment] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    learned_s: list[float] = field(default_factory=list)

    def update(self) -> None:
        """Makes one update."""
        coordinator, task = self.coordinator, self.task
        taken = coordinator.get_fragments(task.fragments_per_update, timeout_s=_START_S)
        self.fragments += taken
        began = time.monotonic()
        time.sleep(task.learn_s)
        self.learned_s.append(time.monotonic() - began)
        version = coordinator.publish_weights({"w": np.zeros(1)})
        # the version in use when the batch was taken is one lower
        self.lags += [version - 1 - one.min_policy_version for one in taken]

    def update_until(self, end: float) -> None:
        """Makes updates until a time of the monotonic clock."""
        while time.monotonic() < end:
            self.update()


def _idle_load_of(coordinator: RolloutCoordinator[Any]) -> float:
    """Returns the share of a core that this process takes before there are weights.

    Waits until all workers have started, which do not collect yet.
    """
    wait = threading.Event().wait
    while any(one["state"] != "running" for one in coordinator.stats()["workers"]):
        wait(_SAMPLE_S)
    with _sampling(coordinator, []):
        _, times = timed_turn(lambda: wait(_IDLE_S), merge_thread())
    return times.cpu_s / times.seconds


def _call_seconds_of(coordinator: RolloutCoordinator[Any], task: PacedTask) -> float:
    """Returns `PacedTurn.call_s`, measured with a learner that takes everything at once.

    With a slower learner, workers also wait for requests.
    """
    eager = _PacedLearner(coordinator, dataclasses.replace(task, learner_load=0.0))
    num_calls = coordinator.stats()["calls"]
    for _ in range(_EAGER_UPDATES):
        eager.update()
    num_calls = coordinator.stats()["calls"] - num_calls
    return call_seconds(eager.fragments, len(eager.fragments) / num_calls)


def _run_turn(
    coordinator: RolloutCoordinator[Any], task: PacedTask, idle_load: float, call_s: float
) -> PacedTurn:
    # brings the queue to its usual depth with this learner
    before = _PacedLearner(coordinator, task)
    for _ in range(8):
        before.update()
    learner, depths = _PacedLearner(coordinator, task), list[int]()
    num_calls = coordinator.stats()["calls"]
    with _sampling(coordinator, depths):
        end = time.monotonic() + task.seconds
        _, times = timed_turn(lambda: learner.update_until(end), merge_thread())
    fragments = learner.fragments
    per_call = len(fragments) / (coordinator.stats()["calls"] - num_calls)
    return PacedTurn(
        levels=Levels(
            fragments_per_s=len(fragments) / times.seconds,
            driver_load=times.cpu_s / times.seconds,
            queue_depth=statistics.mean(depths),
            lag_mean=statistics.mean(learner.lags),
        ),
        driver=driver_of_turn(
            times,
            len(fragments),
            publish_every=task.fragments_per_update,
            idle_load=idle_load,
            per_call=task.per_call_of_driver(per_call),
        ),
        collect_s=tuple(one.collect_s for one in fragments),
        call_s=call_s,
        per_call=per_call,
        learn_s=statistics.mean(learner.learned_s),
        nbytes=fragments[0].nbytes,
        load_average=os.getloadavg()[0],
    )


def driver_of_turn(
    times: TurnTimes,
    num_fragments: int,
    *,
    publish_every: int,
    idle_load: float,
    per_call: float = 1.0,
) -> DriverModel:
    """Returns the costs of a turn: the load without fragments, and the rest per fragment."""
    per = 1e6 / num_fragments
    stages = {name: seconds * per for name, seconds in times.stages.items()}
    cpu_s = max(0.0, times.cpu_s - idle_load * times.seconds)
    driver = driver_of_stages(cpu_s * per, stages, publish_every, per_call=per_call)
    return dataclasses.replace(driver, idle_load=idle_load)


def call_seconds(fragments: Sequence[Fragment], per_call: float = 1.0) -> float:
    """Returns the median of the seconds between two consecutive calls of a worker.

    Args:
      fragments: All fragments that were taken.
      per_call: Fragments of a call, which follow each other without a gap.
    """
    by_worker: defaultdict[int, list[tuple[int, float, float]]] = defaultdict(list)
    for one in fragments:
        began, ended = one.batch.extras["clock"][0, 0]
        by_worker[one.worker_id].append((one.seq_no, float(began), float(ended)))
    gaps = [
        after[1] - before[2]
        for spans in by_worker.values()
        for before, after in itertools.pairwise(spans)
        if after[0] == before[0] + 1
    ]
    # one gap in per_call lies between two calls, and it is longer than the others
    between = sorted(gaps, reverse=True)[: math.ceil(len(gaps) / per_call)]
    return statistics.median(between) if between else 0.0


@contextmanager
def _sampling(coordinator: RolloutCoordinator[Any], depths: list[int]) -> Iterator[None]:
    """Records the depth of the queue repeatedly, on a thread of its own."""
    is_over = threading.Event()

    def sample() -> None:
        while True:
            depths.append(coordinator.stats()["queue_depth"])
            if is_over.wait(_SAMPLE_S):
                return

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
