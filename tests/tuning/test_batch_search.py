# SPDX-License-Identifier: Apache-2.0
"""Sizes that `tune_batch` tries, over machines that are formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.tuning import BatchTuning, Trial
from rollouts.tuning.search import (
    STOPPED_FAILED,
    STOPPED_FASTEST,
    STOPPED_MEMORY,
    STOPPED_MOST,
    most_trials,
    search,
)

MANY = 2**30


def machine(
    speed: Callable[[int, int], float],
    *,
    base: int = 0,
    of_env: int = 1,
    usable: int = 2**60,
) -> Callable[[int, int], Trial]:
    """A machine whose memory grows by `of_env` for each environment."""
    return lambda n, length: Trial(
        n, length, "native", (speed(n, length),), base + of_env * n, usable
    )


def tried(
    measure: Callable[[int, int], Trial], lengths: Sequence[int] = (32,), **options: int
) -> tuple[list[Trial], dict[int, str]]:
    trials, stopped = [], {}
    for found in search(measure, lengths, **{"first": 8, "most": MANY, **options}):
        if isinstance(found, Trial):
            trials.append(found)
        else:
            stopped[found[0]] = found[1]
    return trials, stopped


def test_ends_two_sizes_after_the_last_gain() -> None:
    trials, stopped = tried(machine(lambda n, _: min(n, 64)))
    assert [one.num_envs for one in trials] == [8, 16, 32, 64, 128, 256]
    assert stopped == {32: STOPPED_FASTEST}


def test_one_slow_size_does_not_end_the_search() -> None:
    trials, _ = tried(machine(lambda n, _: 1 if n == 32 else n), most=256)
    assert [one.num_envs for one in trials] == [8, 16, 32, 64, 128, 256]


def test_the_largest_size_is_tried_itself() -> None:
    trials, stopped = tried(machine(lambda n, _: n), most=100)
    assert [one.num_envs for one in trials] == [8, 16, 32, 64, 100]
    assert stopped == {32: STOPPED_MOST}


def test_last_size_is_what_fits() -> None:
    # 1 000 bytes and 10 for each environment: 400 fit in 5 000
    trials, stopped = tried(machine(lambda n, _: n, base=1000, of_env=10), memory_bytes=5000)
    assert [one.num_envs for one in trials[:-1]] == [8, 16, 32, 64, 128, 256]
    assert 320 <= trials[-1].num_envs <= 400
    assert stopped == {32: STOPPED_MEMORY}


def test_without_a_limit_a_fifth_of_the_memory_stays_free() -> None:
    measure = machine(lambda n, _: n, base=1000, of_env=10, usable=6250)
    assert max(one.memory_bytes for one in tried(measure)[0]) <= 5000


@given(
    base=st.integers(0, 10**9),
    of_env=st.integers(1, 10**7),
    limit=st.integers(1, 10**10),
)
def test_no_size_but_the_first_exceeds_the_limit(base: int, of_env: int, limit: int) -> None:
    measure = machine(lambda n, _: n, base=base, of_env=of_env)
    trials, stopped = tried(measure, memory_bytes=limit)
    assert all(one.memory_bytes <= limit for one in trials[1:])
    if limit > 4 * (base + 8 * of_env):  # there is room to search
        assert stopped == {32: STOPPED_MEMORY}
        fitting = (limit - base) // of_env
        assert trials[-1].num_envs >= fitting / 1.6


def test_a_failure_ends_one_rollout_length() -> None:
    def measure(n: int, length: int) -> Trial:
        if n * length > 1000:
            return Trial(n, length, failure="killed")
        return machine(lambda n, _: n)(n, length)

    trials, stopped = tried(measure, (32, 64), most=64)
    assert [(one.num_envs, one.rollout_length) for one in trials] == [
        *((8, 32), (16, 32), (32, 32)),
        *((8, 64), (16, 64)),
    ]
    assert stopped == {32: STOPPED_FAILED, 64: STOPPED_FAILED}
    found = BatchTuning("CartPole-v1", "64x64", "cpu", tuple(trials), stopped)
    assert found.fastest == trials[1]


def test_smallest_is_the_least_data_of_those_as_fast() -> None:
    speeds = {(8, 128): 50.0, (16, 128): 99.0, (32, 32): 96.0, (64, 32): 100.0, (16, 32): 94.0}
    trials = tuple(Trial(n, length, "native", (one,)) for (n, length), one in speeds.items())
    found = BatchTuning("CartPole-v1", "64x64", "cpu", trials, {})
    assert found.fastest is not None
    assert found.smallest is not None
    assert (found.fastest.num_envs, found.fastest.rollout_length) == (64, 32)
    assert (found.smallest.num_envs, found.smallest.rollout_length) == (32, 32)


def test_median_of_repeats() -> None:
    assert Trial(8, 32, "native", (1.0, 5.0, 2.0)).median == pytest.approx(2.0)
    assert Trial(8, 32, failure="killed").median == 0


@pytest.mark.parametrize(("first", "most"), [(8, 8), (8, 9), (8, 64), (16, 4), (8, 1000)])
def test_there_are_never_more_trials_than_foretold(first: int, most: int) -> None:
    def measure(num_envs: int, length: int) -> Trial:
        return Trial(num_envs, length, "native", (float(num_envs),), 1, 10**12)

    found = [one for one in search(measure, [4, 8], first=first, most=most)]
    made = [one for one in found if isinstance(one, Trial)]
    assert len(made) == most_trials([4, 8], first=first, most=most)
