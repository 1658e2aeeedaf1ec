# SPDX-License-Identifier: Apache-2.0
"""Measures an adapter next to its library's own ways to sample, without learning.

The contestants of a library are in `comparisons.adapters.<library>`; here are the loop in which
they take turns, and the table.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rollouts.bench.report import digits
from rollouts.envs.unknown_option import did_you_mean
from rollouts.errors import EngineError

# libraries that have a module in comparisons.adapters
LIBRARIES = (
    "env_fns", "rllib", "rllib_multi_agent", "tianshou", "sb3", "torchrl", "cleanrl", "dm_env",
    "rl_games", "jax",
)  # fmt: skip
# extras of pyproject.toml whose names differ from the library's
_EXTRAS = {"cleanrl": "torch", "rllib_multi_agent": "rllib"}
# ids that are measured by default
_ENV_IDS = {"rllib_multi_agent": "simple_spread_v3"}


@dataclass(frozen=True, slots=True)
class Case:
    """Case: the work of every contestant of a comparison.

    Attributes:
      id: Id of `rollouts.make_vec`, and of `gymnasium.make` if peers use that name.
      num_envs: Environments N of each contestant.
      num_threads: Threads of our pool, or processes of a peer that uses processes.
      rollout_length: Steps T of each environment that one `collect` takes.
      seed: Seed of environments, networks and actions.
    """

    id: str
    num_envs: int
    num_threads: int
    rollout_length: int = 128
    seed: int = 0


class Contestant(Protocol):
    """One way to collect, ready to measure.

    Attributes:
      note: Differences from the other contestants, in a sentence; "" where there are none.
    """

    note: str

    def collect(self) -> int:
        """Collects about T steps of N environments; returns the env-steps collected."""

    def close(self) -> None:
        """Frees all resources."""


# by the names in the table; ours is the first
Contestants = Mapping[str, Callable[[Case], Contestant]]


@dataclass(frozen=True, slots=True)
class AdapterMeasurement:
    """The repeats of one contestant.

    Attributes:
      library: The library whose adapter was measured.
      name: The contestant.
      case: The case that was measured.
      env_steps_per_s: Speed in each repeat.
      note: The contestant's note.
    """

    library: str
    name: str
    case: Case
    env_steps_per_s: tuple[float, ...]
    note: str

    @property
    def median(self) -> float:
        """Median of `env_steps_per_s`."""
        return statistics.median(self.env_steps_per_s)


def default_id(library: str) -> str:
    """The id with which a library's adapter is measured by default."""
    return _ENV_IDS.get(library, "CartPole-v1")


def compare(
    library: str,
    case: Case,
    *,
    peers: Sequence[str] = (),
    duration_s: float = 1.0,
    repeats: int = 5,
    on_progress: Callable[[str], None] | None = None,
) -> list[AdapterMeasurement]:
    """Measures a library's contestants in this process, taking turns.

    Args:
      library: One of `LIBRARIES`.
      case: The work of each contestant.
      peers: Names of contestants to measure next to ours; empty: all.
      duration_s: Approximate time of one repeat of one contestant; a repeat has at least one
        collect.
      repeats: Repeats of each contestant.
      on_progress: Called with a short line before each turn.

    Returns:
      One measurement per contestant, ours first.

    Raises:
      EngineError: The library is not installed, or a peer's name is unknown.
    """
    report = on_progress or (lambda line: None)
    found = _contestants(library)
    ours, *others = found
    unknown = set(peers) - set(others)
    if unknown:
        wrong = sorted(unknown)
        close = difflib.get_close_matches(wrong[0], others, n=2)
        raise EngineError(f"{library} has the peers {others}, got {wrong}.{did_you_mean(close)}")
    names = [ours, *(name for name in others if not peers or name in peers)]
    rates: dict[str, list[float]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        open_ones = {}
        for name in names:
            report(f"{name}: warm-up")
            open_ones[name] = found[name](case)
            stack.callback(open_ones[name].close)
            _run(open_ones[name], duration_s / 2)
        for repeat in range(repeats):
            for name, contestant in open_ones.items():
                report(f"{name}: repeat {repeat + 1} of {repeats}")
                rates[name].append(_run(contestant, duration_s))
        return [
            AdapterMeasurement(library, name, case, tuple(rates[name]), open_ones[name].note)
            for name in names
        ]


def _contestants(library: str) -> Contestants:
    """Imports by name, so that nothing in this package depends on an adapter."""
    try:
        module = importlib.import_module(f"comparisons.adapters.{library}")
    except ImportError as error:
        extra = _EXTRAS.get(library, library.replace("_", "-"))
        raise EngineError(
            f"measuring {library} needs it installed: pip install 'rollouts[{extra}]' ({error})"
        ) from error
    contestants: Contestants = module.CONTESTANTS
    return contestants


def _run(contestant: Contestant, duration_s: float) -> float:
    """Collects for about `duration_s`, once at least; returns env-steps per second."""
    steps, start = 0, time.perf_counter()
    while True:
        steps += contestant.collect()
        elapsed_s = time.perf_counter() - start
        if elapsed_s >= duration_s:
            return steps / elapsed_s


def to_json(measurements: Sequence[AdapterMeasurement]) -> list[dict[str, Any]]:
    """One object per measurement."""
    ours = _ours(measurements)
    return [
        {
            "library": each.library,
            "name": each.name,
            "id": each.case.id,
            "num_envs": each.case.num_envs,
            "num_threads": each.case.num_threads,
            "env_steps_per_s": list(each.env_steps_per_s),
            "median": each.median,
            "ours_is_times": ours[each.case] / each.median,
            "note": each.note,
        }
        for each in measurements
    ]


def to_text(measurements: Sequence[AdapterMeasurement]) -> str:
    """A table, one row per measurement; without a final newline."""
    ours = _ours(measurements)
    cells = [["library", "who", "env", "envs", "env-steps/s", "min", "max", "ours is", "note"]]
    for each in measurements:
        rates = [each.median, min(each.env_steps_per_s), max(each.env_steps_per_s)]
        ratio = ours[each.case] / each.median
        cells.append(
            [
                each.library,
                each.name,
                each.case.id,
                str(each.case.num_envs),
                *(f"{rate:,.0f}" for rate in rates),
                f"{digits(ratio)}x",
                each.note,
            ]
        )
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _ours(measurements: Sequence[AdapterMeasurement]) -> dict[Case, float]:
    """The first contestant's median of each case."""
    ours: dict[Case, float] = {}
    for each in measurements:
        ours.setdefault(each.case, each.median)
    return ours
