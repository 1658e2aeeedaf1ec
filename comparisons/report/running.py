# SPDX-License-Identifier: Apache-2.0
"""Commands of the report, each in a process of its own: a peer's crash costs its own rows only."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from comparisons.report.plan import Measure
from comparisons.report.report_rows import Row, read_rows
from rollouts.bench import all_peers
from rollouts.cli.subjects import subject_of

_TOLD_LINES = 4  # number of a failed command's last lines that an error shows


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome: the result of one measure.

    Attributes:
      command: The command line that measures it again.
      elapsed_s: Seconds it took.
      rows: The rows measured; empty where it failed.
      problems: A sentence for each peer that was left out, and the reason where the command failed.
    """

    command: str
    elapsed_s: float
    rows: list[Row] = field(default_factory=list)
    problems: tuple[str, ...] = ()


def run_measure(measure: Measure, plot: str | None = None) -> Outcome:
    """Runs a measure with those of its peers that are installed.

    Args:
      measure: A measure of `plan`.
      plot: File for the plot that the command draws itself; None for none.
    """
    peers, problems = _installed(measure.peers)
    flags = [word for name in peers for word in ("--peer", name)]
    given = [*measure.arguments, *flags]
    command = shlex.join(["rollouts", *given])
    lacking = [name for name in measure.needs if not _is_there(name)]
    if lacking:
        problems.append(f"{command}: not measured, {lacking[0]} is not installed.")
        return Outcome(command, 0.0, problems=tuple(problems))

    drawn = [] if plot is None else ["--plot", plot]
    started = time.perf_counter()
    data, problem = _run([*given, *drawn, "--json"], measure.timeout_s)
    elapsed_s = time.perf_counter() - started
    if problem:
        problems.append(f"{command}: {problem}")
        return Outcome(command, elapsed_s, problems=tuple(problems))
    rows = read_rows(subject_of(measure.arguments), data)
    if isinstance(data, dict):
        problems += data.get("missing", [])
        problems += [
            f"{one['library']} {one['version']}: not measured with {result['id']}, {one['reason']}"
            for result in data.get("results", [])
            for one in result["not_measured"]
        ]
    return Outcome(command, elapsed_s, rows, tuple(problems))


def _run(arguments: Sequence[str], timeout_s: float) -> tuple[Any, str]:
    """The command's output, and its error; "" for none."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rollouts", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # ends the command and the processes that it started
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, f"ended by the report after {timeout_s:.0f} s."
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode != 0:
        last = " / ".join(errors.strip().splitlines()[-_TOLD_LINES:]) or "it said nothing"
        return None, f"exit status {process.returncode}: {last}"
    try:
        # skips the banners that libraries print
        return json.loads(out[_begin(out) :]), ""
    except ValueError as error:
        return None, f"printed no JSON ({error})."


def _begin(out: str) -> int:
    """The start of the JSON: the first line that is only a bracket."""
    at = 0
    for line in out.splitlines(keepends=True):
        if line.strip() in ("{", "["):
            return at
        at += len(line)
    return 0


def _installed(names: Sequence[str]) -> tuple[list[str], list[str]]:
    there, problems = [], []
    known = all_peers.peers()
    for name in names:
        if known[name].is_installed():
            there.append(name)
        else:
            problems.append(f"{name}: not installed, so not measured; {known[name].install}.")
    return there, problems


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that contains it is missing
        return False
