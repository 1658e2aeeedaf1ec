# SPDX-License-Identifier: Apache-2.0
"""Request and result of a benchmark: plain data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollouts.errors import EngineError, SpecError
from rollouts.specs import OptionValue


@dataclass(frozen=True, slots=True)
class Settings:
    """One point of a benchmark: an environment id, its pool's size, and how long to measure.

    Attributes:
      id: One of `rollouts.env_ids()`.
      num_envs: Environments N.
      batch_size: Rows B of a call; N: `step`, less: `recv` and `send`.
      num_threads: Threads that step, the same for every library that has threads.
      seed: Seed of the environments and of the random actions.
      duration_s: Approximate duration of one repeat of each library.
      repeats: Repeats per library.
      env_options: The environment's own options, as for `rollouts.make_vec`.
      max_episode_steps: Time limit in place of the id's own, for every library that has one;
        0: none.
      busy_loops: Processes that are busy during each measurement, as on a machine that others use.
    """

    id: str
    num_envs: int
    batch_size: int
    num_threads: int
    seed: int = 0
    duration_s: float = 1.0
    repeats: int = 5
    env_options: Mapping[str, OptionValue] = field(default_factory=dict)
    max_episode_steps: int | None = None
    busy_loops: int = 0

    def __post_init__(self) -> None:
        """Checks values that no library would refuse; a pool checks its own arguments."""
        if not (math.isfinite(self.duration_s) and self.duration_s > 0):
            raise SpecError(f"duration_s must be a number above 0, got {self.duration_s}")
        if self.repeats < 1:
            raise SpecError(f"repeats must be at least 1, got {self.repeats}")

    @property
    def is_async(self) -> bool:
        """Tells if the pool is driven by recv and send."""
        return self.batch_size < self.num_envs


@dataclass(frozen=True, slots=True)
class Measurement:
    """The repeats of one library.

    Attributes:
      library: "rollouts" or the peer's name.
      version: The library's version.
      batch_size: Rows per call.
      num_threads: Threads that stepped.
      api: The calls that were timed: "step" or "recv/send".
      calls: Calls of one repeat, the same in every repeat.
      elapsed_s: Duration of each repeat.
      options: Options of the environment, by the library's names.
      notes: Differences from `rollouts`, one sentence each.
    """

    library: str
    version: str
    batch_size: int
    num_threads: int
    api: str
    calls: int
    elapsed_s: tuple[float, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def env_steps_per_s(self) -> tuple[float, ...]:
        """Environment steps per second, of each repeat."""
        return tuple(self.calls * self.batch_size / elapsed for elapsed in self.elapsed_s)

    @property
    def median(self) -> float:
        """Median of `env_steps_per_s`."""
        return statistics.median(self.env_steps_per_s)

    @property
    def us_per_call(self) -> float:
        """Median duration of one step, or of one recv with its send, in microseconds."""
        return statistics.median(self.elapsed_s) / self.calls * 1e6


class NotMeasured(EngineError):
    """Raised for a peer that cannot be measured here; only its own row is missing then."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A peer that was asked for but could not be measured, with the reason."""

    library: str
    version: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Measurements of one run, taken interleaved.

    Attributes:
      settings: The settings that were asked for.
      env_options: Every option in force, including those at their default.
      measurements: Ours first, then the peers'.
      shares: Columns with each library's speed relative to another's, and the name of that library,
        which may have no measurement if it could not be measured.
      num_agents: Agents of one environment; 0 for environments with one agent.
      failures: Peers that could not be measured.
    """

    settings: Settings
    env_options: Mapping[str, OptionValue]
    measurements: tuple[Measurement, ...]
    shares: Mapping[str, str] = field(default_factory=dict)
    num_agents: int = 0
    failures: tuple[Failure, ...] = ()

    @property
    def frames_per_step(self) -> int | None:
        """Emulator frames of one environment step; None where there are no frames."""
        frameskip = self.env_options.get("frameskip")
        return None if frameskip is None else int(frameskip)

    def ratio(self, measurement: Measurement) -> float:
        """Our median over that of `measurement`."""
        return self.measurements[0].median / measurement.median

    def share(self, measurement: Measurement, column: str) -> float | None:
        """The share of the column's median in `measurement`; None for itself or without it."""
        for other in self.measurements:
            if other.library == self.shares.get(column) and other is not measurement:
                return measurement.median / other.median
        return None


def geometric_means(comparisons: Sequence[Comparison]) -> dict[str, tuple[float, int]]:
    """The geometric mean of our speed over each peer's, over all comparisons that have the peer.

    Returns:
      Geometric mean of the ratios, and their number, by the peer's name, for peers that were
      measured with several ids.
    """
    ratios: dict[str, list[float]] = {}
    ids: dict[str, set[str]] = {}
    for each in comparisons:
        for measurement in each.measurements[1:]:
            ratios.setdefault(measurement.library, []).append(each.ratio(measurement))
            ids.setdefault(measurement.library, set()).add(each.settings.id)
    return {
        library: (statistics.geometric_mean(found), len(found))
        for library, found in ratios.items()
        if len(ids[library]) > 1
    }
