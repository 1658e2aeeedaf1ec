# SPDX-License-Identifier: Apache-2.0
"""Times of steps and waits: histograms in shared memory, read as PoolStats."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.envs.stats import TimePercentiles

Array = npt.NDArray[Any]

# bucket b holds durations from _SMALLEST_S * _GROWTH**b on
_SMALLEST_S = 1e-7
_GROWTH = 1.06
_NUM_BUCKETS = 480  # up to a day
_BUCKETS_PER_LOG = 1.0 / math.log(_GROWTH)
# waits cause a warning if they take this long altogether and this share of the steps
_TOLD_WAIT_S = 0.5
_TOLD_SHARE = 0.5
# Steps that take at least _ALWAYS_TIMED_S are all timed. Of shorter ones, only those of one message
# in _TIMED_ONE_IN are.
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
        # steps that were timed, of environments that share a process
        ("stepped_s", (num_processes,), np.float64),
        ("waited_s", (num_processes,), np.float64),
    ]


def bucket_of(duration_s: float) -> int:
    """The bucket of a duration."""
    scaled = math.log(max(duration_s, _SMALLEST_S) / _SMALLEST_S) * _BUCKETS_PER_LOG
    return min(int(scaled), _NUM_BUCKETS - 1)


def percentiles(histogram: Array, longest_s: float) -> TimePercentiles:
    """Reads a histogram (buckets,) of counts."""
    count = int(histogram.sum())
    if count == 0:
        return TimePercentiles(0, math.nan, math.nan, math.nan, math.nan)
    cumulated = np.cumsum(histogram)
    found = [int(np.searchsorted(cumulated, part * count)) for part in (0.5, 0.9, 0.99)]
    # the middle of the bucket, but never more than the longest
    p50, p90, p99 = (min(_SMALLEST_S * _GROWTH ** (b + 0.5), longest_s) for b in found)
    return TimePercentiles(count, p50, p90, p99, longest_s)


class StepClock:
    """Measures how long a process computes and waits, however busy the machine is."""

    def __init__(self) -> None:
        try:
            self._fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # not Linux: waits for a CPU are counted as other waits
            self._fd = -1

    def read(self) -> tuple[float, float]:
        """Two times in seconds.

        Returns:
          A clock that stands still while this thread waits for a CPU, and the time that all
          threads of this process have computed.
        """
        computed_s, now = time.process_time(), time.perf_counter()
        if self._fd >= 0:
            # nanoseconds on a CPU and in its queue, and the number of turns
            now -= int(os.pread(self._fd, 128, 0).split()[1]) * 1e-9
        return now, computed_s


class StepTimer:
    """Measures the steps of one process, all of them or a sample."""

    def __init__(self, arrays: Mapping[str, Array], process: int, envs: slice) -> None:
        """Args: arrays: the shared ones. process: its index. envs: the process's own."""
        self._sums = arrays["step_time_sum"][envs]
        self._counts = arrays["step_time_count"][envs]
        self._steps = arrays["step_time_histogram"][process]
        self._longest_step = arrays["step_time_max"][process : process + 1]
        self._waits = arrays["queue_wait_histogram"][process]
        self._longest_wait = arrays["queue_wait_max"][process : process + 1]
        self._sent_at = arrays["sent_at"][process : process + 1]
        self._until_timed = 0
        self._clock = StepClock() if len(self._sums) > 1 else None
        self._stepped = arrays["stepped_s"][process : process + 1]
        self._waited = arrays["waited_s"][process : process + 1]
        self._began = (0.0, 0.0)

    def begin(self) -> list[float] | None:
        """Begins a message; returns a list to append the end of every step to, or None."""
        self._until_timed -= 1
        if self._until_timed >= 0:
            return None
        now = time.perf_counter()
        # the clock is one for all processes of a machine
        waited_s = max(0.0, now - float(self._sent_at[0]))
        self._waits[bucket_of(waited_s)] += 1
        self._longest_wait[0] = max(self._longest_wait[0], waited_s)
        if self._clock is not None:
            self._began = self._clock.read()
        return [now]

    def end(self, rows: Sequence[int], times: list[float]) -> None:
        """Adds the durations between the times to the histograms."""
        if self._clock is not None:
            now, computed_s = self._clock.read()
            stepped_s = now - self._began[0]
            self._stepped[0] += stepped_s
            self._waited[0] += max(0.0, stepped_s - (computed_s - self._began[1]))
        # number by number: a process has few environments, and NumPy's calls cost more
        longest_s = float(self._longest_step[0])
        for row, (begin, end) in zip(rows, itertools.pairwise(times), strict=True):
            duration_s = end - begin
            self._sums[row] += duration_s
            self._counts[row] += 1
            self._steps[bucket_of(duration_s)] += 1
            longest_s = max(longest_s, duration_s)
        self._longest_step[0] = longest_s
        is_long = len(rows) and times[-1] - times[0] >= _ALWAYS_TIMED_S * len(rows)
        self._until_timed = 0 if is_long else _TIMED_ONE_IN - 1


class WaitTimer:
    """Measures how long the host waits for batches."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begins anew."""
        self._histogram = np.zeros(_NUM_BUCKETS, np.int64)
        self._longest_s = 0.0

    def add(self, duration_s: float) -> None:
        """Adds one wait."""
        self._histogram[bucket_of(duration_s)] += 1
        self._longest_s = max(self._longest_s, duration_s)

    def percentiles(self) -> TimePercentiles:
        """Returns percentiles of the waits so far."""
        return percentiles(self._histogram, self._longest_s)


def waiting_advice(arrays: Mapping[str, Array], num_envs: int, num_cpus: int) -> str | None:
    """Advice for environments that sleep in a shared process, one after another, while CPUs idle.

    Args:
      arrays: Shared, of `timing_shapes`.
      num_envs: Environments N.
      num_cpus: CPUs that the processes may use.

    Returns:
      The advice. None: they do not wait, or there are enough processes to keep the CPUs busy.
    """
    waited_s, stepped_s = float(arrays["waited_s"].sum()), float(arrays["stepped_s"].sum())
    if waited_s < _TOLD_WAIT_S or waited_s < _TOLD_SHARE * stepped_s:
        return None
    num_processes = len(arrays["waited_s"])
    num_busy = num_processes * (1.0 - waited_s / stepped_s)
    if num_busy >= num_cpus:
        return None
    return (
        f"the environments wait for {waited_s / stepped_s:.0%} of the time that their steps take, "
        f"and those of one process wait one after the other: {num_envs} environments share "
        f"{num_processes} processes, which keep {num_busy:.1f} of {num_cpus} CPUs busy. "
        f"from_env_fns(num_processes={num_envs}) lets all of them wait at once"
    )
