# SPDX-License-Identifier: Apache-2.0
"""Calls for several fragments: how many, what becomes of them, and that each is counted."""

from __future__ import annotations

from typing import Any

import pytest
from counter_world import assert_balanced, assert_exactly_once
from fleet_world import World

from rollouts.workers.call_size import CALL_S, WORTH_S, CallSize
from rollouts.workers.lag import LagRule

QUICK_S = WORTH_S / 4  # four of these fragments are worth a call
MANY = 10**6


def measured(*seconds: float, most: int = 16) -> CallSize:
    size = CallSize(most)
    for each in seconds:
        size.measure(each)
    return size


def sharing(num_workers: int = 1, **rules: Any) -> World:
    """A fleet whose learner has taken so much that all calls are for four fragments."""
    world = World(num_workers, fragment_s=QUICK_S, **{"max_queued_fragments": 64, **rules})
    world.appear_all()
    world.publish()
    for _ in range(20):
        world.work()
        world.get(min(world.queue.depth, 32))
        world.fleet.look()
    return world


def open_sizes(world: World) -> list[list[int]]:
    """Fragments of each open call, by worker."""
    return [
        [call.num_fragments for call in slot.calls]
        for slot in world.fleet._slots
        if slot.state == "running"
    ]


def test_nothing_is_shared_before_a_time_was_measured() -> None:
    assert CallSize(16).wanted == CallSize(16).allowed(1, limit=MANY, per_version=MANY) == 1


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (WORTH_S / 100, 16), (WORTH_S / 16, 16), (WORTH_S / 4, 4), (WORTH_S / 3.5, 4),
        (WORTH_S * 0.9, 2), (WORTH_S, 1), (9.0, 1), (0.0, 16),
    ],
)  # fmt: skip
def test_as_many_share_a_call_as_are_worth_one(seconds: float, wanted: int) -> None:
    assert measured(seconds).wanted == wanted
    assert measured(seconds, most=1).wanted == 1


def test_the_time_of_a_fragment_is_the_mean_of_the_last() -> None:
    size = measured(WORTH_S, WORTH_S / 3)
    assert size.wanted == 2
    for _ in range(1000):
        size.measure(9.0)
    assert size.wanted == 1


@pytest.mark.parametrize("slow_s", [9.0, 1e4])
def test_one_slow_fragment_does_not_keep_quick_ones_apart(slow_s: float) -> None:
    for num_before in (0, 100):
        size = measured(*[WORTH_S / 16] * num_before, slow_s, *[WORTH_S / 16] * 2)
        assert size.wanted > 1


def test_a_version_and_the_room_bound_what_is_in_flight() -> None:
    size = measured(WORTH_S / 16)
    assert size.allowed(4, limit=MANY, per_version=MANY) == 16
    assert size.allowed(4, limit=MANY, per_version=35) == 8
    assert size.allowed(4, limit=9, per_version=35) == 2
    assert size.allowed(4, limit=MANY, per_version=3) == 1
    assert size.allowed(0, limit=0, per_version=0) == 1


@pytest.mark.parametrize(
    ("seconds", "num_calls", "size"),
    [
        # 128 calls would have one fragment each: eleven calls of eleven are as fast as the driver
        (CALL_S, 128, 11),
        # four times as slow fragments need twice the workers
        (4 * CALL_S, 128, 5), (16 * CALL_S, 128, 2), (100 * CALL_S, 128, 1),
        # few workers have all their calls, and these are larger
        (16 * CALL_S, 16, 7), (16 * CALL_S, 32, 4),
    ],
)  # fmt: skip
def test_many_workers_are_asked_in_turn_where_the_driver_is_slower(
    seconds: float, num_calls: int, size: int
) -> None:
    found = measured(seconds).allowed(num_calls, limit=MANY, per_version=128)
    assert found == size
    if found > 128 // num_calls:
        # those that are asked make fragments no slower than the driver takes them
        assert (128 / found) / seconds >= found / CALL_S


@pytest.mark.parametrize(
    ("made_s", "size"),
    [
        # the making is a third of what the call costs
        ([CALL_S], 4), ([2 * CALL_S], 6), ([CALL_S, 3 * CALL_S], 6),
        # no machine is so fast
        ([CALL_S / 100], 2),
        # one call that took long is no sign of a slow one
        ([1000.0, *[CALL_S] * 60], 5),
    ],
)  # fmt: skip
def test_dearer_calls_are_for_more_fragments(made_s: list[float], size: int) -> None:
    found = measured(16 * CALL_S)
    for each in made_s:
        found.measure_call(each)
    assert found.allowed(128, limit=MANY, per_version=128) == size


def test_a_fleet_measures_the_making_of_its_calls() -> None:
    """Counts calls for the same fragments where making one is free, and where it is dear."""
    calls = []
    for make_s in (0.0, 4 * CALL_S):
        world = World(32, fragment_s=4 * CALL_S, make_s=make_s, max_queued_fragments=64)
        world.appear_all()
        for _ in range(40):
            world.publish()
            world.wait_and_get(64)
        calls.append(world.fleet.stats()["calls"])
        assert_exactly_once(world.delivered)
    assert calls[1] < 0.6 * calls[0]


def test_every_worker_has_its_turn_where_few_are_asked_at_a_time() -> None:
    num_workers = 32
    world = World(num_workers, fragment_s=CALL_S, max_queued_fragments=64)
    world.appear_all()
    for _ in range(40):
        world.publish()
        world.wait_and_get(64)
    calls = world.fleet.stats()["calls"]
    assert calls < 0.5 * world.fleet.stats()["fragments"]["requested"]
    done = [worker["fragments"] for worker in world.fleet.stats()["workers"]]
    assert min(done) > 0.5 * max(done)
    assert max(world.lags[-640:]) <= 1
    assert_exactly_once(world.delivered)
    assert_balanced(world.fleet.stats())


def test_calls_grow_from_one_to_what_is_worth_it() -> None:
    world = World(1, fragment_s=QUICK_S, max_queued_fragments=64)
    world.appear_all()
    world.publish()
    seen = []
    for _ in range(12):
        seen.append(open_sizes(world))
        world.work()
        world.get(world.queue.depth)
    largest = [max(sizes) for (sizes,) in seen]
    assert largest[0] == 1 and set(largest) >= {2, 4} and largest[-1] == 4
    assert largest == sorted(largest)
    assert_exactly_once(world.delivered)
    assert_balanced(world.fleet.stats())


def test_a_new_incarnation_begins_with_one_again() -> None:
    world = sharing()
    assert open_sizes(world) == [[4, 4]]
    world.workers[0, 0].die()
    world.tell_all()
    world.appear_all()
    assert open_sizes(world) == [[1, 1]]


def test_all_calls_are_fewer_fragments_than_the_learner_takes_for_a_version() -> None:
    world = World(2, fragment_s=WORTH_S / 100, max_queued_fragments=64)
    world.appear_all()
    for _ in range(30):
        world.publish()
        for _ in range(9):
            world.wait_and_get(1)
            assert world.fleet.in_flight <= 9
    assert open_sizes(world) == [[2, 2], [2, 2]]
    # as old as with a call for each
    assert max(world.lags) <= 64 // 9 + 1


def test_without_a_bound_of_its_own_the_queue_holds_what_a_version_takes() -> None:
    world = World(1, fragment_s=QUICK_S)
    world.appear_all()
    world.publish()
    for _ in range(40):
        world.wait_and_get(1)
    # two calls of four fragments
    assert world.fleet.stats()["outstanding_limit"] == 8
    # a version for each two fragments: no call is shared
    for _ in range(40):
        world.publish()
        world.wait_and_get(2)
    assert world.fleet.stats()["outstanding_limit"] == 2
    assert max(world.lags[-20:]) <= 1


@pytest.mark.parametrize(
    "rules",
    [
        {"merge": "ordered"},
        {"credits_per_worker": 1},
        {"lag": LagRule(3, "drop")},
        {"lag": LagRule(3, "block")},
        {"lag": LagRule.of("synchronous")},
        {"lag": LagRule.of("one_step_lag")},
        {"payloads_in_workers": True},
        {"max_fragments_per_call": 1},
    ],
)
def test_each_fragment_has_its_own_call_where_that_was_promised(rules: dict[str, Any]) -> None:
    world = World(1, fragment_s=QUICK_S, **{"max_queued_fragments": 64, **rules})
    world.appear_all()
    world.publish()
    for _ in range(40):
        world.wait_and_get(1)
    stats = world.fleet.stats()
    assert stats["calls"] == stats["fragments"]["requested"] >= 40


def test_fragments_of_a_dead_worker_s_calls_are_interrupted() -> None:
    world = sharing()
    before = world.fleet.stats()["fragments"]
    world.workers[0, 0].die()
    world.tell_all()
    after = world.fleet.stats()
    assert after["fragments"]["interrupted"] == {"worker_died": 8}
    assert after["fragments"]["produced"] == before["produced"]
    assert_balanced(after)
    assert after["restarts"] == 1


def test_what_was_completed_before_an_error_is_delivered() -> None:
    world = sharing()
    produced = world.fleet.stats()["fragments"]["produced"]
    world.workers[0, 0].raise_error(num_completed=3)
    world.tell_all()
    stats = world.fleet.stats()
    assert stats["fragments"]["produced"] == produced + 3
    # the one that failed, and the call behind it
    assert stats["fragments"]["interrupted"] == {"worker_error": 1 + 4}
    assert stats["workers"][0]["fragments"] == produced + 3
    assert_balanced(stats)
    world.get(3)
    assert_exactly_once(world.delivered)


def test_what_a_worker_did_not_begin_was_never_asked_for() -> None:
    world = sharing()
    requested = world.fleet.stats()["fragments"]["requested"]
    world.workers[0, 0].complete(num_fragments=1)
    world.tell_all()
    stats = world.fleet.stats()
    # three are given back, and four asked for
    assert stats["fragments"]["requested"] == requested + 1
    assert stats["fragments"]["in_flight"] == 8
    assert_balanced(stats)


def test_a_call_that_ended_unseen_is_counted_when_its_worker_is_removed() -> None:
    world = sharing()
    produced = world.fleet.stats()["fragments"]["produced"]
    requested = world.fleet.stats()["fragments"]["requested"]
    world.workers[0, 0].complete(num_fragments=3)
    world.queue.close()
    world.fleet.stop()
    stats = world.fleet.stats()
    assert stats["fragments"]["produced"] == produced + 3
    assert stats["fragments"]["discarded"] == {"closed": 3}
    assert stats["fragments"]["interrupted"] == {"closed": 4}
    assert stats["fragments"]["requested"] == requested - 1
    assert_balanced(stats)


def test_a_missing_fragment_condemns_what_came_with_it() -> None:
    world = sharing()
    world.workers[0, 0].lose()
    world.workers[0, 0].complete()
    world.tell_all()
    stats = world.fleet.stats()
    assert stats["failures"] == {"protocol": 1}
    assert stats["fragments"]["discarded"] == {"out_of_order": 1, "protocol": 3}
    assert stats["fragments"]["interrupted"] == {"protocol": 4}
    assert_balanced(stats)


def test_a_learner_that_waits_for_more_than_whole_calls_is_served() -> None:
    world = sharing()
    world.work()
    world.get(world.queue.depth)
    assert len(world.wait_and_get(63)) == 63
    assert_exactly_once(world.delivered)


def test_room_that_is_no_whole_call_is_filled_at_the_next_tick() -> None:
    world = sharing(max_queued_fragments=15)
    world.work()
    world.work()
    world.tell_all()
    assert (world.queue.depth, world.fleet.in_flight) == (12, 0)
    world.fleet.look()
    assert open_sizes(world) == [[3]]
    world.work()
    assert world.queue.depth == world.fleet.stats()["outstanding_limit"] == 15


def test_draining_waits_for_shared_calls() -> None:
    world = sharing()
    world.fleet.drain()
    world.work()
    assert world.fleet.in_flight == 0
    assert world.queue.depth == 8
    world.get(8)
    assert_exactly_once(world.delivered)
    assert_balanced(world.fleet.stats())
