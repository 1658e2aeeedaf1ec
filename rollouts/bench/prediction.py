# SPDX-License-Identifier: Apache-2.0
"""Predictions of the simulator, compared with real runs of the same job."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rollouts.bench.paced_run import ROLLOUT_LENGTH, Levels, PacedTask, PacedTurn
from rollouts.simulation import JobModel, LearnerModel, NodeModel, WorkerModel, simulate

NAMES = {
    "fragments_per_s": "fragments/s",
    "driver_load": "driver load",
    "queue_depth": "queue depth",
    "lag_mean": "mean lag",
}
# within one machine no link limits the bandwidth
_BYTES_PER_S = 1e12


def job_of(task: PacedTask, turn: PacedTurn, *, learn_s: float | None = None) -> JobModel:
    """Returns a job for the simulator, with measured times and costs.

    Args:
      task: The job.
      turn: A turn with times of fragments and costs of the driver.
      learn_s: Seconds of an update; None for those of the turn.
    """
    per_update = task.fragments_per_update
    seconds = turn.learn_s if learn_s is None else learn_s
    return JobModel(
        workers=WorkerModel(
            num_workers=task.num_workers,
            num_envs=task.num_envs,
            rollout_length=ROLLOUT_LENGTH,
            fragment_s=turn.collect_s,
            call_s=turn.call_s,
            fragment_bytes=turn.nbytes,
            start_s=0.0,
        ),
        nodes=NodeModel(workers_per_node=task.num_workers, spare_nodes=0, bytes_per_s=_BYTES_PER_S),
        driver=turn.driver,
        num_coordinators=task.num_coordinators,
        queue=task.queue,
        learners=LearnerModel(
            fragments_per_update=per_update,
            steps_per_s=per_update * ROLLOUT_LENGTH * task.num_envs / max(seconds, 1e-9),
            weight_bytes=0,
        ),
    )


def predict(job: JobModel, seconds: float) -> Levels:
    """Simulates a job for as long as a turn, after a warm-up that is not counted."""
    warm_up_s = 20 * job.workers.mean_s
    report = simulate(job, duration_s=warm_up_s + seconds, warm_up_s=warm_up_s)
    return Levels(**{name: getattr(report, name) for name in NAMES})


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedJob:
    """A job, with measurements and predictions for each turn.

    Attributes:
      measured: Results of each turn.
      predicted: Predictions from the times and costs of the same turn.
      from_first: Predictions from the times and costs of the smallest job.
      turns: The times and costs.
    """

    task: PacedTask
    measured: tuple[Levels, ...]
    predicted: tuple[Levels, ...]
    from_first: tuple[Levels, ...]
    turns: tuple[PacedTurn, ...]

    def median(self, name: str, of: str) -> float:
        """Returns the median over turns of one of `NAMES`; `of` names an attribute with results."""
        return float(statistics.median(getattr(one, name) for one in getattr(self, of)))

    def ratio(self, name: str, of: str = "predicted") -> float:
        """Returns the median of prediction / measurement; NaN where nothing was measured."""
        pairs = zip(getattr(self, of), self.measured, strict=True)
        values = [(getattr(one, name), getattr(other, name)) for one, other in pairs]
        ratios = [one / other for one, other in values if other > 0]
        return statistics.median(ratios) if ratios else math.nan


def compare(
    task: PacedTask, turns: Sequence[PacedTurn], first: Sequence[PacedTurn] | None = None
) -> PredictedJob:
    """Predicts each turn of a job.

    Args:
      task: The job.
      turns: Its turns.
      first: Turns of the smallest job, for predictions from it; None: this job is the smallest.
    """
    pairs = zip(turns, turns if first is None else first, strict=True)
    return PredictedJob(
        task=task,
        measured=tuple(turn.levels for turn in turns),
        predicted=tuple(predict(job_of(task, turn), task.seconds) for turn in turns),
        from_first=tuple(
            predict(job_of(task, one, learn_s=task.learn_s), task.seconds) for _, one in pairs
        ),
        turns=tuple(turns),
    )


def to_text(row: PredictedJob) -> str:
    """Returns a table of medians, and of the ratios of prediction and measurement."""
    task, load = row.task, statistics.median(turn.load_average for turn in row.turns)
    call_ms = 1e3 * statistics.median(turn.call_s for turn in row.turns)
    lines = [
        f"{task.num_workers} workers, {task.num_coordinators} coordinators, fragments of "
        f"{1e3 * task.fragment_s:g} ms and {row.turns[0].nbytes} bytes, "
        f"{task.fragments_per_update} an update, learner at {task.learner_load:g} of the workers' "
        f"time, {len(row.turns)} turns of {task.seconds:g} s",
        f"{'':16}{'measured':>12}{'predicted':>12}{'ratio':>8}{'from the first':>16}{'ratio':>8}",
    ]
    for name, label in NAMES.items():
        measured, predicted = row.median(name, "measured"), row.median(name, "predicted")
        first = row.median(name, "from_first")
        lines.append(
            f"{label:16}{measured:12.2f}{predicted:12.2f}{row.ratio(name):8.2f}"
            f"{first:16.2f}{row.ratio(name, 'from_first'):8.2f}"
        )
    per_call = statistics.median(turn.per_call for turn in row.turns)
    lines.append(
        f"between two calls {call_ms:.2f} ms, {per_call:.1f} fragments a call, load average "
        f"{load:.1f}"
    )
    return "\n".join(lines)


def to_table(rows: Sequence[PredictedJob]) -> str:
    """Returns a line for each job: medians of what was predicted and measured."""
    columns = ("fragments/s", "MB/s", "driver load", "queue depth", "mean lag")
    titles = "".join(f"{name:>20}" for name in columns)
    lines = [f"predicted / measured\n{'workers':>7}{'bytes':>9}{'learner':>9}{titles}"]
    for row in rows:
        nbytes = row.turns[0].nbytes
        pairs = {
            name: (row.median(name, "predicted"), row.median(name, "measured")) for name in NAMES
        }
        sent = tuple(nbytes * rate / 1e6 for rate in pairs["fragments_per_s"])
        cells = [pairs["fragments_per_s"], sent, *list(pairs.values())[1:]]
        lines.append(
            f"{row.task.num_workers:7}{nbytes:9}{row.task.learner_load:9g}"
            + "".join(f"{one:>20}" for one in (f"{a:.3g} / {b:.3g}" for a, b in cells))
        )
    return "\n".join(lines)


def as_dict(row: PredictedJob) -> dict[str, Any]:
    """Returns all values except the times of single fragments."""
    turns = [
        {**dataclasses.asdict(turn), "collect_s": statistics.mean(turn.collect_s)}
        for turn in row.turns
    ]
    ratios = {name: row.ratio(name) for name in NAMES}
    return {**dataclasses.asdict(row), "turns": turns, "ratios": ratios}
