# SPDX-License-Identifier: Apache-2.0
"""The fleet as a state machine: lag limits, order, hanging, scaling and draining."""

from __future__ import annotations

from typing import Any

import pytest
from counter_world import assert_balanced, assert_exactly_once
from fleet_world import HANG_TIMEOUT_S, World

from rollouts.errors import ClosedError, WorkerError
from rollouts.learner.fetching import Claim
from rollouts.workers.lag import LagRule


def started(num_workers: int, **rules: Any) -> World:
    world = World(num_workers, **rules)
    world.appear_all()
    world.publish()
    return world


def num_open(world: World) -> int:
    return sum(len(worker.calls) - worker._num_answered for worker in world.living)


def test_synchronous_collects_only_for_a_waiting_learner() -> None:
    world = started(2, lag=LagRule.of("synchronous"))
    assert world.outstanding() == 0
    for _ in range(5):
        world.wait_and_get(2)
        assert world.outstanding() == 0
        world.publish()
    assert set(world.lags) == {0}
    assert world.fleet.stats()["fragments"]["discarded"] == {}


def test_one_step_lag_collects_the_next_batch_with_the_weights_of_the_last() -> None:
    world = started(2, lag=LagRule.of("one_step_lag"))
    world.wait_and_get(2)
    for _ in range(5):
        # in flight while the learner learns
        assert world.outstanding() == 2
        world.publish()
        world.wait_and_get(2)
    assert world.lags == [0, 0] + 10 * [1]
    assert world.fleet.stats()["fragments"]["discarded"] == {}


@pytest.mark.parametrize("max_lag", [1, 2, 3])
@pytest.mark.parametrize("gets_per_version", [1, 3])
def test_block_keeps_a_steady_learner_below_the_limit_without_waste(
    max_lag: int, gets_per_version: int
) -> None:
    world = started(4, credits_per_worker=4, lag=LagRule(max_lag, "block"))
    for _ in range(8):
        for _ in range(gets_per_version):
            world.wait_and_get(2)
            world.work()
        world.publish()
    assert max(world.lags) == max_lag
    assert world.fleet.stats()["fragments"]["discarded"] == {}


def test_block_delivers_more_than_its_limit_to_a_learner_that_waits() -> None:
    world = started(2, max_queued_fragments=8, lag=LagRule(1, "block"))
    world.wait_and_get(1)
    world.publish()
    assert len(world.wait_and_get(8)) == 8


def test_drop_discards_what_grew_too_old_and_makes_room_for_fresh() -> None:
    world = started(1, credits_per_worker=2, lag=LagRule(1, "drop"))
    world.work()
    assert world.queue.depth == 2
    world.publish()
    assert world.queue.depth == 2
    world.publish()
    assert world.fleet.stats()["env_steps"]["discarded"] == {"stale": 16}
    world.work()
    assert {f.min_policy_version for f in world.get(2)} == {3}


def test_pass_delivers_what_grew_too_old() -> None:
    world = started(1, lag=LagRule(0, "pass"))
    world.work()
    world.publish()
    world.get(2)
    assert world.lags == [1, 1]


def test_hung_worker_is_killed_and_what_it_had_completed_is_kept() -> None:
    world = started(2, credits_per_worker=2, merge="ordered")
    hung = world.workers[1, 0]
    # its first fragment waits for worker 0's turn, its second never ends
    hung.complete()
    world.tell_all()
    world.now += HANG_TIMEOUT_S + 1
    world.workers[0, 0].complete()
    world.workers[0, 0].complete()
    world.fleet.look()
    assert hung.is_killed and not world.workers[0, 0].is_killed
    world.tell_all()
    world.appear_all()
    world.work()
    order = [(f.worker_id, f.incarnation, f.seq_no) for f in world.get(4)]
    assert order == [(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 1, 0)]
    stats = world.fleet.stats()
    assert stats["failures"] == stats["fragments"]["interrupted"] == {"hung": 1}


def test_time_in_the_queue_behind_another_call_is_not_hanging() -> None:
    world = started(1, credits_per_worker=2, max_queued_fragments=9)
    for _ in range(5):
        world.now += 0.8 * HANG_TIMEOUT_S
        world.fleet.look()
        world.workers[0, 0].complete()
        world.tell_all()
    assert not world.workers[0, 0].is_killed


def test_environment_errors_have_a_reason_of_their_own() -> None:
    from rollouts.errors import EnvError
    from rollouts.workers.worker_failure import guarded

    def fail() -> None:
        raise EnvError("env 7 failed")

    world = started(1)
    world.workers[0, 0].calls[0][1].set_result(guarded(fail))
    world.tell_all()
    stats = world.fleet.stats()
    assert stats["failures"] == {"env_error": 1}
    assert "env 7 failed" in stats["workers"][0]["last_error"]
    assert (0, 1) in world.workers


def test_ordered_merge_is_round_robin_whoever_is_first() -> None:
    world = started(3, merge="ordered")
    for worker_id in (2, 1, 1, 0, 2, 0):
        world.workers[worker_id, 0].complete()
        world.tell_all()
    assert [f.worker_id for f in world.get(6)] == [0, 1, 2, 0, 1, 2]


def test_ordered_merge_goes_on_without_a_benched_worker() -> None:
    world = started(3, merge="ordered", max_restarts=0)
    world.workers[1, 0].die()
    world.tell_all()
    world.work()
    assert [f.worker_id for f in world.get(4)] == [0, 2, 0, 2]


def test_faster_workers_make_more_and_slow_ones_do_not_starve() -> None:
    world = started(2, credits_per_worker=2)
    for turn in range(40):
        world.workers[0, 0].complete()
        if turn % 4 == 3:
            world.workers[1, 0].complete()
        world.tell_all()
        while world.queue.depth:
            world.get(1)
    by_worker = [sum(f.worker_id == w for f in world.delivered) for w in (0, 1)]
    assert by_worker == [40, 10]
    assert_exactly_once(world.delivered)


def test_scaling_up_and_down_never_repeats_an_incarnation() -> None:
    world = started(2)
    for num_workers in (4, 1, 3):
        world.fleet.scale_to(num_workers)
        world.appear_all()
        world.work()
        while world.queue.depth:
            world.get(1)
        states = [w["state"] for w in world.fleet.stats()["workers"]]
        assert states == ["running"] * num_workers + ["stopped"] * (len(states) - num_workers)
        assert world.queue.capacity == 2 * num_workers
    assert set(world.workers) == {(0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (2, 1)}
    assert_exactly_once(world.delivered)
    assert world.fleet.stats()["fragments"]["interrupted"] == {}


def test_worker_wanted_again_while_it_drains_goes_on() -> None:
    world = started(2)
    world.fleet.scale_to(1)
    assert world.fleet.stats()["workers"][1]["state"] == "draining"
    world.fleet.scale_to(2)
    world.work()
    assert not world.workers[1, 0].is_killed
    assert set(world.workers) == {(0, 0), (1, 0)}


def test_draining_worker_that_fails_is_not_started_again() -> None:
    world = started(2)
    world.fleet.scale_to(1)
    world.workers[1, 0].die()
    world.tell_all()
    assert world.fleet.stats()["workers"][1]["state"] == "stopped"
    assert (1, 1) not in world.workers


def test_scale_to_gives_benched_workers_another_chance() -> None:
    world = started(1, max_restarts=0)
    world.workers[0, 0].die()
    world.tell_all()
    with pytest.raises(WorkerError, match="actor died"):
        world.get(1)
    world.fleet.scale_to(1)
    world.appear_all()
    world.work()
    assert world.get(1)[0].incarnation == 1


def test_drain_delivers_what_was_asked_for_and_then_says_so() -> None:
    world = started(2)
    world.workers[0, 0].complete()
    world.fleet.drain()
    world.work()
    assert num_open(world) == 0
    assert len(world.get(4)) == 4
    with pytest.raises(ClosedError, match="drained"):
        world.get(1)


@pytest.mark.parametrize("is_wanted", [False, True])
def test_a_closed_queue_asks_for_nothing(is_wanted: bool) -> None:
    world = started(2)
    world.work()
    num_requested = world.fleet.stats()["fragments"]["requested"]
    if is_wanted:
        world.queue.begin(Claim(num_requested + 1))
    before = num_open(world)
    world.queue.close()
    for turn in (world.fleet.make_calls, world.fleet.look, world.fleet.take_news):
        turn()
    assert num_open(world) == before
    assert world.queue.depth == 0


def test_stop_counts_what_was_completed_but_not_yet_taken_over() -> None:
    world = started(1)
    world.workers[0, 0].complete()
    world.queue.close()
    world.fleet.stop()
    stats = world.fleet.stats()
    assert stats["fragments"]["discarded"] == {"closed": 1}
    assert stats["fragments"]["interrupted"] == {"closed": 1}
    assert_balanced(stats)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("asynchronous",), "sync_mode is 'asynchronous'"),
        (("free_running", 1, "wait"), "lag_policy is 'wait'"),
        (("free_running", -1), "queue.max_policy_lag is -1"),
        (("synchronous", 2), "means queue.max_policy_lag=0"),
        (("one_step_lag", None, "pass"), "means queue.max_policy_lag=1"),
        (("free_running", None, "drop"), "expected queue.max_policy_lag"),
    ],
)
def test_contradicting_lag_arguments_are_an_error(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LagRule.of(*arguments)


def test_the_outstanding_limit_holds_while_a_get_fetches() -> None:
    world = World(2, max_queued_fragments=4)
    world.publish()
    world.appear_all()
    world.work()
    seen = []

    def look() -> None:
        stats = world.fleet.stats()
        fragments = stats["fragments"]
        seen.append((fragments["queued"], fragments["in_flight"], stats["outstanding_limit"]))
        assert stats["queue_depth"] == fragments["queued"]

    fetches = [handle.fetch for handle in world.queue.get_handles(2, timeout_s=0)]
    assert len(fetches) == 2
    world.work()
    world.queue.get_handles(1, timeout_s=0)
    world.work()
    # looks from inside a `get`, where what it holds has been asked for again
    taken = world.queue._resolve
    world.queue._resolve = lambda handle, deadline: (look(), taken(handle, deadline))[1]
    world.get(3)
    look()
    assert seen == [(4, 3, 7)] * 3 + [(1, 3, 4)]


def test_calls_that_ended_together_are_taken_over_in_their_order_and_replaced_at_once() -> None:
    world = started(3, max_queued_fragments=6, credits_per_worker=2)
    for worker in (world.workers[2, 0], world.workers[0, 0], world.workers[2, 0]):
        worker.complete()
    before = world.fleet.stats()["fragments"]["requested"]
    world.fleet.handle(*world.news)
    world.news.clear()
    assert [f.worker_id for f in world.get(3)] == [2, 0, 2]
    # all have room again, and each worker its two calls
    stats = world.fleet.stats()
    assert stats["fragments"]["requested"] == before + 3
    assert [each["in_flight"] for each in stats["workers"]] == [2, 2, 2]
    assert_balanced(stats)
