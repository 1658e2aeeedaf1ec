# SPDX-License-Identifier: Apache-2.0
"""Prints what takes longest of `make check`, `make test` and `make test-system`.

`python tests/durations.py` prints each command's total, its steps and its slowest files, as of
their last runs here. Makefile runs its steps by `python tests/durations.py step SUITE NAME
COMMAND`, which keeps in build/durations how long they took; pytest adds the seconds of each file.
A step in which tests failed is kept, too, and says so; one that was broken off is not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "durations"
# the file to which pytest writes the seconds of each test file; Makefile's steps set it
VARIABLE = "ROLLOUTS_DURATIONS"
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

    def keep(self, kept: Path) -> None:
        kept.mkdir(parents=True, exist_ok=True)
        (kept / f"{self.suite}.{self.name}.json").write_text(json.dumps(asdict(self), indent=1))


def run(suite: str, name: str, command: list[str], kept: Path = KEPT) -> int:
    """Runs one step of a suite; keeps how long it took if it went through everything."""
    kept.mkdir(parents=True, exist_ok=True)
    files = kept / f"{suite}.{name}.files"
    files.write_text("{}")
    began, began_at = time.monotonic(), time.time()
    environment = {**os.environ, VARIABLE: str(files)}
    status = subprocess.run(command, env=environment, check=False).returncode
    if status in (0, FOUND_ERRORS):
        seconds = round(time.monotonic() - began, 1)
        of_files = json.loads(files.read_text())
        Step(suite, name, seconds, of_files, began_at, failed=status != 0).keep(kept)
    files.unlink()
    return status


class Durations:
    """A plugin of pytest: adds up the seconds of each file's tests, their fixtures included."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._files[report.nodeid.split("::")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        files = {file: round(seconds, 2) for file, seconds in self._files.most_common()}
        self._path.write_text(json.dumps(files))


def plugin() -> Durations | None:
    """The plugin where Makefile runs the tests; a run by hand keeps nothing."""
    path = os.environ.pop(VARIABLE, None)  # a pytest that a test starts is no step
    return Durations(Path(path)) if path else None


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
            f"  {step.seconds:8.1f} s  {step.name}{' (failed)' * step.failed}" for step in of_suite
        ]
        files = sum((Counter(step.files) for step in of_suite), Counter())
        lines += [f"    {took:8.1f} s  {file}" for file, took in files.most_common(MOST_FILES)]
    return "\n".join(lines) or "nothing is kept: run make check, make test or make test-system"


def main() -> None:
    if sys.argv[1:2] == ["step"]:
        suite, name, *command = sys.argv[2:]
        sys.exit(run(suite, name, command))
    print(table(steps()))


if __name__ == "__main__":
    main()
