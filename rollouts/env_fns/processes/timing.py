# SPDX-License-Identifier: Apache-2.0
"""How long steps and waits take: histograms in shared memory, read as PoolStats."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.pool_stats import TimePercentiles

Array = npt.NDArray[Any]

# bucket b holds durations from _SMALLEST_S * _GROWTH**b on
_SMALLEST_S = 1e-7
_GROWTH = 1.06
_NUM_BUCKETS = 480  # up to a day
# every step is timed where steps take this long, else those of one message in so many
_ALWAYS_TIMED_S = 1e-4
_TIMED_ONE_IN = 32


def timing_shapes(
    num_envs: int, num_processes: int
) -> list[tuple[str, tuple[int, ...], npt.DTypeLike]]:
    """Name, shape and dtype of the shared arrays that measure."""
    return [
        ("step_time_sum", (num_envs,), np.float64),
        ("step_time_count", (num_envs,), np.int64),
        ("step_time_histogram", (num_processes, _NUM_BUCKETS), np.int64),
        ("step_time_max", (num_processes,), np.float64),
        ("queue_wait_histogram", (num_processes, _NUM_BUCKETS), np.int64),
        ("queue_wait_max", (num_processes,), np.float64),
        ("sent_at", (num_processes,), np.float64),
    ]


def buckets_of(durations_s: Array) -> Array:
    """The bucket of each duration."""
    scaled = np.log(np.maximum(durations_s, _SMALLEST_S) / _SMALLEST_S) / math.log(_GROWTH)
    return np.minimum(scaled.astype(np.intp), _NUM_BUCKETS - 1)


def percentiles(histogram: Array, longest_s: float) -> TimePercentiles:
    """Reads a histogram (buckets,) of counts."""
    count = int(histogram.sum())
    if count == 0:
        return TimePercentiles(0, math.nan, math.nan, math.nan, math.nan)
    cumulated = np.cumsum(histogram)
    found = [int(np.searchsorted(cumulated, part * count)) for part in (0.5, 0.9, 0.99)]
    # the middle of the bucket, but never more than what was seen
    p50, p90, p99 = (min(_SMALLEST_S * _GROWTH ** (b + 0.5), longest_s) for b in found)
    return TimePercentiles(count, p50, p90, p99, longest_s)


class StepTimer:
    """Measures the steps of one process, all of them or a sample."""

    def __init__(self, arrays: Mapping[str, Array], process: int, envs: slice) -> None:
        """Args: arrays: shared. process: its index. envs: those of this process."""
        self._sums = arrays["step_time_sum"][envs]
        self._counts = arrays["step_time_count"][envs]
        self._steps = arrays["step_time_histogram"][process]
        self._longest_step = arrays["step_time_max"][process : process + 1]
        self._waits = arrays["queue_wait_histogram"][process]
        self._longest_wait = arrays["queue_wait_max"][process : process + 1]
        self._sent_at = arrays["sent_at"][process : process + 1]
        self._until_timed = 0

    def begin(self) -> list[float] | None:
        """Begins a message; returns a list to append the end of every step to, or None."""
        self._until_timed -= 1
        if self._until_timed >= 0:
            return None
        now = time.perf_counter()
        # the clock is one for all processes of a machine
        waited_s = max(0.0, now - float(self._sent_at[0]))
        self._waits[buckets_of(np.array([waited_s]))] += 1
        self._longest_wait[0] = max(self._longest_wait[0], waited_s)
        return [now]

    def end(self, rows: Sequence[int], times: list[float]) -> None:
        """Files the durations between the times."""
        durations = np.diff(times)
        at = np.asarray(rows)
        self._sums[at] += durations
        self._counts[at] += 1
        np.add.at(self._steps, buckets_of(durations), 1)
        self._longest_step[0] = max(self._longest_step[0], durations.max(initial=0.0))
        is_long = durations.mean() >= _ALWAYS_TIMED_S if len(durations) else False
        self._until_timed = 0 if is_long else _TIMED_ONE_IN - 1


class WaitTimer:
    """Measures what the host waits for batches."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begins anew."""
        self._histogram = np.zeros(_NUM_BUCKETS, np.int64)
        self._longest_s = 0.0

    def add(self, duration_s: float) -> None:
        """Files one wait."""
        scaled = math.log(max(duration_s, _SMALLEST_S) / _SMALLEST_S) / math.log(_GROWTH)
        self._histogram[min(int(scaled), _NUM_BUCKETS - 1)] += 1
        self._longest_s = max(self._longest_s, duration_s)

    def percentiles(self) -> TimePercentiles:
        """Reads what was filed."""
        return percentiles(self._histogram, self._longest_s)
