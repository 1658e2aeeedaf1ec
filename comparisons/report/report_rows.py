# SPDX-License-Identifier: Apache-2.0
"""Row: one figure of the report, read from a command's JSON."""

from __future__ import annotations

import importlib.metadata
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rollouts.bench.report import digits, si

# distributions whose versions are reported with contestants of `bench adapter`, by the beginning of
# the contestants' names
_DISTRIBUTIONS = {
    "rollouts": "rollouts",
    "gymnasium": "gymnasium",
    "rllib": "ray",
    "sb3": "stable-baselines3",
    "tianshou": "tianshou",
    "torchrl": "torchrl",
    "pufferlib": "pufferlib",
    "cleanrl": "gymnasium",  # its loop steps Gymnasium's SyncVectorEnv
    "envpool": "envpool",
}


@dataclass(frozen=True, slots=True)
class Row:
    """Row: the figures of one library in one case.

    Attributes:
      case: The case that was measured, named alike in all rows that can be compared.
      library, version: The library that was measured, and its version.
      median, low, high: Values of the repeats; all equal where there was one.
      unit: Such as "env-steps/s".
      higher_is_better: Whether more is better.
      x: Position on a line's axis, such as num_envs; None without such an axis.
      note: Differences from the others.
    """

    case: str
    library: str
    version: str
    median: float
    low: float
    high: float
    unit: str
    higher_is_better: bool = True
    x: float | None = None
    note: str = ""


def row_of(case: str, library: str, values: Sequence[float], unit: str, **more: Any) -> Row:
    """The row of some repeats; its version is that of the installed library."""
    version = more.pop("version", None)
    return Row(
        case=case,
        library=library,
        version=version_of(library) if version is None else version,
        median=statistics.median(values),
        low=min(values),
        high=max(values),
        unit=unit,
        **more,
    )


def version_of(library: str) -> str:
    """The version of the distribution that a contestant measures; "" without one."""
    for begin, name in _DISTRIBUTIONS.items():
        if library.startswith(begin):
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                return ""
    return ""


def times(row: Row, rows: Sequence[Row]) -> float | None:
    """The first row of the same case as a multiple of this one; None for the first row itself.

    There is none, either, where one of the medians is not above 0, as returns may be.
    """
    first = next(one for one in rows if (one.case, one.unit) == (row.case, row.unit))
    if first is row or not (row.median > 0 and first.median > 0):
        return None
    ratio = first.median / row.median
    return ratio if row.higher_is_better else 1 / ratio


def read_rows(subject: str, data: Any) -> list[Row]:
    """Rows of the output of `bench SUBJECT --json`."""
    return _READERS[subject](data)


def to_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Plain data that `_read_plain` can read."""
    return {"rows": [asdict(one) for one in rows]}


def to_text(rows: Sequence[Row]) -> str:
    """A table for people; without a final newline."""
    cells = [["case", "library", "median", "min", "max", "unit", "rollouts is"]]
    for one in rows:
        ratio = times(one, rows)
        figures = [si(number) for number in (one.median, one.low, one.high)]
        told = "" if ratio is None else f"{digits(ratio)}x"
        cells.append([one.case, f"{one.library} {one.version}", *figures, one.unit, told])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _read_plain(data: Mapping[str, Any]) -> list[Row]:
    return [Row(**one) for one in data["rows"]]


def _read_stepping(data: Mapping[str, Any]) -> list[Row]:
    rows = []
    for result in data["results"]:
        settings = result["settings"]
        num_envs, threads = settings["num_envs"], settings["num_threads"]
        mode = "step" if settings["batch_size"] == num_envs else f"recv of {settings['batch_size']}"
        where = f"{threads} thread{'s' if threads > 1 else ''}"
        if settings["busy_loops"]:
            where += f", {settings['busy_loops']} busy loops at the same time"
        for found in result["measurements"]:
            rate = found["env_steps_per_s"]
            rows.append(
                Row(
                    case=f"{result['id']}, {num_envs} envs, {mode}, {where}",
                    library=found["library"],
                    version=found["version"],
                    median=rate["median"],
                    low=rate["min"],
                    high=rate["max"],
                    unit="env-steps/s",
                    x=num_envs,
                    note=" ".join(found["notes"]),
                )
            )
    return rows


def _read_adapters(data: Sequence[Mapping[str, Any]]) -> list[Row]:
    return [
        row_of(
            f"{one['library']}: {one['id']}, {one['num_envs']} envs",
            one["name"],
            one["env_steps_per_s"],
            "env-steps/s",
            note=one["note"],
        )
        for one in data
    ]


def _read_replay(data: Mapping[str, Any]) -> list[Row]:
    rows = []
    for one in data["measurements"]:
        told = {"version": one["version"], "note": one["note"]}
        plural = "s" if one["num_threads"] > 1 else ""
        case = f"{one['workload']}, {one['num_threads']} thread{plural}"
        for name, unit in (("inserts_per_s", "inserts/s"), ("samples_per_s", "samples/s")):
            rows.append(row_of(case, one["library"], [one[name]], unit, **told))
    return rows


_READERS: dict[str, Callable[[Any], list[Row]]] = {
    "pool": _read_stepping,
    "collect": _read_stepping,
    "adapter": _read_adapters,
    "replay": _read_replay,
    "latency": _read_plain,
    "memory": _read_plain,
    "states": _read_plain,
    "solve": _read_plain,
    "train": _read_plain,
}
