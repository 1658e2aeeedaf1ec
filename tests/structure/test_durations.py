# SPDX-License-Identifier: Apache-2.0
"""The table of what takes longest: kept by Makefile's steps, and by them alone."""

from __future__ import annotations

import sys
from pathlib import Path

import durations
import pytest

TESTS = Path(__file__).resolve().parents[1]


def pytest_of(folder: Path, text: str, *more: str) -> list[str]:
    """A command that runs one test under the conftest of all tests."""
    (folder / "test_one.py").write_text(text)
    options = ["-q", *more, "-p", "conftest", "-p", "no:cacheprovider", f"--rootdir={folder}"]
    start = f"import sys; sys.path.insert(0, {str(TESTS)!r}); import pytest; "
    return [sys.executable, "-c", f"{start}sys.exit(pytest.main({[*options, str(folder)]!r}))"]


def test_a_step_keeps_the_seconds_of_its_files(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = pytest_of(tmp_path, "def test_one(): pass\n")
    assert durations.run("check", "tests", command, kept) == 0
    (step,) = durations.steps(kept)
    assert list(step.files) == ["test_one.py"]
    assert step.seconds > step.files["test_one.py"]


@pytest.mark.parametrize("processes", [0, 1])
def test_a_step_keeps_what_a_file_and_its_children_compute(tmp_path: Path, processes: int) -> None:
    computes = """
import subprocess, sys
COMPUTE = "while __import__('time').process_time() < 1: pass"
def test_a_child(): subprocess.run([sys.executable, "-c", COMPUTE], check=True)
"""
    command = pytest_of(tmp_path, computes, f"-n{processes}")
    (tmp_path / "test_two.py").write_text("def test_two(): pass\n")
    assert durations.run("check", "tests", command, tmp_path / "kept") == 0
    (step,) = durations.steps(tmp_path / "kept")
    used = step.cpu_s_of_files
    assert used["test_two.py"] < 0.5 <= used["test_one.py"] <= step.cpu_s


def test_a_step_whose_tests_failed_is_kept_and_says_so(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = pytest_of(tmp_path, "def test_one(): assert False\n")
    assert durations.run("check", "tests", command, kept) == 1
    (step,) = durations.steps(kept)
    assert step.failed and list(step.files) == ["test_one.py"]
    assert durations.table([step]).splitlines()[1].endswith(" s of CPU  tests (failed)")


def test_a_step_that_is_broken_off_leaves_what_was_kept(tmp_path: Path) -> None:
    before = durations.Step("check", "tests", 7.0, {"a.py": 6.0})
    before.keep(tmp_path / "kept")
    command = pytest_of(tmp_path, "def test_one(): raise KeyboardInterrupt\n")
    assert durations.run("check", "tests", command, tmp_path / "kept") == 2
    assert durations.steps(tmp_path / "kept") == [before]


def test_the_table_adds_up_steps_and_names_first_the_file_that_computes_most() -> None:
    found = [
        durations.Step("check", "mypy", 3.0, began=100.0, cpu_s=2.5),
        durations.Step(
            "check",
            "tests",
            9.0,
            {"waits.py": 6.0, "computes.py": 2.0},
            began=200.0,
            cpu_s=4.0,
            cpu_s_of_files={"waits.py": 0.5, "computes.py": 1.5},
        ),
    ]
    words = [line.split() for line in durations.table(found).splitlines()]
    assert words == [
        ["make", "check:", "12", "s"],
        ["3.0", "s", "2.5", "s", "of", "CPU", "mypy"],
        ["9.0", "s", "4.0", "s", "of", "CPU", "tests"],
        ["2.0", "s", "1.5", "s", "of", "CPU", "computes.py"],
        ["6.0", "s", "0.5", "s", "of", "CPU", "waits.py"],
    ]


def test_steps_that_ran_beside_each_other_count_once() -> None:
    found = [
        durations.Step("test", "mypy", 30.0, began=100.0),
        durations.Step("test", "tests", 90.0, began=110.0),
        durations.Step("test", "newest-gymnasium", 7.0, began=200.0),
    ]
    assert durations.table(found).splitlines()[0] == "make test: 107 s"
