# SPDX-License-Identifier: Apache-2.0
"""One reading of the stats, with the increase of the counters since the last one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollouts.metrics.metrics_table import METRICS, Metric, Path, flatten, match

_WINDOW_S = 30.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One metric, for one value of its label.

    `increase` is a counter's increase since the last sample, or its whole value in the first; 0 for
    a gauge. `per_s` is its increase per second over about the last 30 s, because steps come in
    bursts where one thread collects and learns; None for a gauge and in the first sample.
    """

    metric: Metric
    label: str | None
    value: float
    increase: float = 0.0
    per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The numbers of a job at one moment."""

    stats: Mapping[str, Any]
    readings: tuple[Reading, ...]
    other: Mapping[Path, float]  # numbers that are not in the table
    is_last: bool = False

    def value(self, name: str) -> float | None:
        """Returns the value of a metric without a label; None if the stats do not have it."""
        return next((r.value for r in self.readings if r.metric.name == name), None)


class Sampler:
    """Turns stats into samples, remembering the counters. Not thread-safe."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str | None], float] = {}
        # (seconds, counters) of earlier samples, from the newest that is as old as the window on
        self._window: deque[tuple[float, dict[tuple[str, str | None], float]]] = deque()

    def sample(self, stats: Mapping[str, Any], time_s: float, *, is_last: bool = False) -> Sample:
        """Makes a sample of `stats`, read at `time_s` seconds of a clock that never goes back."""
        numbers = flatten(stats)
        while len(self._window) > 1 and self._window[1][0] <= time_s - _WINDOW_S:
            self._window.popleft()
        readings = []
        known: set[Path] = set()
        for metric in METRICS:
            for path, label in match(metric, numbers).items():
                known.add(path)
                readings.append(self._read(metric, label, numbers[path], time_s))
        self._window.append((time_s, dict(self._before)))
        other = {path: value for path, value in numbers.items() if path not in known}
        return Sample(stats, tuple(readings), other, is_last)

    def _read(self, metric: Metric, label: str | None, value: float, time_s: float) -> Reading:
        if metric.kind == "gauge":
            return Reading(metric, label, value)
        key = (metric.name, label)
        before = self._before.get(key, 0.0)
        self._before[key] = value
        if value < before:  # the counter was reset
            before = 0.0
            for _, counters in self._window:
                counters[key] = 0.0
        return Reading(metric, label, value, value - before, self._rate(key, value, time_s))

    def _rate(self, key: tuple[str, str | None], value: float, time_s: float) -> float | None:
        if not self._window:
            return None
        start_s, counters = self._window[0]
        seconds = time_s - start_s
        return (value - counters.get(key, 0.0)) / seconds if seconds else None
