# SPDX-License-Identifier: Apache-2.0
"""Prints what takes longest of `make check`, `make test` and `make test-system`.

`python tests/durations.py` prints each command's total, its steps and its slowest files, as of
their last runs here. Makefile runs its steps by `python tests/durations.py step SUITE NAME
COMMAND`, which keeps in build/durations how long they took; pytest adds the seconds of each file.
CPU seconds, of whatever processes, say more than those of the clock where others use the machine.
A step in which tests failed is kept, too, and says so; one that was broken off is not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

BUILD = Path(__file__).resolve().parents[1] / "build"
KEPT = BUILD / "durations"
# the file to which pytest writes the seconds of each test file; Makefile's steps set it
VARIABLE = "ROLLOUTS_DURATIONS"
# the property of a report, and what asks xdist's processes for it
CPU = "cpu_s_of_its_file"
MOST_FILES = 15
# the exit status of pytest and mypy that went through everything and found errors
FOUND_ERRORS = 1


@dataclass
class Step:
    """One command of a suite: how long it took, of that each test file, when it began, its end."""

    suite: str
    name: str
    seconds: float = 0.0
    files: dict[str, float] = field(default_factory=dict)
    began: float = 0.0
    failed: bool = False
    cpu_s: float = 0.0
    cpu_s_of_files: dict[str, float] = field(default_factory=dict)

    def keep(self, kept: Path) -> None:
        kept.mkdir(parents=True, exist_ok=True)
        (kept / f"{self.suite}.{self.name}.json").write_text(json.dumps(asdict(self), indent=1))


def run(suite: str, name: str, command: list[str], kept: Path = KEPT) -> int:
    """Runs one step of a suite; keeps how long it took if it went through everything."""
    kept.mkdir(parents=True, exist_ok=True)
    files = kept / f"{suite}.{name}.files"
    files.write_text("{}")
    began, began_at, cpu_before = time.monotonic(), time.time(), _cpu_s_of_the_dead()
    environment = {**os.environ, VARIABLE: str(files)}
    status = subprocess.run(command, env=environment, check=False).returncode
    if status in (0, FOUND_ERRORS):
        seconds = round(time.monotonic() - began, 1)
        step = Step(suite, name, seconds, began=began_at, failed=status != 0)
        step.cpu_s = round(_cpu_s_of_the_dead() - cpu_before, 1)
        replace(step, **json.loads(files.read_text())).keep(kept)
    files.unlink()
    return status


def _cpu_s_of_the_dead() -> float:
    """CPU seconds of the processes that this one has started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def _cpu_s() -> float:
    """CPU seconds of this process and of all that it has started, such as Ray's."""
    import psutil

    process = psutil.Process()
    seconds = sum(process.cpu_times()[:4])
    for child in process.children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            seconds += sum(child.cpu_times()[:4])
    return seconds


class CpuOfFiles:
    """A plugin of pytest: the last report of each file says how much CPU its tests have used."""

    def __init__(self) -> None:
        self._before: float | None = None
        self._is_last = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Iterator[None]:
        if self._before is None:
            self._before = _cpu_s()
        self._is_last = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: Any) -> Iterator[None]:
        report = yield
        if call.when == "teardown" and self._is_last:
            after = _cpu_s()
            report.user_properties.append((CPU, max(0.0, after - self._before)))
            self._before = after
        return report


class Durations:
    """A plugin of pytest: adds up the seconds of each file's tests, their fixtures included."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: Counter[str] = Counter()
        self._cpu_s: Counter[str] = Counter()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[CPU] = True

    def pytest_runtest_logreport(self, report: Any) -> None:
        file = report.nodeid.split("::")[0]
        self._seconds[file] += report.duration
        self._cpu_s[file] += dict(report.user_properties).get(CPU, 0.0)

    def pytest_sessionfinish(self) -> None:
        found = {"files": self._seconds, "cpu_s_of_files": self._cpu_s}
        rounded = {
            name: {file: round(seconds, 2) for file, seconds in of_files.most_common()}
            for name, of_files in found.items()
        }
        self._path.write_text(json.dumps(rounded))


def plugins() -> list[CpuOfFiles | Durations]:
    """The plugins where Makefile runs the tests; a run by hand keeps nothing."""
    if not (path := os.environ.pop(VARIABLE, None)):  # a pytest that a test starts is no step
        return []
    return [CpuOfFiles(), Durations(Path(path))]


def steps(kept: Path = KEPT) -> list[Step]:
    """The last run of each step, in the order in which they ended."""
    found = sorted(kept.glob("*.json"), key=lambda path: path.stat().st_mtime)
    return [Step(**json.loads(path.read_text())) for path in found]


def covered(found: list[Step]) -> float:
    """Seconds in which at least one of the steps ran: some run beside others."""
    seconds, until = 0.0, 0.0
    for step in sorted(found, key=lambda step: step.began):
        ended = step.began + step.seconds
        seconds += max(0.0, ended - max(step.began, until))
        until = max(until, ended)
    return seconds


def table(found: list[Step]) -> str:
    lines = []
    for suite in dict.fromkeys(step.suite for step in found):
        of_suite = [step for step in found if step.suite == suite]
        lines.append(f"make {suite}: {covered(of_suite):.0f} s")
        lines += [
            f"  {step.seconds:8.1f} s {step.cpu_s:8.1f} s of CPU  "
            f"{step.name}{' (failed)' * step.failed}"
            for step in of_suite
        ]
        files = sum((Counter(step.files) for step in of_suite), Counter())
        cpu_s = sum((Counter(step.cpu_s_of_files) for step in of_suite), Counter())
        lines += [
            f"    {files[file]:8.1f} s {used:8.1f} s of CPU  {file}"
            for file, used in cpu_s.most_common(MOST_FILES)
        ]
    return "\n".join(lines) or "nothing is kept: run make check, make test or make test-system"


def main() -> None:
    if sys.argv[1:2] == ["step"]:
        suite, name, *command = sys.argv[2:]
        sys.exit(run(suite, name, command))
    print(table(steps()))


if __name__ == "__main__":
    main()
