# SPDX-License-Identifier: Apache-2.0
"""The fleet at its edges: starts that fail, weights that are not there, ends that overlap."""

from __future__ import annotations

from typing import Any

import pytest
from counter_world import assert_balanced, assert_exactly_once
from fleet_world import HANG_TIMEOUT_S, START_TIMEOUT_S, World

from rollouts.errors import ClosedError, ProtocolError, WorkerError
from rollouts.workers.lag import LagRule


def started(num_workers: int, **rules: Any) -> World:
    world = World(num_workers, **rules)
    world.appear_all()
    world.publish()
    return world


def states(world: World) -> list[str]:
    return [worker["state"] for worker in world.fleet.stats()["workers"]]


def test_nothing_is_asked_for_before_the_first_weights() -> None:
    world = World(2)
    world.appear_all()
    assert world.fleet.in_flight == 0 and states(world) == ["running", "running"]
    world.publish()
    assert world.fleet.in_flight == 4


def test_a_worker_that_appears_late_gets_the_newest_weights() -> None:
    world = World(2)
    world.workers[0, 0].appear()
    world.tell_all()
    world.publish()
    world.publish()
    world.workers[1, 0].appear()
    world.tell_all()
    versions = [offer.version for offer, _, _ in world.workers[1, 0].calls]
    assert versions == [2, 2]


def test_a_start_may_take_its_whole_time_and_no_longer() -> None:
    world = World(1, max_restarts=1)
    world.now = START_TIMEOUT_S
    world.fleet.look()
    assert states(world) == ["starting"] and (0, 1) not in world.workers
    world.now += 0.1
    world.fleet.look()
    # the next one has its own time
    assert world.workers[0, 0].is_killed and states(world) == ["starting"]
    world.now += START_TIMEOUT_S
    world.fleet.look()
    assert not world.workers[0, 1].is_killed
    stats = world.fleet.stats()
    assert stats["failures"] == {"start_timeout": 1} and stats["restarts"] == 1
    assert "has the cluster the CPUs, GPUs and labels" in stats["workers"][0]["last_error"]


def test_a_start_that_ends_after_it_was_given_up_starts_nothing() -> None:
    world = World(1)
    world.now = START_TIMEOUT_S + 1
    world.fleet.look()
    world.workers[0, 0].appear()
    world.tell_all()
    assert states(world) == ["starting"]
    world.workers[0, 1].appear()
    world.tell_all()
    assert states(world) == ["running"]


def test_a_worker_that_dies_before_it_appears_is_started_again_until_it_is_benched() -> None:
    world = World(1, max_restarts=2)
    for incarnation in range(3):
        world.workers[0, incarnation].die()
        world.tell_all()
    assert set(world.workers) == {(0, 0), (0, 1), (0, 2)}
    assert states(world) == ["benched"]
    with pytest.raises(WorkerError) as caught:
        world.get(1)
    assert str(caught.value).startswith("no worker is left: each failed 3 times in a row")
    assert "worker [0]: OSError: actor died" in str(caught.value)


def test_equal_last_errors_are_told_once_with_all_their_workers() -> None:
    world = started(3, max_restarts=0)
    for worker_id in (0, 2):
        world.workers[worker_id, 0].die()
    world.workers[1, 0].raise_error()
    world.tell_all()
    with pytest.raises(WorkerError) as caught:
        world.get(1)
    assert "worker [0, 2]: OSError: actor died\nworker [1]: oops" in str(caught.value)


def test_a_fragment_between_failures_pardons_those_in_a_row() -> None:
    world = started(1, max_restarts=1)
    for incarnation in range(4):
        worker = world.workers[0, incarnation]
        worker.complete()
        world.tell_all()
        world.get(1)
        worker.die()
        world.tell_all()
        world.appear_all()
        world.now += 1.0  # past the window, which is empty here
    assert states(world) == ["running"]
    assert world.fleet.stats()["restarts"] == 4


def test_a_hung_worker_is_given_up_once_however_often_one_looks() -> None:
    world = started(1, credits_per_worker=2)
    world.now = HANG_TIMEOUT_S + 1
    for _ in range(3):
        world.fleet.look()
    stats = world.fleet.stats()
    assert stats["failures"] == {"hung": 1} and stats["restarts"] == 1
    # the second call had not begun, and is lost with the first
    assert stats["fragments"]["interrupted"] == {"hung": 2}
    assert_balanced(stats)


def test_without_a_timeout_nobody_hangs() -> None:
    world = started(1, hang_timeout_s=None)
    world.now = 1e9
    world.fleet.look()
    assert not world.workers[0, 0].is_killed


def test_a_removed_worker_that_has_not_appeared_is_ended_at_once() -> None:
    world = World(2)
    world.fleet.scale_to(1)
    assert world.workers[1, 0].is_killed and states(world) == ["starting", "stopped"]
    world.workers[1, 0].appear()
    world.tell_all()
    assert states(world) == ["starting", "stopped"]
    # wanted again, it is another incarnation
    world.fleet.scale_to(2)
    assert (1, 1) in world.workers


def test_a_drain_of_idle_workers_is_over_at_once() -> None:
    world = World(2)
    world.appear_all()
    world.fleet.drain()
    with pytest.raises(ClosedError, match="drained"):
        world.get(1)


def test_a_worker_that_dies_during_a_drain_ends_it_with_what_came() -> None:
    world = started(2, credits_per_worker=1)
    world.fleet.drain()
    world.workers[1, 0].die()
    world.work()
    assert [f.worker_id for f in world.get(1)] == [0]
    with pytest.raises(ClosedError, match="drained"):
        world.get(1)
    assert (1, 1) not in world.workers
    assert_balanced(world.fleet.stats())


@pytest.mark.parametrize("end", ["drain", "stop"])
def test_after_the_end_nobody_is_added_or_asked(end: str) -> None:
    world = started(1)
    getattr(world.fleet, end)()
    with pytest.raises(ProtocolError, match=r"scale_to\(\) after drain\(\) or close\(\)"):
        world.fleet.scale_to(2)
    requested = world.fleet.stats()["fragments"]["requested"]
    world.publish()
    world.work()
    assert world.fleet.stats()["fragments"]["requested"] == requested


def test_a_stopped_fleet_takes_no_news() -> None:
    world = started(2)
    world.fleet.stop()
    assert all(worker.is_killed for worker in world.workers.values())
    before = world.fleet.stats()
    for worker in world.workers.values():
        worker.complete()
    world.tell_all()
    world.now += 1e6
    world.fleet.look()
    assert world.fleet.stats() == before
    assert_balanced(before)


def test_news_in_reverse_order_change_neither_order_nor_count() -> None:
    world = started(2, credits_per_worker=3, max_queued_fragments=6)
    for worker in world.living:
        while worker.is_open:
            worker.complete()
    while world.news:
        world.tell(-1)
    assert len(world.get(6)) == 6
    assert_exactly_once(world.delivered)


def test_waiting_for_the_learner_is_counted_for_idle_workers_alone() -> None:
    world = started(2, credits_per_worker=1, max_queued_fragments=2)
    world.workers[0, 0].complete()
    world.tell_all()
    world.now += 3.0  # worker 0 has nothing to do, worker 1 collects
    assert world.fleet.stats()["workers_wait_s"] == 3.0
    world.workers[1, 0].complete()
    world.tell_all()
    world.now += 2.0
    assert world.fleet.stats()["workers_wait_s"] == 7.0
    world.get(2)
    world.now += 5.0
    assert world.fleet.stats()["workers_wait_s"] == 7.0


def test_a_learner_that_publishes_twice_keeps_its_pace() -> None:
    world = started(2, credits_per_worker=2, lag=LagRule(1, "block"))
    world.wait_and_get(2)
    world.publish()
    limit = world.fleet.stats()["outstanding_limit"]
    world.publish()
    assert world.fleet.stats()["outstanding_limit"] == limit == 2
