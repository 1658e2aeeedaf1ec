# SPDX-License-Identifier: Apache-2.0
"""Orders of merging alone: who is asked next, with which weights, whose fragment may be queued."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from acted_worker import worker_config
from hypothesis import given
from hypothesis import strategies as st

from rollouts.workers.merge import ArrivalMerge, Demand, Merge, OrderedMerge, make_merge
from rollouts.workers.slot import Call, Slot

ROOM = 3


def slots(count: int, state: str = "running") -> list[Slot]:
    return [Slot(replace(worker_config(), worker_id=w), state=state) for w in range(count)]


def empty_call(num_fragments: int = 1) -> Call:
    """A call that never ends."""
    return Call(Future(), [lambda timeout_s: None] * num_fragments, 0.0)  # type: ignore[list-item, return-value]


def ask(merge: Merge, workers: list[Slot], room: int, credits: int, offer: Any) -> list[Any]:
    """Makes the calls that the merge wants; returns (worker_id, offer) of each."""
    made = []
    for slot, weights, num_fragments in merge.calls_to_make(workers, Demand(room, credits, offer)):
        assert num_fragments == 1
        made.append((slot.config.worker_id, weights))
        slot.calls.append(empty_call())
        slot.last_call = sum(len(each.calls) for each in workers) + len(made)
    return made


def arrival(workers: list[Slot]) -> ArrivalMerge:
    merge = ArrivalMerge()
    for slot in workers:
        merge.may_ask(slot)
    return merge


def take(merge: Merge, slot: Slot) -> None:
    slot.calls.popleft()
    merge.took(slot)


def test_arrival_asks_the_least_busy_first_and_stops_at_the_credits() -> None:
    workers = slots(2)
    merge = arrival(workers)
    assert ask(merge, workers, room=9, credits=2, offer="v1") == [
        (0, "v1"), (1, "v1"), (0, "v1"), (1, "v1"),
    ]  # fmt: skip
    take(merge, workers[1])
    assert ask(merge, workers, room=9, credits=2, offer="v2") == [(1, "v2")]
    assert merge.outstanding(4) == 4
    assert merge.is_turn(workers[0]) and merge.is_turn(workers[1])


def test_arrival_gives_a_scarce_place_to_who_has_waited_longest() -> None:
    workers = slots(3)
    merge = arrival(workers)
    ask(merge, workers, room=3, credits=1, offer="v1")
    for worker in (2, 0, 1):
        take(merge, workers[worker])
    assert [ask(merge, workers, 1, 1, "v2")[0][0] for _ in range(3)] == [0, 1, 2]


def test_arrival_does_not_ask_who_does_not_run() -> None:
    workers = slots(2, "starting")
    merge = arrival(workers)
    assert ask(merge, workers, ROOM, 2, "v1") == []
    workers[1].state = "running"
    merge.may_ask(workers[1])
    assert {worker for worker, _ in ask(merge, workers, ROOM, 2, "v1")} == {1}


def test_ordered_takes_turns_whoever_is_ready() -> None:
    merge, workers = OrderedMerge(), slots(2)
    ask(merge, workers, room=4, credits=2, offer="v1")
    assert merge.is_turn(workers[0]) and not merge.is_turn(workers[1])
    take(merge, workers[0])
    assert merge.is_turn(workers[1]) and not merge.is_turn(workers[0])
    assert merge.outstanding(0) == 3


def test_ordered_promises_the_weights_of_the_moment_to_a_worker_that_starts_later() -> None:
    merge, workers = OrderedMerge(), slots(2, "starting")
    assert ask(merge, workers, room=2, credits=1, offer="v1") == []
    assert merge.outstanding(0) == 2
    workers[0].state = workers[1].state = "running"
    assert ask(merge, workers, room=0, credits=1, offer="v2") == [(0, "v1"), (1, "v1")]


def test_ordered_repeats_the_calls_of_a_lost_incarnation_in_their_turn() -> None:
    merge, workers = OrderedMerge(), slots(2)
    ask(merge, workers, room=4, credits=2, offer="v1")
    workers[0].calls.clear()
    merge.lost(workers[0], 2, "v2")  # type: ignore[arg-type]
    assert merge.is_turn(workers[0])
    assert ask(merge, workers, room=0, credits=2, offer="v3") == [(0, "v2"), (0, "v2")]
    assert merge.outstanding(4) == 4


def test_ordered_forgets_the_turns_that_a_worker_leaves_unasked() -> None:
    merge, workers = OrderedMerge(), slots(2)
    ask(merge, workers, room=4, credits=1, offer="v1")
    # one call each is under way, one more is promised
    assert merge.outstanding(4) == 4
    workers[0].state = "draining"
    merge.forget(workers[0])
    assert merge.outstanding(0) == 3
    order = []
    while merge.outstanding(0):
        slot = next(each for each in workers if merge.is_turn(each))
        order.append(slot.config.worker_id)
        if not slot.calls:
            ask(merge, workers, room=0, credits=1, offer="v2")
        take(merge, slot)
    assert order == [0, 1, 1]


@given(
    st.lists(st.sampled_from(["ask", "end"]), max_size=60),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_ordered_queues_round_robin_in_whatever_rhythm_calls_are_made(
    events: list[str], count: int, credits: int
) -> None:
    merge, workers, order = OrderedMerge(), slots(count), []
    for event in events:
        if event == "ask":
            ask(merge, workers, 1, credits, "v1")
        else:
            ready = [each for each in workers if each.calls and merge.outstanding(0)]
            for slot in ready:
                if merge.is_turn(slot):
                    order.append(slot.config.worker_id)
                    take(merge, slot)
                    break
    assert order == [i % count for i in range(len(order))]


@pytest.mark.parametrize(("order", "kind"), [("arrival", ArrivalMerge), ("ordered", OrderedMerge)])
def test_each_order_has_its_bookkeeping(order: Any, kind: type[Merge]) -> None:
    assert type(make_merge(order)) is kind


@given(
    num_workers=st.integers(1, 5),
    credits=st.integers(1, 3),
    events=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=200),
)
def test_arrival_asks_as_a_look_at_all_workers_would(
    num_workers: int, credits: int, events: list[tuple[int, int]]
) -> None:
    workers = slots(num_workers)
    merge, num_asked = arrival(workers), 0
    offer: Any = "v"
    for index, kind in events:
        slot = workers[index % num_workers]
        if kind == 0 and slot.calls:
            take(merge, slot)
        elif kind == 1:
            # what dies has no calls; the next incarnation is asked when it is there
            slot.state = "starting"
            slot.calls.clear()
        elif kind == 2 and slot.state == "starting":
            slot.state = "running"
            merge.may_ask(slot)
        running = [each for each in workers if each.state == "running"]
        expected = min(running, key=lambda s: (len(s.calls), s.last_call), default=None)
        if expected is not None and len(expected.calls) >= credits:
            expected = None
        found = None
        for found, _, _ in merge.calls_to_make(workers, Demand(1, credits, offer)):
            num_asked += 1
            found.calls.append(empty_call())
            found.last_call = num_asked
        assert found is expected


def sizes(merge: Merge, workers: list[Slot], room: int, **asked: int) -> list[tuple[int, int]]:
    """Makes calls; returns (worker_id, fragments) of each."""
    made = []
    offer: Any = "v"
    for slot, _, num_fragments in merge.calls_to_make(workers, Demand(room, 2, offer, **asked)):
        made.append((slot.config.worker_id, num_fragments))
        slot.calls.append(empty_call(num_fragments))
        slot.last_call = sum(len(each.calls) for each in workers) + len(made)
    return made


def test_a_worker_is_asked_for_no_more_in_a_call_than_it_may_have() -> None:
    workers = slots(2)
    workers[1].most_per_call = 4
    merge = arrival(workers)
    assert sizes(merge, workers, room=99, size=8) == [(0, 1), (1, 4), (0, 1), (1, 4)]


def test_arrival_waits_for_room_for_a_whole_call() -> None:
    workers = slots(1)
    workers[0].most_per_call = 4
    merge = arrival(workers)
    assert sizes(merge, workers, room=3, size=4) == []
    assert sizes(merge, workers, room=7, size=4) == [(0, 4)]
    assert sizes(merge, workers, room=4, size=4) == [(0, 4)]


def test_a_learner_that_waits_for_fragments_gets_them_in_a_smaller_call() -> None:
    workers = slots(1)
    workers[0].most_per_call = 4
    merge = arrival(workers)
    assert sizes(merge, workers, room=5, size=4, num_lacking=5) == [(0, 4), (0, 1)]


def test_ordered_never_shares_a_call() -> None:
    workers = slots(2)
    for slot in workers:
        slot.most_per_call = 4
    assert sizes(OrderedMerge(), workers, room=4, size=4) == [(0, 1), (0, 1), (1, 1), (1, 1)]
