# SPDX-License-Identifier: Apache-2.0
"""Predictions of the simulator beside measured turns, without a real run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")

from rollouts.bench.paced_run import (
    Levels,
    PacedTask,
    PacedTurn,
    call_seconds,
    driver_of_turn,
)
from rollouts.bench.prediction import as_dict, compare, job_of, predict, to_table, to_text
from rollouts.bench.stage_clock import TurnTimes
from rollouts.simulation import DriverModel

FREE = DriverModel(
    take_us=0, further_us=0, submit_us=0, submit_further_us=0, resolve_us=0, publish_us=0
)


def turn_of(task: PacedTask, **changes: Any) -> PacedTurn:
    """A turn of fragments that all take the same time, and cost the driver nothing."""
    turn = PacedTurn(
        levels=Levels(fragments_per_s=70.0, driver_load=0.1, queue_depth=2.0, lag_mean=1.0),
        driver=FREE,
        collect_s=(0.1, 0.1),
        call_s=0.0,
        per_call=1.0,
        learn_s=task.learn_s,
        nbytes=100,
        load_average=3.0,
    )
    return dataclasses.replace(turn, **changes)


@pytest.mark.parametrize(
    ("task", "changes", "per_s"),
    [
        # eight workers, each of which makes ten in a second
        (PacedTask(num_workers=8), {}, 80.0),
        (PacedTask(num_workers=8), {"call_s": 0.1}, 40.0),
        # an update of four that takes as long as eight workers need for six
        (PacedTask(num_workers=8, learner_load=1.5), {}, 80 / 1.5),
        # a process that takes 2 ms for each, of 2 000 in a second that workers would make
        (
            PacedTask(num_workers=200, learner_load=1e-6),
            {"driver": DriverModel(take_us=1e3, submit_us=1e3, resolve_us=0, publish_us=0)},
            500.0,
        ),
    ],
)
def test_a_prediction_follows_what_was_measured(
    task: PacedTask, changes: dict[str, Any], per_s: float
) -> None:
    levels = predict(job_of(task, turn_of(task, **changes)), task.seconds)
    assert levels.fragments_per_s == pytest.approx(per_s, rel=0.02)


def test_what_a_process_takes_anyway_does_not_grow_with_the_fragments() -> None:
    driver = dataclasses.replace(FREE, take_us=1e3, idle_load=0.05)
    for num_workers in (2, 20):
        task = PacedTask(num_workers=num_workers)
        levels = predict(job_of(task, turn_of(task, driver=driver)), task.seconds)
        # ten fragments of each worker in a second, of 1 ms
        assert levels.driver_load == pytest.approx(0.05 + 0.01 * num_workers, rel=0.05)


def test_rows_have_medians_and_ratios_of_their_turns() -> None:
    task = PacedTask(num_workers=8)
    turns = [
        turn_of(
            task, levels=Levels(fragments_per_s=rate, driver_load=0.1, queue_depth=0, lag_mean=1)
        )
        for rate in (40.0, 80.0, 100.0)
    ]
    row = compare(task, turns)
    assert row.median("fragments_per_s", "measured") == 80.0
    assert row.ratio("fragments_per_s") == pytest.approx(1.0, rel=0.02)
    # no ratio to nothing
    assert math.isnan(row.ratio("queue_depth"))
    assert row.from_first == row.predicted
    text = to_text(row)
    about = "8 workers, 1 coordinators, fragments of 100 ms and 100 bytes, 4 an update, "
    assert text.startswith(about)
    assert text.endswith("load average 3.0")
    assert as_dict(row)["turns"][0]["collect_s"] == pytest.approx(0.1)


def test_a_larger_job_is_predicted_from_the_smallest_too() -> None:
    small, large = PacedTask(num_workers=2), PacedTask(num_workers=8)
    first = [turn_of(small, collect_s=(0.2, 0.2))]
    row = compare(large, [turn_of(large)], first)
    assert row.median("fragments_per_s", "predicted") == pytest.approx(80.0, rel=0.02)
    assert row.median("fragments_per_s", "from_first") == pytest.approx(40.0, rel=0.02)


def test_coordinators_are_predicted_with_the_calls_that_the_driver_makes() -> None:
    task = PacedTask(num_workers=8, num_coordinators=2, fragments_each=8)
    # a call of a worker is for one fragment of 100 ms, one of a coordinator for 128 / (2 * 4)
    assert task.per_call_of_driver(1.0) == 16
    assert PacedTask(num_workers=8).per_call_of_driver(1.5) == 1.5
    driver = dataclasses.replace(FREE, take_us=1600.0)
    levels = predict(job_of(task, turn_of(task, driver=driver)), task.seconds)
    assert levels.fragments_per_s == pytest.approx(80.0, rel=0.1)
    assert levels.driver_load == pytest.approx(levels.fragments_per_s * 100e-6, rel=0.05)


@dataclasses.dataclass
class TakenFragment:
    """The part of a fragment that is looked at."""

    worker_id: int
    seq_no: int
    span: tuple[float, float]

    @property
    def batch(self) -> Any:
        clock = np.broadcast_to(self.span, (4, 1, 2))
        return type("Batch", (), {"extras": {"clock": clock}})


def test_the_time_of_a_call_lies_between_neighbours_of_a_worker() -> None:
    taken: Sequence[Any] = [
        TakenFragment(0, 4, (0.0, 1.0)),
        TakenFragment(1, 7, (0.0, 1.0)),
        TakenFragment(0, 5, (1.25, 2.0)),
        # one between was not taken in this turn
        TakenFragment(1, 9, (9.0, 9.5)),
    ]
    assert call_seconds(taken) == 0.25
    assert call_seconds(taken[:2]) == 0.0


def test_what_lies_between_fragments_of_one_call_is_no_time_of_a_call() -> None:
    spans = [(0.0, 1.0), (1.01, 2.0), (2.01, 3.0), (3.25, 4.0), (4.01, 5.0), (5.01, 6.0)]
    taken: Sequence[Any] = [TakenFragment(0, seq_no, span) for seq_no, span in enumerate(spans)]
    assert call_seconds(taken, per_call=4.0) == pytest.approx((0.25 + 0.01) / 2)
    assert call_seconds(taken, per_call=6.0) == 0.25


def test_an_update_of_many_small_fragments_is_predicted_with_shared_calls() -> None:
    task = PacedTask(
        num_workers=4, fragment_s=0.002, fragments_each=16, learner_load=1e-6, seconds=3.0
    )
    driver = dataclasses.replace(FREE, take_us=1000.0, further_us=100.0)
    turn = turn_of(task, collect_s=(0.002, 0.002), driver=driver)
    levels = predict(job_of(task, turn), task.seconds)
    # 64 for a version and 8 calls in flight: 8 share one, for 1.7 ms of the driver, which would
    # take 1 000 in a second one by one; 4 workers make 2 000
    assert levels.fragments_per_s == pytest.approx(2000.0, rel=0.05)


def test_a_table_has_a_line_for_each_number_of_workers_and_size_of_fragment() -> None:
    rows = []
    for num_envs, nbytes in ((1, 100), (1000, 100_000)):
        task = PacedTask(num_workers=8, num_envs=num_envs)
        rows.append(compare(task, [turn_of(task, nbytes=nbytes)] * 3))
    lines = [line.split() for line in to_table(rows).splitlines()[2:]]
    for line, nbytes in zip(lines, (100, 100_000), strict=True):
        assert line[:3] == ["8", str(nbytes), "0.5"]
        per_s, measured = float(line[3]), float(line[5])
        # the environments of a fragment change its bytes, and neither its time nor the learner's
        assert (per_s, measured) == (pytest.approx(80.0, rel=0.05), 70.0)
        assert float(line[6]) == pytest.approx(per_s * nbytes / 1e6, rel=0.01)
        assert float(line[8]) == pytest.approx(measured * nbytes / 1e6)


def test_the_costs_of_a_turn_are_those_of_a_fragment() -> None:
    stages = {"submit": 0.02, "resolve": 0.01, "weights": 0.03, "queue": 0.1}
    # the process takes 0.15 of 0.35 s of CPU time anyway
    times = TurnTimes(0.35, 15.0, stages)
    driver = driver_of_turn(times, 100, publish_every=4, idle_load=0.01)
    assert driver.idle_load == 0.01
    assert driver.submit_us == pytest.approx(200.0)
    assert driver.resolve_us == pytest.approx(100.0)
    assert driver.publish_us == pytest.approx(1200.0)
    assert driver.take_us == pytest.approx(2000.0 - 200 - 100 - 300)
    shared = driver_of_turn(times, 100, publish_every=4, idle_load=0.01, per_call=4.0)
    assert shared.making_us(4) == pytest.approx(4 * 200.0)
    assert shared.resolve_us == pytest.approx(100.0)
    assert shared.call_us(4) == pytest.approx(4 * 1400.0)
