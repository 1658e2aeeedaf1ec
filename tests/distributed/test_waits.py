# SPDX-License-Identifier: Apache-2.0
"""Clocks of waiting and of being awake, with a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollouts.workers.waits import AwakeClock, WaitClock


class Hand:
    """A clock that shows what the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_all_who_wait_count_up_to_now() -> None:
    hand = Hand()
    clock = WaitClock(hand)
    hand.now_s += 5  # nobody waits
    clock.num_waiting += 1
    hand.now_s += 2
    clock.num_waiting += 1
    hand.now_s += 3
    assert clock.seconds == pytest.approx(2 + 2 * 3)
    clock.num_waiting -= 2
    hand.now_s += 7
    assert clock.seconds == pytest.approx(8)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 10)), max_size=20))
def test_seconds_are_the_sum_over_all_who_wait(rounds: list[tuple[int, float]]) -> None:
    hand = Hand()
    clock = WaitClock(hand)
    for waiting, seconds in rounds:
        clock.num_waiting = waiting
        hand.now_s += seconds
    assert clock.seconds == pytest.approx(sum(w * s for w, s in rounds), abs=1e-9)


def test_a_gap_in_which_nothing_ran_counts_little() -> None:
    hand = Hand()
    clock = AwakeClock(1.0, hand)
    hand.now_s += 0.5
    assert clock() == pytest.approx(0.5)
    hand.now_s += 3600  # the machine slept
    assert clock() == pytest.approx(1.5)
    hand.now_s += 0.25
    assert clock() == pytest.approx(1.75)


@given(st.lists(st.floats(0, 100), max_size=20))
def test_awake_seconds_never_go_back_and_never_run_ahead(gaps: list[float]) -> None:
    hand = Hand()
    clock = AwakeClock(2.0, hand)
    before = 0.0
    for gap in gaps:
        hand.now_s += gap
        now = clock()
        assert before <= now <= before + min(gap, 2.0) + 1e-9
        before = now
