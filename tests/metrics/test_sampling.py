# SPDX-License-Identifier: Apache-2.0
"""Samples out of stats: paths, labels, rates over a window, counters that start anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.metrics import METRICS, TensorBoardSink
from rollouts.metrics.metrics_table import Metric, flatten, match, workers_of
from rollouts.metrics.sample import Reading, Sample, Sampler

COUNTER = "rollouts_env_steps_total"
DISCARDED = "rollouts_env_steps_discarded_total"


def steps(produced: float, **discarded: float) -> dict[str, Any]:
    return {"env_steps": {"produced": produced, "discarded": discarded}}


def reading(sample: Sample, name: str = COUNTER, label: str | None = None) -> Reading:
    (found,) = [r for r in sample.readings if r.metric.name == name and r.label == label]
    return found


def test_numbers_of_any_type_are_found_at_their_paths() -> None:
    stats = {
        "a": {"b": 1, 3: np.float32(0.5)},
        "flag": True,
        "list": [4, [5]],
        "text": "6",
        "none": None,
        "array": np.array(7),
    }
    assert flatten(stats) == {
        ("a", "b"): 1.0,
        ("a", "3"): 0.5,
        ("flag",): 1.0,
        ("list", "0"): 4.0,
        ("list", "1", "0"): 5.0,
        ("array",): 7.0,
    }


def test_a_list_of_workers_is_named_by_their_ids_and_others_by_index() -> None:
    stats = {"workers": [{"worker_id": 7, "x": 1}, {"x": 2}], "other": [{"x": 3}]}
    assert flatten(stats) == {
        ("workers", "7", "worker_id"): 7.0,
        ("workers", "7", "x"): 1.0,
        ("workers", "1", "x"): 2.0,
        ("other", "0", "x"): 3.0,
    }


@pytest.mark.parametrize("workers", [None, [], (), {}])
def test_no_workers_are_no_paths(workers: Any) -> None:
    assert flatten({"workers": workers}) == {} and workers_of({"workers": workers}) == {}
    assert workers_of({}) == {}


def test_a_worker_runs_or_does_not() -> None:
    workers = [{"worker_id": w, "state": s} for w, s in enumerate(("running", "benched"))]
    found = flatten({"workers": workers})
    assert found["workers", "0", "is_running"] == 1.0
    assert found["workers", "1", "is_running"] == 0.0
    # nothing is said of one whose state is unknown
    assert ("workers", "0", "is_running") not in flatten({"workers": [{"worker_id": 0}]})


def metric(path: str) -> Metric:
    return Metric("rollouts_x", "gauge", "x", "x", path, "label" if "*" in path else None)


def test_a_path_without_a_star_is_itself_or_nothing() -> None:
    numbers = {("a", "b"): 1.0, ("a",): 2.0}
    assert match(metric("a.b"), numbers) == {("a", "b"): None}
    assert match(metric("a"), numbers) == {("a",): None}
    assert match(metric("b"), numbers) == {}


def test_a_star_is_any_key_at_its_depth_alone() -> None:
    numbers = {("t", "x", "size"): 1.0, ("t", "y", "size"): 2.0, ("t", "x", "age"): 3.0}
    numbers |= {("t", "size"): 4.0, ("u", "x", "size"): 5.0, ("t", "x", "size", "max"): 6.0}
    assert match(metric("t.*.size"), numbers) == {
        ("t", "x", "size"): "x",
        ("t", "y", "size"): "y",
    }
    assert match(metric("t.x.*"), numbers) == {("t", "x", "size"): "size", ("t", "x", "age"): "age"}


def test_no_two_metrics_take_one_path() -> None:
    for one in METRICS:
        path = tuple("k" if key == "*" else key for key in one.path.split("."))
        takers = [other.name for other in METRICS if match(other, {path: 1.0})]
        assert takers == [one.name]


def test_the_first_sample_has_all_of_a_counter_and_no_rate() -> None:
    found = reading(Sampler().sample(steps(40), 100.0))
    assert (found.value, found.increase, found.per_s) == (40.0, 40.0, None)


def test_increases_and_rates_are_per_label() -> None:
    sampler = Sampler()
    sampler.sample(steps(0, stale=10, lost=1), 100.0)
    sample = sampler.sample(steps(0, stale=16, lost=1), 102.0)
    assert reading(sample, DISCARDED, "stale").increase == 6.0
    assert reading(sample, DISCARDED, "stale").per_s == 3.0
    assert reading(sample, DISCARDED, "lost").per_s == 0.0


def test_a_label_that_comes_later_counts_from_zero() -> None:
    sampler = Sampler()
    sampler.sample(steps(0), 100.0)
    found = reading(sampler.sample(steps(0, stale=8), 104.0), DISCARDED, "stale")
    assert (found.increase, found.per_s) == (8.0, 2.0)


def test_a_rate_looks_back_thirty_seconds_and_no_further() -> None:
    sampler = Sampler()
    for second, value in ((0, 0), (10, 1000), (30, 1000), (40, 1000), (41, 1030)):
        sample = sampler.sample(steps(value), float(second))
    # the newest sample that is 30 s old is that of second 10
    assert reading(sample).per_s == pytest.approx(30 / 31)


def test_a_sample_of_exactly_the_window_is_the_one_to_compare_with() -> None:
    sampler = Sampler()
    for second, value in ((0, 0), (10, 100), (40, 400)):
        sample = sampler.sample(steps(value), float(second))
    assert reading(sample).per_s == 10.0


@given(st.lists(st.tuples(st.floats(0.1, 20), st.integers(0, 100)), min_size=1, max_size=30))
def test_rates_are_those_of_a_list_of_all_samples(rounds: list[tuple[float, int]]) -> None:
    sampler, seen, now, total = Sampler(), list[tuple[float, int]](), 0.0, 0
    for pause, gained in rounds:
        now, total = now + pause, total + gained
        found = reading(sampler.sample(steps(total), now))
        old_enough = [at for at, _ in seen if at <= now - 30.0]
        if seen:
            start, before = next(s for s in seen if s[0] == (old_enough or [seen[0][0]])[-1])
            assert found.per_s == pytest.approx((total - before) / (now - start))
        else:
            assert found.per_s is None
        seen.append((now, total))


def test_a_counter_that_fell_is_read_as_one_that_starts_anew() -> None:
    sampler = Sampler()
    sampler.sample(steps(100), 0.0)
    sampler.sample(steps(200), 1.0)
    found = reading(sampler.sample(steps(30), 2.0))
    assert (found.increase, found.per_s) == (30.0, 15.0)
    # the others' windows are their own
    found = reading(sampler.sample(steps(50), 3.0))
    assert (found.increase, found.per_s) == (20.0, pytest.approx(50 / 3))


def test_a_counter_that_is_missing_for_a_while_goes_on_where_it_was() -> None:
    sampler = Sampler()
    sampler.sample(steps(100), 0.0)
    assert sampler.sample({}, 1.0).value(COUNTER) is None
    assert reading(sampler.sample(steps(110), 2.0)).increase == 10.0


def test_gauges_are_only_what_they_are() -> None:
    sampler = Sampler()
    for second, depth in ((0.0, 5), (1.0, 2)):
        found = reading(sampler.sample({"queue_depth": depth}, second), "rollouts_queue_depth")
    assert (found.value, found.increase, found.per_s) == (2.0, 0.0, None)


def test_unknown_numbers_are_beside_the_readings() -> None:
    sample = Sampler().sample({"queue_depth": 1, "mine": {"x": 2}}, 0.0, is_last=True)
    assert sample.other == {("mine", "x"): 2.0} and sample.is_last
    assert sample.value("rollouts_queue_depth") == 1.0
    assert sample.value("rollouts_restarts_total") is None


class Writer:
    """A SummaryWriter that keeps what it got."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []
        self.calls: list[str] = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.append((tag, value, step))

    def close(self) -> None:
        self.calls.append("close")

    def flush(self) -> None:
        self.calls.append("flush")


def test_tags_are_names_without_a_prefix_and_rates_without_total() -> None:
    writer, sampler = Writer(), Sampler()
    sink = TensorBoardSink(writer, first_step=1000)
    sampler.sample(steps(0, stale=0), 0.0)
    stats = {**steps(40, stale=4), "queue_depth": 3, "mine": {"x": 7}}
    sink.write(sampler.sample(stats, 2.0))
    assert set(writer.scalars) == {
        ("rollouts/env_steps_total", 40.0, 1040),
        ("rollouts/env_steps_per_s", 20.0, 1040),
        ("rollouts/env_steps_discarded_total/stale", 4.0, 1040),
        ("rollouts/env_steps_discarded_per_s/stale", 2.0, 1040),
        ("rollouts/queue_depth", 3.0, 1040),
        ("stats/mine/x", 7.0, 1040),
    }


def test_without_env_steps_the_axis_stands_at_the_first_step() -> None:
    writer = Writer()
    TensorBoardSink(writer, first_step=5).write(Sampler().sample({"queue_depth": 3}, 0.0))
    assert writer.scalars == [("rollouts/queue_depth", 3.0, 5)]


def test_a_writer_of_the_caller_is_flushed_and_not_closed() -> None:
    writer = Writer()
    TensorBoardSink(writer).close()
    assert writer.calls == ["flush"]


def test_a_writer_of_its_own_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    made: list[Any] = []

    def make(directory: str) -> Writer:
        made.append((directory, Writer()))
        return made[-1][1]  # type: ignore[no-any-return]

    monkeypatch.setattr("rollouts.metrics.tensorboard._open", make)
    TensorBoardSink(tmp_path).close()
    ((directory, writer),) = made
    assert directory == str(tmp_path) and writer.calls == ["close"]
    # any object with add_scalar will do
    assert TensorBoardSink(SimpleNamespace(flush=lambda: None)).close() is None
