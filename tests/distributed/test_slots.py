# SPDX-License-Identifier: Apache-2.0
"""A slot: which call hangs, how often a worker may fail, what is shown of it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from acted_worker import worker_config
from fleet_world import World
from hypothesis import given
from hypothesis import strategies as st

from rollouts.workers.call_size import WORTH_S
from rollouts.workers.slot import Call, CallFailure, Slot, outcome
from rollouts.workers.worker import WorkerInfo
from rollouts.workers.worker_failure import WorkerFailure


def running(credits: int = 3) -> tuple[World, Slot]:
    """A fleet of one worker with `credits` calls made at 0 s."""
    world = World(1, credits_per_worker=credits, max_queued_fragments=9)
    world.appear_all()
    world.publish()
    (slot,) = world.fleet._slots
    assert len(slot.calls) == credits
    return world, slot


def finished(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


@pytest.mark.parametrize("reason", ["worker_error", "env_error"])
def test_the_summary_of_a_traceback_is_its_last_line(reason: str) -> None:
    failure = CallFailure(reason, "Traceback:\n  file x\nValueError: broke\n\n")
    assert failure.summary == "ValueError: broke"


@pytest.mark.parametrize("reason", ["worker_died", "hung", "start_timeout", "protocol"])
def test_the_summary_of_anything_else_is_its_first_line(reason: str) -> None:
    assert CallFailure(reason, "\nactor died\nlong story").summary == "actor died"


@pytest.mark.parametrize("reason", ["worker_error", "worker_died"])
@pytest.mark.parametrize("error", ["", "  \n "])
def test_an_error_without_words_has_an_empty_summary(reason: str, error: str) -> None:
    assert CallFailure(reason, error).summary == ""


def test_an_outcome_is_a_result_a_failure_or_a_death() -> None:
    assert outcome(finished(7)) == 7
    failure = WorkerFailure(message="m", traceback="t", reason="env_error")
    assert outcome(finished(failure)) == CallFailure("env_error", "t")
    died: Any = outcome(finished(OSError("gone")))
    assert died == CallFailure("worker_died", "OSError: gone")


@pytest.mark.parametrize(
    ("state", "is_wanted"),
    [
        ("starting", True),
        ("running", True),
        ("draining", False),
        ("benched", False),
        ("stopped", False),
    ],
)
def test_those_there_and_those_coming_are_wanted(state: str, is_wanted: bool) -> None:
    assert Slot(worker_config(), state=state).is_wanted is is_wanted


def test_a_slot_is_idle_when_it_runs_and_all_its_calls_are_reported() -> None:
    world, slot = running(credits=2)
    assert not slot.is_idle
    first, second = (call.future for call in slot.calls)
    slot.report(first, now=1.0)
    assert not slot.is_idle
    slot.report(second, now=2.0)
    assert slot.is_idle
    slot.state = "draining"
    assert not slot.is_idle
    assert world.fleet.in_flight == 2


def test_a_worker_that_is_not_there_is_not_idle() -> None:
    assert [Slot(worker_config(), state=s).is_idle for s in ("starting", "stopped", "benched")] == [
        False,
        False,
        False,
    ]
    assert Slot(worker_config(), state="running").is_idle


def test_a_report_of_a_former_incarnation_s_call_changes_nothing() -> None:
    _, slot = running()
    slot.report(finished(None), now=50.0)
    assert slot.last_reported_at == 0.0
    assert not any(call.is_reported for call in slot.calls)


def test_a_call_hangs_when_it_takes_longer_than_the_timeout_and_not_before() -> None:
    _, slot = running()
    assert slot.hung_call(10.0, 10.0) is None
    assert slot.hung_call(10.001, 10.0) is slot.calls[0]


def test_the_time_of_a_call_begins_with_the_report_of_the_one_before() -> None:
    world, slot = running()
    world.workers[0, 0].complete()
    slot.report(slot.calls[0].future, now=8.0)
    assert slot.hung_call(18.0, 10.0) is None
    assert slot.hung_call(18.5, 10.0) is slot.calls[1]


def test_a_call_that_ended_unseen_does_not_hang_but_the_next_may() -> None:
    world, slot = running()
    world.workers[0, 0].complete()
    # nobody reported it yet, so the next call's time began with its submission
    assert slot.hung_call(10.5, 10.0) is slot.calls[1]


def test_a_call_asked_for_later_has_its_time_from_then() -> None:
    world, slot = running(credits=1)
    world.now = 30.0
    world.workers[0, 0].complete()
    world.tell_all()
    assert slot.hung_call(40.0, 10.0) is None
    assert slot.hung_call(40.5, 10.0) is slot.calls[0]


def test_of_a_condemned_worker_no_second_call_hangs() -> None:
    _, slot = running()
    slot.calls[0].verdict = CallFailure("hung", "killed")
    assert slot.hung_call(1e9, 10.0) is None


def test_a_worker_without_calls_does_not_hang() -> None:
    assert Slot(worker_config(), state="running").hung_call(1e9, 0.0) is None


def test_a_verdict_stands_whatever_the_future_says_later() -> None:
    world, slot = running()
    call = slot.calls[0]
    call.verdict = CallFailure("hung", "killed")
    world.workers[0, 0].complete()
    assert call.outcome == ([], CallFailure("hung", "killed"))


def test_failures_in_a_row_bench_however_far_apart_they_are() -> None:
    slot = Slot(worker_config())
    assert [slot.may_restart(1e6 * i, 2, 10.0) for i in range(4)] == [True, True, False, False]


def test_failures_within_the_window_bench_in_spite_of_fragments_between() -> None:
    slot = Slot(worker_config())
    allowed = []
    for now in (0.0, 1.0, 2.0):
        slot.failures_in_row = 0  # a fragment was completed
        allowed.append(slot.may_restart(now, 2, 10.0))
    assert allowed == [True, True, False]


def test_a_failure_counts_until_the_window_is_over_and_not_longer() -> None:
    slot = Slot(worker_config())
    for now, expected in ((0.0, 1), (10.0, 2), (10.5, 2), (21.0, 1)):
        slot.failures_in_row = 0
        slot.may_restart(now, 9, 10.0)
        assert slot.as_dict()["recent_failures"] == expected


def test_no_restarts_allowed_means_none() -> None:
    assert not Slot(worker_config()).may_restart(0.0, 0, 0.0)


def test_a_pardon_forgets_both_counts() -> None:
    slot = Slot(worker_config())
    slot.may_restart(0.0, 1, 10.0)
    slot.pardon()
    assert slot.as_dict()["recent_failures"] == 0
    assert slot.may_restart(1.0, 1, 10.0)


@given(st.lists(st.floats(0, 30), max_size=12), st.integers(0, 3), st.floats(0, 20))
def test_restarts_are_those_of_a_plain_count(
    gaps: list[float], max_restarts: int, window_s: float
) -> None:
    slot, times, now = Slot(worker_config()), list[float](), 0.0
    for gap in gaps:
        now += gap
        times.append(now)
        slot.failures_in_row = 0
        recent = sum(now - time <= window_s for time in times)
        assert slot.may_restart(now, max_restarts, window_s) == (max(recent, 1) <= max_restarts)


def test_what_is_shown_of_a_slot_before_and_after_it_appears() -> None:
    slot = Slot(worker_config())
    assert slot.as_dict() == {
        "worker_id": 0,
        "incarnation": 0,
        "state": "stopped",
        "pid": None,
        "host": None,
        "in_flight": 0,
        "fragments": 0,
        "env_steps": 0,
        "recent_failures": 0,
        "last_error": None,
    }
    slot.info = WorkerInfo(pid=17, host="there", policies=("",))
    assert (slot.as_dict()["pid"], slot.as_dict()["host"]) == (17, "there")


def call_of(*answers: Any, num_fragments: int) -> Call:
    """A call for so many fragments that returned these answers."""
    fetches: Any = [f"fetch {index}" for index in range(num_fragments)]
    return Call(finished(answers), fetches, 0.0)


def test_a_call_for_several_has_a_handle_for_each_that_was_begun() -> None:
    infos: Any = ["first", "second"]
    handles, failure = call_of(*infos, num_fragments=4).outcome
    assert [(one.info, one.fetch) for one in handles] == [
        ("first", "fetch 0"),
        ("second", "fetch 1"),
    ]
    assert failure is None


def test_a_call_that_failed_keeps_what_was_completed_before() -> None:
    broken = WorkerFailure(message="m", traceback="t", reason="env_error")
    handles, failure = call_of("first", broken, num_fragments=3).outcome
    assert [one.info for one in handles] == ["first"]
    assert failure == CallFailure("env_error", "t")


def test_a_call_for_several_may_last_as_long_as_is_worth_a_call_besides() -> None:
    several, one = (
        Call(Future(), [lambda timeout_s: None] * num, 0.0)  # type: ignore[list-item, return-value]
        for num in (2, 1)
    )
    slot = Slot(worker_config(), state="running")
    slot.calls.append(several)
    assert slot.deadline(10.0) == several.limit_s(10.0) == 10.0 + WORTH_S
    assert slot.hung_call(10.0 + WORTH_S, 10.0) is None
    assert slot.hung_call(10.001 + WORTH_S, 10.0) is several
    assert one.limit_s(10.0) == 10.0
