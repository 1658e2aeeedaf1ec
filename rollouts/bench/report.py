# SPDX-License-Identifier: Apache-2.0
"""Benchmark results as a table for people and as JSON for programs."""

from __future__ import annotations

import itertools
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rollouts.bench.measurement import Comparison, Failure, Measurement, geometric_means
from rollouts.bench.own_pools import Rollouts, Stepper
from rollouts.machine.cpu_count import usable_cpus

COUNTING = (
    "The same random actions for all. One env-step is one row returned by step or recv. Autoreset "
    "is next-step everywhere: the row with the first observation of a new episode counts as one "
    "for every library alike."
)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a benchmark.

    Attributes:
      cpu_model: Name of the CPU, from the system.
      usable_cpus: CPUs that this process may use.
      load_1min: Runnable processes, averaged over the minute before; None if unknown.
      versions: Versions of the libraries measured, Python and NumPy.
    """

    cpu_model: str
    usable_cpus: int
    load_1min: float | None
    versions: Mapping[str, str]


def describe_machine(peers: Sequence[Stepper]) -> Machine:
    """Describes this machine and what is installed on it.

    Raises:
      EngineError: A peer is not installed.
    """
    versions = {library.name: library.version() for library in (Rollouts(), *peers)}
    versions |= {"python": platform.python_version(), "numpy": np.__version__}
    try:
        load = round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):  # not every system has it
        load = None
    return Machine(_cpu_model(), usable_cpus(), load, versions)


def header(machine: Machine) -> str:
    """One line: versions, CPU, and the machine's load before the run."""
    versions = [f"{name} {version}" for name, version in machine.versions.items()]
    cpus = f"{machine.usable_cpus} usable CPU{'s' if machine.usable_cpus > 1 else ''}"
    load = [] if machine.load_1min is None else [f"load average {machine.load_1min}"]
    return ", ".join([*versions, machine.cpu_model, cpus, *load])


def table(comparisons: Sequence[Comparison], *, markdown: bool = False) -> str:
    """All measurements, one row each.

    Args:
      comparisons: The measurements.
      markdown: Whether to make a Markdown table; otherwise aligned plain text.

    Returns:
      Lines without a final newline; in plain text, blank lines separate the settings of a sweep.
    """
    rows = [
        row
        for each in comparisons
        for row in [
            *(_row(each, measurement) for measurement in each.measurements),
            *(_failed_row(each, failure) for failure in each.failures),
        ]
    ]
    # without an emulator there are no frames, without a peer no ratio
    columns = [name for name in rows[0] if any(row.get(name) for row in rows)]
    cells = [columns, *([row.get(name, "") for name in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    is_text = [name in _TEXT_COLUMNS for name in columns]
    padded = [
        [
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(line, widths, is_text, strict=True)
        ]
        for line in cells
    ]
    if not markdown:
        lines = ["  ".join(line).rstrip() for line in padded]
        return "\n".join(_apart(lines, comparisons) if _is_sweep(comparisons) else lines)
    rule = [
        "-" * width if text else "-" * (width - 1) + ":"
        for width, text in zip(widths, is_text, strict=True)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in [padded[0], rule, *padded[1:]])


def footer(
    comparisons: Sequence[Comparison],
    *,
    command: str,
    counting: str = COUNTING,
    skipped: Sequence[str] = (),
) -> str:
    """Explains the table's figures, and how to get them again.

    Args:
      comparisons: The measurements.
      command: The command that measures them again.
      counting: Definition of an env-step.
      skipped: A sentence for each combination that was not measured.

    Returns:
      Lines without a final newline.
    """
    settings = comparisons[0].settings
    plural = "s" if settings.repeats > 1 else ""
    lines = [
        f"Median, minimum and maximum of {settings.repeats} repeat{plural} of about "
        f"{settings.duration_s:g} s, the libraries taking turns.",
        counting,
    ]
    notes = {
        f"{measurement.library}: {note}": None
        for each in comparisons
        for measurement in each.measurements
        for note in measurement.notes
    }
    means = [
        f"Geometric mean of {count} rows: rollouts is {digits(mean)}x {library}."
        for library, (mean, count) in geometric_means(comparisons).items()
    ]
    failures = dict.fromkeys(
        f"{one.library} {one.version} was not measured with {each.settings.id}: {one.reason}"
        for each in comparisons
        for one in each.failures
    )
    return "\n".join([*means, *lines, *notes, *failures, *skipped, f"Command: {command}"])


def to_json(
    comparisons: Sequence[Comparison],
    machine: Machine,
    *,
    command: str,
    counting: str = COUNTING,
    skipped: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything that was measured, as values that `json.dumps` takes."""
    return {
        "command": command,
        "counting": counting,
        "machine": {
            "cpu_model": machine.cpu_model,
            "usable_cpus": machine.usable_cpus,
            "load_1min": machine.load_1min,
            "platform": platform.platform(),
        },
        "versions": dict(machine.versions),
        "geometric_means": {
            library: {"rollouts_ratio": mean, "rows": count}
            for library, (mean, count) in geometric_means(comparisons).items()
        },
        "results": [_comparison_to_json(each) for each in comparisons],
        "skipped": list(skipped),
    }


def si(value: float) -> str:
    """Three significant digits with k, M or G."""
    if value < 0:
        return f"-{si(-value)}"
    # rounded first, because 999,600 becomes a million
    value = float(f"{value:.3g}")
    for limit, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= limit:
            return digits(value / limit) + suffix
    return digits(value)


_TEXT_COLUMNS = frozenset({"environment", "calls", "library"})


def _is_sweep(comparisons: Sequence[Comparison]) -> bool:
    """Tells if an environment id was measured with several settings."""
    return len({each.settings.id for each in comparisons}) < len(comparisons)


def _apart(lines: Sequence[str], comparisons: Sequence[Comparison]) -> list[str]:
    """The head and the rows, with an empty line before each setting that has several rows."""
    head, rows = lines[0], iter(lines[1:])
    result = [head]
    for each in comparisons:
        count = len(each.measurements) + len(each.failures)
        is_first = each is comparisons[0]
        result += [""] if count > 1 and not is_first else []
        result += itertools.islice(rows, count)
    return result


def _row(comparison: Comparison, measurement: Measurement) -> dict[str, str]:
    frames = comparison.frames_per_step
    is_ours = measurement is comparison.measurements[0]
    return {
        "environment": comparison.settings.id,
        "num_envs": str(comparison.settings.num_envs),
        "batch_size": str(measurement.batch_size),
        "threads": str(measurement.num_threads),
        "calls": measurement.api,
        "busy loops": _busy_loops(comparison),
        "library": measurement.library,
        "env-steps/s": si(measurement.median),
        "min": si(min(measurement.env_steps_per_s)),
        "max": si(max(measurement.env_steps_per_s)),
        "us/call": digits(measurement.us_per_call),
        "agent-steps/s": _agent_steps(comparison, measurement),
        "frames/s": "" if frames is None else si(measurement.median * frames),
        "rollouts is": "" if is_ours else f"{digits(comparison.ratio(measurement))}x",
        **{column: _percent(comparison, measurement, column) for column in comparison.shares},
    }


def _failed_row(comparison: Comparison, failure: Failure) -> dict[str, str]:
    """A row without figures; the reason is below the table."""
    return {
        "environment": comparison.settings.id,
        "num_envs": str(comparison.settings.num_envs),
        "calls": "not measured",
        "busy loops": _busy_loops(comparison),
        "library": failure.library,
    }


def _busy_loops(comparison: Comparison) -> str:
    count = comparison.settings.busy_loops
    return str(count) if count else ""


def _agent_steps(comparison: Comparison, measurement: Measurement) -> str:
    agents = comparison.num_agents
    return si(measurement.median * agents) if agents else ""


def _percent(comparison: Comparison, measurement: Measurement, column: str) -> str:
    share = comparison.share(measurement, column)
    return "" if share is None else f"{digits(100 * share)} %"


def _comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    settings = comparison.settings
    return {
        "id": settings.id,
        "settings": {
            "num_envs": settings.num_envs,
            "batch_size": settings.batch_size,
            "num_threads": settings.num_threads,
            "seed": settings.seed,
            "duration_s": settings.duration_s,
            "repeats": settings.repeats,
            "env_options": dict(comparison.env_options),
            "max_episode_steps": settings.max_episode_steps,
            "busy_loops": settings.busy_loops,
        },
        "measurements": [
            _measurement_to_json(comparison, each) for each in comparison.measurements
        ],
        "not_measured": [asdict(each) for each in comparison.failures],
    }


def _measurement_to_json(comparison: Comparison, measurement: Measurement) -> dict[str, Any]:
    frames = comparison.frames_per_step
    is_ours = measurement is comparison.measurements[0]
    rates = measurement.env_steps_per_s
    return {
        "library": measurement.library,
        "version": measurement.version,
        "api": measurement.api,
        "batch_size": measurement.batch_size,
        "num_threads": measurement.num_threads,
        "options": dict(measurement.options),
        "notes": list(measurement.notes),
        "calls_per_repeat": measurement.calls,
        "repeats": [
            {"elapsed_s": elapsed, "env_steps_per_s": rate}
            for elapsed, rate in zip(measurement.elapsed_s, rates, strict=True)
        ],
        "env_steps_per_s": {"median": measurement.median, "min": min(rates), "max": max(rates)},
        "us_per_call": measurement.us_per_call,
        "num_agents": comparison.num_agents,
        "frames_per_s": None if frames is None else measurement.median * frames,
        "rollouts_ratio": None if is_ours else comparison.ratio(measurement),
        "shares": {name: comparison.share(measurement, name) for name in comparison.shares},
    }


def digits(value: float) -> str:
    """Three significant digits, never in scientific notation; "nan" where there is no number."""
    if not math.isfinite(value):
        return str(value)
    if value <= 0:
        return "0"
    value = float(f"{value:.3g}")  # 9.996 becomes 10.0, with one decimal less
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown CPU"
