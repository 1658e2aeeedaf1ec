# SPDX-License-Identifier: Apache-2.0
"""The lag rule's bounds, the pace of the learner, and what the meter of delivered lags says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from acted_worker import worker_config
from counter_world import make_policy, weights
from hypothesis import given
from hypothesis import strategies as st

from rollouts.errors import SpecError
from rollouts.learner.fragment import FragmentHandle
from rollouts.workers import Fragment, RolloutWorker
from rollouts.workers.lag import LagMeter, LagRule, Pace
from rollouts.workers.offers import WeightOffer

STEPS = 8  # steps of a fragment of `worker_config`


def pending(*versions: int) -> list[FragmentHandle]:
    """A fragment of each version."""
    made = []
    for version in versions:
        # a worker each: none goes back to older weights
        worker = RolloutWorker(worker_config(), make_policy)
        found = worker.collect(WeightOffer.of(version, weights()))
        made.append(FragmentHandle(found.info, lambda timeout_s, batch=found.payload: batch))
    return made


def fragments(*versions: int) -> list[Fragment]:
    return [each.resolve(0) for each in pending(*versions)]


def mixed(fragment: Fragment, versions: list[int]) -> Fragment:
    """The fragment with these versions, shared out evenly over its (4, 2) steps."""
    steps = np.repeat(versions, STEPS // len(versions)).reshape(4, 2)
    payload = replace(fragment.batch, policy_version=steps)
    info = replace(
        fragment.info, min_policy_version=min(versions), max_policy_version=max(versions)
    )
    return Fragment(info, payload)


def test_a_lag_equal_to_the_limit_is_not_over_it() -> None:
    rule = LagRule(2, "drop")
    assert [rule.is_over(lag) for lag in range(5)] == [False, False, False, True, True]
    assert [rule.discards(lag) for lag in range(5)] == [False, False, False, True, True]


def test_pass_counts_what_is_over_and_discards_nothing() -> None:
    rule = LagRule(0, "pass")
    assert rule.is_over(1) and not rule.discards(1)


def test_without_a_limit_nothing_is_over() -> None:
    for policy in ("pass", "drop", "block"):
        rule = LagRule(None, policy)  # type: ignore[arg-type]
        assert not rule.is_over(10**9) and not rule.discards(10**9)


def test_a_policy_that_does_not_block_leaves_the_capacity_or_what_is_wanted() -> None:
    for rule in (LagRule(), LagRule(3, "drop"), LagRule(3, "pass"), LagRule(None, "block")):
        assert rule.outstanding_limit(wanted=2, per_version=1, capacity=9) == 9
        assert rule.outstanding_limit(wanted=12, per_version=1, capacity=9) == 12


def test_block_bounds_by_the_pace_the_capacity_and_what_is_wanted() -> None:
    rule = LagRule(2, "block")
    assert rule.outstanding_limit(wanted=0, per_version=3, capacity=9) == 6
    assert rule.outstanding_limit(wanted=0, per_version=5, capacity=9) == 9
    assert rule.outstanding_limit(wanted=7, per_version=3, capacity=9) == 7
    # one that waits is served, whatever the bounds are: else both wait for ever
    assert rule.outstanding_limit(wanted=20, per_version=0, capacity=9) == 20


def test_block_collects_nothing_ahead_while_the_pace_is_unknown() -> None:
    assert LagRule(5, "block").outstanding_limit(wanted=0, per_version=0, capacity=9) == 0
    assert LagRule(0, "block").outstanding_limit(wanted=0, per_version=4, capacity=9) == 0


@pytest.mark.parametrize(
    ("mode", "rule"),
    [
        ("synchronous", LagRule(0, "block")),
        ("one_step_lag", LagRule(1, "block")),
        ("free_running", LagRule(None, "pass")),
    ],
)
def test_a_mode_alone_is_a_whole_rule(mode: str, rule: LagRule) -> None:
    assert LagRule.of(mode) == rule


def test_a_mode_accepts_the_limit_that_it_implies() -> None:
    assert LagRule.of("synchronous", 0, "block") == LagRule.of("synchronous")
    assert LagRule.of("one_step_lag", 1) == LagRule.of("one_step_lag", None, "block")


def test_a_limit_without_a_policy_drops() -> None:
    assert LagRule.of("free_running", 4) == LagRule(4, "drop")
    assert LagRule.of("free_running", 0, "pass") == LagRule(0, "pass")
    assert LagRule.of("free_running", None, "pass") == LagRule()


def test_a_contradiction_names_both_values_and_the_way_out() -> None:
    with pytest.raises(SpecError) as caught:
        LagRule.of("synchronous", 3, "drop")
    assert str(caught.value) == (
        "sync_mode='synchronous' means queue.max_policy_lag=0 and "
        "queue.lag_policy=\"block\", got 3 and 'drop': leave "
        'them out, or choose sync_mode="free_running"'
    )


def test_the_pace_is_that_of_the_last_version_that_took_something() -> None:
    pace = Pace()
    assert pace.per_version(0) == 0
    pace.publish(0)
    pace.publish(4)
    assert pace.per_version(4) == 4
    # two versions one after the other: nothing was taken for the second
    pace.publish(4)
    assert pace.per_version(4) == 4
    pace.publish(6)
    assert pace.per_version(6) == 2


def test_the_pace_follows_a_learner_that_takes_more_than_last_time() -> None:
    pace = Pace()
    pace.publish(2)
    assert [pace.per_version(taken) for taken in (2, 3, 4, 5, 9)] == [2, 2, 2, 3, 7]


@given(st.lists(st.integers(0, 5), max_size=30))
def test_the_pace_is_what_each_version_took(taken: list[int]) -> None:
    pace, total, expected = Pace(), 0, 0
    for count in taken:
        total += count
        expected = count or expected
        pace.publish(total)
        assert pace.per_version(total) == expected


def test_the_meter_begins_with_nothing_seen() -> None:
    assert LagMeter(LagRule()).as_dict() == {
        "policy_lag": None,
        "policy_lag_histogram": {},
        "over_max_policy_lag": {"env_steps": 0, "fragments": 0},
    }


def test_the_meter_shows_the_last_delivery_and_counts_all() -> None:
    meter = LagMeter(LagRule())
    one, two, three = fragments(1, 2, 4)
    meter.add([one, two], version=3)
    assert meter.as_dict()["policy_lag"] == {"min": 1, "mean": 1.5, "max": 2}
    meter.add([three], version=4)
    assert meter.as_dict()["policy_lag"] == {"min": 0, "mean": 0.0, "max": 0}
    assert meter.as_dict()["policy_lag_histogram"] == {0: STEPS, 1: STEPS, 2: STEPS}


def test_steps_of_one_fragment_are_counted_by_their_own_version() -> None:
    (fragment,) = fragments(4)
    meter = LagMeter(LagRule(1, "pass"))
    meter.add([mixed(fragment, [4, 2, 2, 5])], version=5)
    shown = meter.as_dict()
    assert shown["policy_lag_histogram"] == {0: 2, 1: 2, 3: 4}
    assert shown["policy_lag"] == {"min": 0, "mean": (2 * 1 + 4 * 3) / STEPS, "max": 3}
    # the fragment's lag is that of its oldest step, and all its steps count
    assert shown["over_max_policy_lag"] == {"env_steps": STEPS, "fragments": 1}


def test_where_the_arrays_are_elsewhere_all_steps_count_as_the_oldest() -> None:
    def unfetchable(timeout_s: float) -> Any:
        raise AssertionError("fetched")

    (handle,) = pending(2)
    info = replace(handle.info, min_policy_version=2, max_policy_version=5)
    meter = LagMeter(LagRule())
    meter.add([FragmentHandle(info, unfetchable)], version=6)
    assert meter.as_dict()["policy_lag_histogram"] == {4: STEPS}


def test_only_lags_above_the_limit_count_as_over() -> None:
    meter = LagMeter(LagRule(1, "pass"))
    meter.add(fragments(3, 2, 1), version=3)
    assert meter.as_dict()["over_max_policy_lag"] == {"env_steps": STEPS, "fragments": 1}
    meter.add(fragments(1), version=9)
    assert meter.as_dict()["over_max_policy_lag"] == {"env_steps": 2 * STEPS, "fragments": 2}


def test_the_last_bucket_stands_for_any_greater_lag() -> None:
    meter = LagMeter(LagRule())
    for version in (255, 256, 257, 9999):
        meter.add(fragments(1), version=version + 1)
    shown = meter.as_dict()
    assert shown["policy_lag_histogram"] == {255: STEPS, 256: 3 * STEPS}
    # the last delivery is shown as it was
    assert shown["policy_lag"]["max"] == 9999


def test_the_histogram_is_in_the_order_of_lags_and_belongs_to_the_caller() -> None:
    meter = LagMeter(LagRule())
    meter.add(fragments(1, 5, 3), version=6)
    histogram = meter.as_dict()["policy_lag_histogram"]
    assert list(histogram) == [1, 3, 5]
    histogram.clear()
    assert len(meter.as_dict()["policy_lag_histogram"]) == 3
