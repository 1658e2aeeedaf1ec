# SPDX-License-Identifier: Apache-2.0
"""Metrics from stats that a test makes up, with a clock that a test moves."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rollouts.errors import ClosedError, EngineError, SpecError
from rollouts.metrics import (
    METRICS,
    MetricsReporter,
    Reading,
    Sample,
    TensorBoardSink,
    metrics_table,
)

TIMEOUT_S = 120.0


def make_stats(steps: int = 0, **more: Any) -> dict[str, Any]:
    account = {"produced": steps, "delivered": steps, "queued": 0, "discarded": {}}
    fragments = {**account, "produced": steps // 8, "in_flight": 2, "interrupted": {}}
    return {"env_steps": account, "fragments": fragments, "queue_depth": 1, "restarts": 0, **more}


def worker(worker_id: int, **more: Any) -> dict[str, Any]:
    return {"worker_id": worker_id, "incarnation": 0, "state": "running", "last_error": None} | more


class Source:
    """Stats and a clock that stand where a test puts them."""

    def __init__(self, stats: dict[str, Any]) -> None:
        self.stats = stats
        self.now_s = 100.0

    def __call__(self) -> dict[str, Any]:
        return self.stats

    def clock(self) -> float:
        return self.now_s


class Recorder:
    """A sink that keeps what it got, and an event that says when it did."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.written = threading.Event()
        self.closed = 0

    def write(self, sample: Sample) -> None:
        self.samples.append(sample)
        self.written.set()

    def close(self) -> None:
        self.closed += 1


class Broken(Recorder):
    def write(self, sample: Sample) -> None:
        super().write(sample)
        raise OSError("disk full")


def reading(sample: Sample | None, name: str, label: str | None = None) -> Reading:
    assert sample is not None
    (found,) = [r for r in sample.readings if (r.metric.name, r.label) == (name, label)]
    return found


def names(sample: Sample | None) -> set[str]:
    assert sample is not None
    return {r.metric.name for r in sample.readings}


# -- the table -------------------------------------------------------------------------


def test_names_follow_the_conventions_of_prometheus() -> None:
    assert len({m.name for m in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"rollouts(_[a-z]+)+", metric.name)
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert metric.path.count("*") == (metric.label is not None)
        # base units, and in the name
        for unit in ("seconds", "bytes"):
            assert (metric.unit == unit) == (unit in metric.name)


def test_the_docstring_lists_the_table() -> None:
    rows = re.findall(r"^  (rollouts_\S+) +(.+)$", metrics_table.__doc__ or "", re.MULTILINE)
    documented = {name: re.split(r"  +", rest) for name, rest in rows}
    assert list(documented) == [m.name for m in METRICS]
    for metric in METRICS:
        expected = [metric.unit, metric.label, metric.help]
        assert documented[metric.name] == [cell for cell in expected if cell is not None]


def test_missing_keys_leave_their_metrics_out() -> None:
    reporter = MetricsReporter(Source({}), [], interval_s=None)
    assert names(reporter.report()) == set()
    reporter = MetricsReporter(Source({"queue_depth": 3}), [], interval_s=None)
    assert names(reporter.report()) == {"rollouts_queue_depth"}


def test_nested_keys_and_lists_become_labels() -> None:
    stats = make_stats(64, workers=[worker(3), worker(5, state="benched")])
    stats["env_steps"]["discarded"] = {"lost": 8, "closed": 16}
    sample = MetricsReporter(Source(stats), [], interval_s=None).report()
    discarded = "rollouts_env_steps_discarded_total"
    assert reading(sample, discarded, "lost").value == 8
    assert reading(sample, discarded, "closed").value == 16
    assert reading(sample, "rollouts_worker_up", "3").value == 1
    assert reading(sample, "rollouts_worker_up", "5").value == 0


def test_workers_may_come_as_a_list_or_by_id() -> None:
    by_id = {"workers": {"3": {"state": "running", "in_flight": 2}}}
    as_list = {"workers": [{"worker_id": 3, "state": "running", "in_flight": 2}]}
    for stats in (by_id, as_list):
        sample = MetricsReporter(Source(stats), [], interval_s=None).report()
        assert reading(sample, "rollouts_worker_up", "3").value == 1
        assert reading(sample, "rollouts_worker_in_flight", "3").value == 2


def test_texts_and_none_are_no_numbers() -> None:
    stats = {"policy_lag": None, "workers": [worker(0)], "note": "12", "ok": True}
    assert metrics_table.flatten(stats) == {
        ("workers", "0", "worker_id"): 0.0,
        ("workers", "0", "incarnation"): 0.0,
        ("workers", "0", "is_running"): 1.0,
        ("ok",): 1.0,
    }


def test_unknown_numbers_are_kept_beside_the_table() -> None:
    sample = MetricsReporter(Source({"new": {"key": 2}}), [], interval_s=None).report()
    assert sample is not None and sample.other == {("new", "key"): 2.0}


# -- rates -----------------------------------------------------------------------------


def test_rates_are_increases_over_the_time_between_samples() -> None:
    source = Source(make_stats(1000))
    reporter = MetricsReporter(source, [], interval_s=None, clock=source.clock)
    first = reading(reporter.report(), "rollouts_env_steps_total")
    assert (first.value, first.increase, first.per_s) == (1000, 1000, None)
    source.stats, source.now_s = make_stats(1500), 102.0
    second = reading(reporter.report(), "rollouts_env_steps_total")
    assert (second.value, second.increase, second.per_s) == (1500, 500, 250)


def test_rates_span_the_pauses_of_a_thread_that_collects_and_learns() -> None:
    source = Source(make_stats(1000))
    reporter = MetricsReporter(source, [], interval_s=None, clock=source.clock)
    rates = []
    for now_s, steps in ((100, 1000), (105, 2000), (110, 2000), (115, 2000), (140, 2000)):
        source.stats, source.now_s = make_stats(steps), float(now_s)
        found = reading(reporter.report(), "rollouts_env_steps_total")
        rates.append(found.per_s)
    # rates of the last thirty seconds
    assert rates == [None, 200, 100, 1000 / 15, 0]
    assert found.increase == 0


def test_a_counter_that_fell_counts_from_zero() -> None:
    source = Source(make_stats(1000))
    reporter = MetricsReporter(source, [], interval_s=None, clock=source.clock)
    reporter.report()
    source.stats, source.now_s = make_stats(40), 104.0
    again = reading(reporter.report(), "rollouts_env_steps_total")
    assert (again.increase, again.per_s) == (40, 10)


def test_gauges_have_no_rate() -> None:
    source = Source(make_stats())
    reporter = MetricsReporter(source, [], interval_s=None, clock=source.clock)
    reporter.report()
    source.now_s = 101.0
    depth = reading(reporter.report(), "rollouts_queue_depth")
    assert (depth.value, depth.increase, depth.per_s) == (1, 0, None)


def test_two_samples_at_one_time_have_no_rate() -> None:
    source = Source(make_stats(8))
    reporter = MetricsReporter(source, [], interval_s=None, clock=source.clock)
    reporter.report()
    assert reading(reporter.report(), "rollouts_env_steps_total").per_s is None


# -- the reporter ----------------------------------------------------------------------


def test_the_thread_reports_again_and_again() -> None:
    sink = Recorder()
    with MetricsReporter(Source(make_stats()), [sink], interval_s=0.001):
        for _ in range(3):
            assert sink.written.wait(TIMEOUT_S)
            sink.written.clear()


def test_close_writes_a_last_sample_once_and_ends_the_thread() -> None:
    sink = Recorder()
    reporter = MetricsReporter(Source(make_stats()), [sink], interval_s=3600)
    assert sink.written.wait(TIMEOUT_S)
    reporter.close()
    reporter.close()
    assert [sample.is_last for sample in sink.samples] == [False, True]
    assert sink.closed == 1
    assert "rollouts-metrics" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ClosedError):
        reporter.report()


def test_a_broken_sink_is_logged_once_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    broken, sink = Broken(), Recorder()
    reporter = MetricsReporter(Source(make_stats()), [broken, sink], interval_s=None)
    with caplog.at_level(logging.WARNING):
        reporter.report()
        reporter.report()
        reporter.close()
    assert len(broken.samples) == len(sink.samples) == 3
    (record,) = caplog.records
    assert "Broken failed" in record.message and "disk full" in (record.exc_text or "")


def test_broken_stats_are_logged_once_and_reported_again_when_they_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink, broken = Recorder(), True

    def stats() -> dict[str, Any]:
        if broken:
            raise RuntimeError("no stats today")
        return make_stats()

    reporter = MetricsReporter(stats, [sink], interval_s=None)
    with caplog.at_level(logging.WARNING):
        assert reporter.report() is None
        assert reporter.report() is None
    broken = False
    assert reporter.report() is sink.samples[0]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("interval_s", [0, -1.0, float("nan")])
def test_an_interval_must_be_positive(interval_s: float) -> None:
    with pytest.raises(SpecError, match="interval_s"):
        MetricsReporter(Source({}), [], interval_s=interval_s)


# -- TensorBoard -----------------------------------------------------------------------


def test_tensorboard_gets_values_and_rates_over_env_steps(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    source = Source(make_stats(1000, workers=[worker(0, env_steps=900)], new={"key": 2}))
    sink = TensorBoardSink(tmp_path, first_step=50)
    reporter = MetricsReporter(source, [sink], interval_s=None, clock=source.clock)
    reporter.report()
    source.stats, source.now_s = make_stats(1500, workers=[worker(0, env_steps=1400)]), 102.0
    reporter.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    steps = [(e.step, e.value) for e in events.Scalars("rollouts/env_steps_total")]
    assert steps == [(1050, 1000), (1550, 1500)]
    assert [(e.step, e.value) for e in events.Scalars("rollouts/env_steps_per_s")] == [(1550, 250)]
    assert len(events.Scalars("rollouts/worker_env_steps_per_s/0")) == 1
    assert [e.value for e in events.Scalars("stats/new/key")] == [2]


def test_a_missing_tensorboard_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(EngineError, match=r"rollouts\[tensorboard\]"):
        TensorBoardSink(tmp_path)


def test_metrics_load_neither_tensorboard_nor_rich_nor_ray() -> None:
    heavy = ["tensorboard", "rich", "ray", "torch"]
    code = (
        "import sys, rollouts.cli.main, rollouts.metrics, rollouts.workers.on_ray.ray_metrics; "
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    assert result.stdout.strip() == "[]"
