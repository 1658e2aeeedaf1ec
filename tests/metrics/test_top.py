# SPDX-License-Identifier: Apache-2.0
"""The status file and `rollouts top`, which shows it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollouts.cli.main import main
from rollouts.errors import SpecError
from rollouts.metrics import MetricsReporter, StatusFileSink
from rollouts.metrics.status import FILE_NAME, Status, find_status, read_status

pytest.importorskip("rich")

STATS: dict[str, Any] = {
    "env_steps": {"produced": 4800, "delivered": 3200, "queued": 1584, "discarded": {"lost": 16}},
    "fragments": {
        "produced": 300,
        "delivered": 200,
        "queued": 99,
        "discarded": {"lost": 1},
        "in_flight": 3,
        "interrupted": {"worker_died": 2},
    },
    "queue_depth": 99,
    "restarts": 7,
    "policy_version": 12,
    "policy_lag": {"min": 0, "mean": 1.5, "max": 4},
    "policy_lag_histogram": {"0": 2400, "1": 600, "10": 200},
    "learner_wait_s": 0.0,
    "workers_wait_s": 0.0,
    "queued_bytes": 2_500_000,
    "workers": [
        {"worker_id": 0, "incarnation": 0, "state": "running", "pid": 11, "host": "alpha",
         "in_flight": 2, "fragments": 200, "env_steps": 2000, "last_error": None},
        {"worker_id": 1, "incarnation": 7, "state": "benched", "pid": None, "host": None,
         "in_flight": 1, "fragments": 100, "env_steps": 1000,
         "last_error": "Traceback:\n  ValueError: \x1b[31mred [bold]"},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def write_run(run_dir: Path, *, finish: bool = False, time_s: float | None = None) -> Path:
    """Writes the status of a run of this process, as two samples one second apart."""
    stats = json.loads(json.dumps(STATS))
    times = iter((0.0, 1.0, 2.0))
    clock = {} if time_s is None else {"clock": lambda: time_s}
    sink = StatusFileSink(run_dir, **clock)  # type: ignore[arg-type]
    reporter = MetricsReporter(lambda: stats, [sink], interval_s=None, clock=lambda: next(times))
    reporter.report()
    stats["env_steps"]["produced"] += 1234
    stats["workers"][0]["env_steps"] += 823
    stats["learner_wait_s"] += 0.25
    reporter.report()
    if finish:
        reporter.close()
    return run_dir / FILE_NAME


def change(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def dead_pid() -> int:
    """A process that has ended and was waited for."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def top(*args: object) -> int:
    return main(["top", "--once", *map(str, args)])


def test_a_frame_shows_the_whole_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path)
    assert top("--run-dir", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    text = "\n".join(lines)
    for shown in (
        "1,234",
        "25% of the time",
        "2.5 MB",
        "running",
        "restarts",
        "worker_died",
        "lost",
    ):
        assert shown in text
    # by number, not by text, and in proportion
    bars = [line.split() for line in lines if "█" in line and line.split()[0].isdigit()]
    assert [bar[0] for bar in bars] == ["0", "1", "10"]
    assert [bar[-1] for bar in bars] == ["75.0%", "18.8%", "6.2%"]
    assert bars[0][1] == "█" * 40 and bars[1][1] == "█" * 10


def test_a_frame_has_a_row_per_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path)
    top("--run-dir", tmp_path)
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("worker"))
    first, second = lines[start + 1].split(), lines[start + 2].split()
    assert first == ["0", "0", "823", "2", "running", "alpha", "11"]
    assert second[:2] == ["1", "7"] and second[4] == "benched"


def test_control_characters_of_a_worker_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path)
    top("--run-dir", tmp_path)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "ValueError: ?[31mred [bold]" in text


def test_metrics_that_a_run_lacks_are_shown_as_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = MetricsReporter(dict, [StatusFileSink(tmp_path)], interval_s=None)
    reporter.report()
    assert top("--run-dir", tmp_path) == 0
    assert "no Ray workers" in capsys.readouterr().out


def test_a_finished_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_run(tmp_path, finish=True)
    change(path, pid=dead_pid())
    assert top("--run-dir", tmp_path) == 0
    assert "finished" in capsys.readouterr().out


def test_a_run_whose_process_is_gone_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(tmp_path)
    change(path, pid=dead_pid())
    assert top("--run-dir", tmp_path) == 1
    assert "is gone without finishing" in capsys.readouterr().out


def test_a_run_without_news_is_silent(tmp_path: Path) -> None:
    status = read_status(write_run(tmp_path, time_s=1000.0))
    assert status.state(1000.0 + 3 * 5.0 + 5.0) == "running"
    assert status.state(1000.0 + 3 * 5.0 + 5.1) == "silent"


def test_the_processes_of_another_machine_are_not_looked_for(tmp_path: Path) -> None:
    path = write_run(tmp_path, time_s=1000.0)
    change(path, pid=dead_pid(), host="elsewhere")
    assert read_status(path).state(1001.0) == "running"


def test_live_view_ends_with_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, finish=True)
    assert main(["top", "--run-dir", str(tmp_path)]) == 0
    assert "finished" in capsys.readouterr().out


def test_no_run_is_an_error_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert top("--run-dir", tmp_path) == 2
    error = capsys.readouterr().err
    assert "no status.json in" in error and "--run-dir" in error


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "rollouts status 9"}'])
def test_a_foreign_or_damaged_file_is_an_error(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    assert top("--run-dir", tmp_path) == 2
    assert "not a readable status file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change_text",
    [
        lambda text: text.replace('"value": 12', '"value": Infinity'),
        lambda text: text.replace('"value": 12', '"value": NaN'),
        lambda text: text.replace('"value": 12', '"value": 1e999'),
        lambda text: text.replace('"value": 12', '"value": ' + "9" * 400),
        lambda text: text.replace('"value": 12', '"value": ' + "9" * 9000),
        lambda text: text.replace('"value": 12', '"value": ' + "[" * 100_000 + "]" * 100_000),
        lambda text: text.replace('"value": 12', '"x": "' + " " * 2**25 + '", "value": 12'),
        lambda text: text.replace('"state": "running"', '"state": [["running"]]'),
        lambda text: text.replace('"interval_s"', '"interval_s": -Infinity, "y"'),
        lambda text: text.replace('"pid"', f'"pid": {2**70}, "z"', 1),
    ],
)
def test_numbers_and_nests_that_no_run_writes_are_an_error(
    change_text: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(tmp_path)
    text = path.read_text()
    assert change_text(text) != text
    path.write_text(change_text(text))
    assert top("--run-dir", tmp_path) == 2
    assert "not a readable status file" in capsys.readouterr().err


def test_the_largest_numbers_that_json_has_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_run(tmp_path)
    data = json.loads(path.read_text())
    for metric in data["metrics"]:
        metric.update(value=1.7e308, per_s=-1.7e308)
    change(path, metrics=data["metrics"], start_s=-1.7e308, time_s=1.7e308)
    assert top("--run-dir", tmp_path) == 0
    assert "policy lag" in capsys.readouterr().out


def test_a_terminal_without_unicode_shows_a_frame(tmp_path: Path) -> None:
    write_run(tmp_path / "\u00e9")
    done = subprocess.run(
        [sys.executable, "-m", "rollouts", "top", "--once", "--run-dir", str(tmp_path / "\u00e9")],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "200"},
        capture_output=True,
        timeout=300,
        check=False,
    )
    # the process that wrote the file goes on
    assert done.returncode == 0, done.stderr.decode()
    assert b"\\xe9" in done.stdout and b"####" in done.stdout


def test_the_newest_living_run_below_the_working_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, time_s in (("a", 1000.0), ("b", 1002.0), ("c", 1004.0)):
        write_run(tmp_path / "runs" / name, time_s=time_s)
    change(tmp_path / "runs" / "c" / FILE_NAME, finished=True)
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / FILE_NAME).write_text("{")
    for directory in (tmp_path, tmp_path / "runs"):
        assert find_status(directory, 1005.0).path.parent.name == "b"
    monkeypatch.chdir(tmp_path)
    assert top() == 0


def test_a_missing_rich_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert top("--run-dir", tmp_path) == 2
    assert "pip install 'rollouts[top]'" in capsys.readouterr().err


def test_the_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [FILE_NAME]


def test_numbers_that_json_cannot_hold_are_left_out(tmp_path: Path) -> None:
    stats = {"queue_depth": float("nan"), "restarts": 2}
    MetricsReporter(lambda: stats, [StatusFileSink(tmp_path)], interval_s=None).report()
    status: Status = read_status(tmp_path / FILE_NAME)
    assert status.value("rollouts_queue_depth") is None
    assert status.value("rollouts_restarts_total") == 2


def test_reading_what_is_not_there_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"status\.json"):
        read_status(tmp_path / FILE_NAME)


def test_an_interval_must_be_a_positive_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["top", "--interval-s", "0"])
    assert "expected a number above 0" in capsys.readouterr().err
