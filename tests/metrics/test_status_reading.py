# SPDX-License-Identifier: Apache-2.0
"""The status file read back, damaged in every field, and what `top` makes of its numbers."""

from __future__ import annotations

import json
import math
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.errors import SpecError
from rollouts.metrics.sample import Sampler
from rollouts.metrics.status import (
    FILE_NAME,
    Status,
    StatusFileSink,
    find_status,
    read_status,
)
from rollouts.metrics.top import _bytes, _clean, _duration, _number, _share

NOW_S = 1_000_000.0


def written(run_dir: Path, *, time_s: float = NOW_S, is_last: bool = False) -> dict[str, Any]:
    """Writes a run's file and returns what is in it."""
    sink = StatusFileSink(run_dir, interval_s=2.0, clock=lambda: time_s)
    stats = {
        "env_steps": {"produced": 5, "discarded": {"stale": 2}},
        "queue_depth": 3,
        "workers": [{"worker_id": 4, "state": "running", "pid": 9, "secret": "x"}],
    }
    sink.write(Sampler().sample(stats, 0.0, is_last=is_last))
    found: dict[str, Any] = json.loads((run_dir / FILE_NAME).read_text())
    return found


def rewritten(run_dir: Path, **changes: Any) -> Path:
    data = written(run_dir) | changes
    (run_dir / FILE_NAME).write_text(json.dumps(data))
    return run_dir / FILE_NAME


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    written(tmp_path / "deep" / "run")
    status = read_status(tmp_path / "deep" / "run" / FILE_NAME)
    assert (status.pid, status.host) == (os.getpid(), socket.gethostname())
    assert (status.start_s, status.time_s, status.interval_s) == (NOW_S, NOW_S, 2.0)
    assert not status.finished
    assert status.value("rollouts_queue_depth") == 3.0
    assert status.per_s("rollouts_env_steps_total") is None
    assert status.labels("rollouts_env_steps_discarded_total") == {"stale": 2.0}
    assert status.value("rollouts_nothing") is None and status.labels("rollouts_nothing") == {}
    (worker,) = status.workers
    assert worker == {
        "worker_id": "4",
        "state": "running",
        "pid": 9,
        "incarnation": None,
        "host": None,
        "node": None,
        "last_error": None,
    }


def test_the_start_stays_while_the_time_goes_on(tmp_path: Path) -> None:
    times = iter([10.0, 20.0, 30.0])
    sink = StatusFileSink(tmp_path, clock=lambda: next(times))
    for is_last in (False, True):
        sink.write(Sampler().sample({}, 0.0, is_last=is_last))
    sink.close()
    status = read_status(tmp_path / FILE_NAME)
    assert (status.start_s, status.time_s, status.finished) == (10.0, 30.0, True)


def test_a_replaced_file_leaves_no_other_behind(tmp_path: Path) -> None:
    written(tmp_path)
    written(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_write_that_fails_leaves_the_file_before_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = written(tmp_path)

    def refuse(*args: Any) -> None:
        raise OSError("disk is full")

    monkeypatch.setattr("rollouts.metrics.status.os.replace", refuse)
    with pytest.raises(OSError, match="disk is full"):
        written(tmp_path)
    assert json.loads((tmp_path / FILE_NAME).read_text()) == before
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


WORKER = {"worker_id": 1, "state": "running"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "rollouts status 2"}, "its format is 'rollouts status 2', expected 'rollouts"),
        ({"pid": 0}, "pid is 0, expected that of a process"),
        ({"pid": -5}, "pid is -5"),
        ({"pid": 2**31}, "pid is 2147483648"),
        ({"pid": None}, "TypeError"),
        ({"time_s": "soon"}, "ValueError"),
        ({"start_s": None}, "TypeError"),
        ({"interval_s": []}, "TypeError"),
        ({"metrics": None}, "TypeError"),
        ({"metrics": [{"name": "x"}]}, "KeyError"),
        ({"metrics": [{"name": "x", "label": None, "value": "y", "per_s": None}]}, "ValueError"),
        ({"workers": 3}, "TypeError"),
        ({"workers": ["text"]}, "AttributeError"),
        ({"workers": [WORKER | {"state": ["x"]}]}, "state of a worker is a list, expected plain"),
        ({"workers": [WORKER | {"node": {}}]}, "node of a worker is a dict"),
    ],
)
def test_a_field_that_no_sink_writes_is_an_error(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = rewritten(tmp_path, **changes)
    with pytest.raises(SpecError, match="is not a readable status file") as caught:
        read_status(path)
    assert message in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["time_s", "start_s", "interval_s"])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, text: str, field: str) -> None:
    path = rewritten(tmp_path, **{field: "MARK"})
    path.write_text(path.read_text().replace('"MARK"', text))
    with pytest.raises(SpecError, match="is not a readable status file"):
        read_status(path)


@pytest.mark.parametrize("missing", ["format", "pid", "host", "finished", "metrics", "workers"])
def test_a_missing_field_is_an_error(tmp_path: Path, missing: str) -> None:
    data = written(tmp_path)
    del data[missing]
    (tmp_path / FILE_NAME).write_text(json.dumps(data))
    with pytest.raises(SpecError, match=f"KeyError: '{missing}'"):
        read_status(tmp_path / FILE_NAME)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / FILE_NAME, "wb") as file:
        file.truncate(2**25 + 1)
    with pytest.raises(SpecError, match="it has more than 33,554,432 bytes"):
        read_status(tmp_path / FILE_NAME)


def status_of(**changes: Any) -> Status:
    fields: dict[str, Any] = {
        "path": Path("x"),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "start_s": 0.0,
        "time_s": 100.0,
        "interval_s": 2.0,
        "finished": False,
        "metrics": {},
        "workers": (),
    }
    return Status(**fields | changes)


def test_news_may_be_three_intervals_and_five_seconds_old() -> None:
    assert status_of().state(100.0 + 3 * 2 + 5) == "running"
    assert status_of().state(100.0 + 3 * 2 + 5.1) == "silent"
    # a clock that went back is no reason to worry
    assert status_of().state(0.0) == "running"


def test_a_process_that_is_gone_is_looked_for_on_this_machine_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(pid: int, signal: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr("rollouts.metrics.status.os.kill", gone)
    assert status_of().state(100.0) == "gone"
    assert status_of(finished=True).state(1e9) == "finished"
    assert status_of(host="elsewhere").state(100.0) == "running"
    assert status_of(host="elsewhere").state(1e9) == "silent"


def test_a_process_of_another_user_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr("rollouts.metrics.status.os.kill", forbidden)
    assert status_of().state(100.0) == "running"


def test_a_run_that_lives_comes_before_a_newer_one_that_has_finished(tmp_path: Path) -> None:
    written(tmp_path / "a", time_s=NOW_S)
    written(tmp_path / "runs" / "b", time_s=NOW_S + 1)
    written(tmp_path / "c", time_s=NOW_S + 2, is_last=True)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / FILE_NAME).write_text("damaged")
    found = find_status(tmp_path, NOW_S + 2)
    assert found.path == tmp_path / "runs" / "b" / FILE_NAME
    # none of them lives any more: the newest
    assert find_status(tmp_path, NOW_S + 1e6).path == tmp_path / "c" / FILE_NAME


def test_a_directory_s_own_file_is_read_even_if_it_is_damaged(tmp_path: Path) -> None:
    written(tmp_path / "a")
    (tmp_path / FILE_NAME).write_text("{}")
    with pytest.raises(SpecError, match="is not a readable status file"):
        find_status(tmp_path, NOW_S)


def test_runs_two_folders_down_are_not_looked_for(tmp_path: Path) -> None:
    written(tmp_path / "a" / "b")
    with pytest.raises(SpecError, match=r"no status\.json in .*--run-dir"):
        find_status(tmp_path, NOW_S)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
        (0, "0"),
        (3.0, "3"),
        (1234567, "1,234,567"),
        (0.125, "0.12"),
        (99.5, "99.50"),
        (100.5, "100"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers_have_no_more_digits_than_they_need(value: Any, shown: str) -> None:
    assert _number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1 kB"),
        (1000, "1 kB"),
        (1534, "1.53 kB"),
        (999_400, "999 kB"),
        (999_600, "1 MB"),
        (2.5e9, "2.5 GB"),
        (9.9996e11, "1 TB"),
        (5e12, "5 TB"),
    ],
)
def test_bytes_have_three_digits_and_their_unit(value: Any, shown: str) -> None:
    assert _bytes(value) == shown


@given(st.floats(0, 1e14))
def test_bytes_never_need_an_exponent(value: float) -> None:
    number, unit = _bytes(value).split()
    factor = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]
    assert "e+" not in number
    assert float(number) * factor == pytest.approx(value, rel=5e-3, abs=1e-9)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (61, "1 min 1 s"),
        (3599.7, "1 h 0 min"),
        (7265, "2 h 1 min"),
        (math.inf, "-"),
        (math.nan, "-"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, shown: str) -> None:
    assert _duration(seconds) == shown


def test_waits_of_several_workers_may_be_more_than_all_of_the_time() -> None:
    assert _share(None) == "-"
    assert _share(0.256) == "26% of the time" and _share(2.5) == "250% of the time"


@given(st.text(max_size=20))
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    cleaned = _clean(text)
    assert len(cleaned) == len(text) and cleaned.isprintable()
    assert all(new in (old, "?") for new, old in zip(cleaned, text, strict=True))
