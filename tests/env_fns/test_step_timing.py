# SPDX-License-Identifier: Apache-2.0
"""Times of hosted environments: buckets, percentiles, which steps are timed, advice on waits."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.envs.hosted.processes import timing
from rollouts.envs.hosted.processes.timing import (
    StepClock,
    StepTimer,
    WaitTimer,
    bucket_of,
    percentiles,
    timing_shapes,
    waiting_advice,
)

durations = st.floats(0, 1e6, allow_nan=False)


def shared(num_envs: int, num_processes: int = 1) -> dict[str, np.ndarray]:
    return {
        name: np.zeros(shape, dtype)
        for name, shape, dtype in timing_shapes(num_envs, num_processes)
    }


class Watch:
    """A clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 50.0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)


@given(durations, durations)
def test_longer_durations_have_no_lower_buckets(one: float, other: float) -> None:
    short, long = sorted((one, other))
    assert 0 <= bucket_of(short) <= bucket_of(long) <= 479


@given(st.floats(1e-7, 8e4))
def test_the_middle_of_a_bucket_is_near_what_fell_into_it(duration_s: float) -> None:
    histogram = np.zeros(480, np.int64)
    histogram[bucket_of(duration_s)] = 1
    found = percentiles(histogram, math.inf).p50
    # half a bucket either way, and the last digit of the logarithm
    assert duration_s / 1.031 <= found <= duration_s * 1.031


def test_what_is_shorter_than_the_clock_tells_is_in_the_first_bucket() -> None:
    assert bucket_of(0.0) == bucket_of(-1.0) == bucket_of(1e-9) == 0
    assert bucket_of(1e9) == 479


def test_of_nothing_there_are_no_percentiles() -> None:
    found = percentiles(np.zeros(480, np.int64), 3.0)
    assert found.count == 0
    assert all(map(math.isnan, (found.p50, found.p90, found.p99, found.max)))


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=200))
def test_percentiles_are_those_of_the_sorted_durations(seen: list[float]) -> None:
    timer = WaitTimer()
    for duration_s in seen:
        timer.add(duration_s)
    found, ordered = timer.percentiles(), sorted(seen)
    assert found.count == len(seen) and found.max == ordered[-1]
    for share, value in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99)):
        expected = ordered[max(0, math.ceil(share * len(seen)) - 1)]
        assert value <= found.max
        assert expected / 1.07 <= value <= expected * 1.07


def test_a_wait_timer_begins_anew() -> None:
    timer = WaitTimer()
    timer.add(2.0)
    timer.clear()
    assert timer.percentiles().count == 0
    timer.add(1e-3)
    assert timer.percentiles().max == 1e-3


def test_steps_are_filed_with_their_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, arrays = Watch(monkeypatch), shared(6, 2)
    timer = StepTimer(arrays, 1, slice(2, 5))
    arrays["sent_at"][1] = watch.now - 0.25
    times = timer.begin()
    assert times == [50.0]
    timer.end([2, 0], [50.0, 51.0, 51.5])
    assert arrays["step_time_sum"].tolist() == [0, 0, 0.5, 0, 1.0, 0]
    assert arrays["step_time_count"].tolist() == [0, 0, 1, 0, 1, 0]
    assert arrays["step_time_max"].tolist() == [0, 1.0]
    assert arrays["step_time_histogram"].sum(1).tolist() == [0, 2]
    assert arrays["step_time_histogram"][1, bucket_of(0.5)] == 1
    assert arrays["queue_wait_histogram"].sum(1).tolist() == [0, 1]
    assert arrays["queue_wait_max"].tolist() == [0, 0.25]


def test_the_longest_of_all_messages_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, arrays = Watch(monkeypatch), shared(1)
    timer = StepTimer(arrays, 0, slice(0, 1))
    for sent_before, took in ((0.5, 3.0), (0.1, 2.0)):
        arrays["sent_at"][0] = watch.now - sent_before
        assert timer.begin() == [watch.now]
        timer.end([0], [watch.now, watch.now + took])
        watch.now += took
    assert arrays["step_time_max"][0] == 3.0 and arrays["queue_wait_max"][0] == 0.5
    assert arrays["step_time_sum"][0] == 5.0 and arrays["step_time_count"][0] == 2


def test_a_message_from_the_future_waited_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, arrays = Watch(monkeypatch), shared(1)
    arrays["sent_at"][0] = watch.now + 9
    StepTimer(arrays, 0, slice(0, 1)).begin()
    assert arrays["queue_wait_max"][0] == 0.0
    assert arrays["queue_wait_histogram"][0, 0] == 1


@pytest.mark.parametrize(("step_s", "every"), [(1e-4, 1), (2e-3, 1), (0.9e-4, 32), (0.0, 32)])
def test_long_steps_are_all_timed_and_short_ones_are_a_sample(
    monkeypatch: pytest.MonkeyPatch, step_s: float, every: int
) -> None:
    watch, arrays = Watch(monkeypatch), shared(2)
    watch.now = 0.0  # so that sums of times are exact enough
    timer = StepTimer(arrays, 0, slice(0, 2))
    timed = []
    for message in range(100):
        times = timer.begin()
        if times is not None:
            timed.append(message)
            timer.end([0, 1], [0.0, step_s, 2 * step_s])
    assert timed == list(range(0, 100, every))


def test_a_message_of_no_steps_files_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    Watch(monkeypatch)
    arrays = shared(1)
    timer = StepTimer(arrays, 0, slice(0, 1))
    times = timer.begin()
    assert times is not None
    timer.end([], times)
    assert arrays["step_time_count"][0] == 0
    assert arrays["step_time_max"][0] == 0.0


def test_times_and_rows_must_be_as_many() -> None:
    timer = StepTimer(shared(2), 0, slice(0, 2))
    with pytest.raises(ValueError, match="zip"):
        timer.end([0, 1], [0.0, 1.0])


def test_who_shares_a_process_is_watched_for_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(10.0, 1.0), (14.0, 2.5), (14.0, 2.5), (15.0, 5.0)])
    monkeypatch.setattr(StepClock, "read", lambda self: next(readings))
    arrays = shared(2)
    timer = StepTimer(arrays, 0, slice(0, 2))
    for _ in range(2):
        times = timer.begin()
        assert times is not None
        timer.end([0], [0.0, 1.0])
    # 4 s of which 1.5 s computed; 1 s in which two threads computed 2.5 s waited for nothing
    assert arrays["stepped_s"][0] == 5.0 and arrays["waited_s"][0] == 2.5


def test_who_is_alone_in_a_process_waits_for_nobody() -> None:
    arrays = shared(1)
    timer = StepTimer(arrays, 0, slice(0, 1))
    times = timer.begin()
    assert times is not None
    timer.end([0], [times[0], times[0] + 5])
    assert arrays["stepped_s"][0] == arrays["waited_s"][0] == 0.0


def test_the_clock_of_steps_counts_what_is_computed() -> None:
    clock = StepClock()
    first, computed = clock.read()
    total = sum(range(200_000))
    last, computed_later = clock.read()
    assert total and last > first and computed_later > computed
    if clock._fd >= 0:
        os.close(clock._fd)


def test_where_the_kernel_says_nothing_the_clock_still_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: Any) -> int:
        raise FileNotFoundError("no /proc")

    monkeypatch.setattr(timing.os, "open", refuse)
    clock = StepClock()
    assert clock.read()[0] <= clock.read()[0]


def advice(waited: list[float], stepped: list[float], num_cpus: int = 8) -> str | None:
    arrays: Any = {"waited_s": np.array(waited), "stepped_s": np.array(stepped)}
    return waiting_advice(arrays, 16, num_cpus)


def test_waits_of_half_a_second_and_half_of_the_steps_are_told() -> None:
    told = advice([0.4, 0.4], [0.5, 0.5])
    assert told == (
        "the environments wait for 80% of the time that their steps take, and those of one process "
        "wait one after the other: 16 environments share 2 processes, which keep 0.4 of 8 CPUs "
        "busy. from_env_fns(num_processes=16) lets all of them wait at once"
    )


@pytest.mark.parametrize(
    ("waited", "stepped"),
    [
        ([0.2, 0.29], [0.3, 0.3]),  # less than half a second in all
        ([0.3, 0.3], [0.7, 0.7]),  # less than half of the steps
        ([0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_small_waits_are_not_worth_a_word(waited: list[float], stepped: list[float]) -> None:
    assert advice(waited, stepped) is None


def test_waits_that_keep_the_cpus_busy_are_fine() -> None:
    # four processes that wait for half of the time keep two CPUs busy
    assert advice([1.0] * 4, [2.0] * 4, num_cpus=2) is None
    assert advice([1.0] * 4, [2.0] * 4, num_cpus=3) is not None
