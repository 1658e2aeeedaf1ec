# SPDX-License-Identifier: Apache-2.0
"""LearnerQueue: order, exactly once, waiting, ways out, and the account."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from fragments import make_handle

from rollouts.errors import ClosedError, ProtocolError, SpecError, WorkerError
from rollouts.learner.fragment import Fragment
from rollouts.learner.queue import LearnerQueue

TIMEOUT_S = 120.0


def seq_nos(fragments: list[Fragment]) -> list[int]:
    return [fragment.seq_no for fragment in fragments]


def assert_balanced(queue: LearnerQueue) -> dict[str, Any]:
    stats = queue.stats()
    for account in (stats["env_steps"], stats["fragments"]):
        discarded = sum(account["discarded"].values())
        assert account["produced"] == account["delivered"] + account["queued"] + discarded
    return stats


def in_thread(function: Callable[[], Any]) -> Future[Any]:
    """Runs `function` on another thread."""
    executor = ThreadPoolExecutor(1)
    future = executor.submit(function)
    executor.shutdown(wait=False)
    return future


def test_get_returns_fragments_in_order_of_arrival() -> None:
    queue = LearnerQueue(4)
    arrivals = [make_handle(0, 1), make_handle(0, 0), make_handle(1, 0), make_handle(1, 1)]
    for handle in arrivals:
        assert queue.put(handle)
    assert [f.info for f in queue.get(3)] == [handle.info for handle in arrivals[:3]]
    stats = assert_balanced(queue)
    assert stats["queue_depth"] == 1
    assert stats["env_steps"] == {"produced": 40, "delivered": 30, "queued": 10, "discarded": {}}


def test_repeated_fragment_is_refused_and_counted() -> None:
    queue = LearnerQueue(4)
    queue.put(make_handle(0))
    queue.put(make_handle(1))
    assert not queue.put(make_handle(0))
    assert seq_nos(queue.get(2)) == [0, 1]
    # also when it was delivered long ago
    assert not queue.put(make_handle(1))
    assert assert_balanced(queue)["fragments"]["discarded"] == {"duplicate": 2}


def test_missing_fragment_is_an_error() -> None:
    queue = LearnerQueue(4)
    queue.put(make_handle(0))
    with pytest.raises(ProtocolError, match="delivered fragment 2, expected 1"):
        queue.put(make_handle(2))
    assert assert_balanced(queue)["env_steps"]["discarded"] == {"out_of_order": 10}


def test_new_incarnation_starts_counting_again() -> None:
    queue = LearnerQueue(4)
    queue.put(make_handle(0))
    queue.put(make_handle(0, incarnation=2))
    queue.put(make_handle(1, incarnation=2))
    # the former life is over
    assert not queue.put(make_handle(1))
    assert queue.stats()["fragments"]["discarded"] == {"duplicate": 1}


def test_put_waits_for_room() -> None:
    queue = LearnerQueue(1)
    queue.put(make_handle(0))
    with pytest.raises(TimeoutError, match="expected the learner to take some"):
        queue.put(make_handle(1), timeout_s=0)
    waiting = in_thread(lambda: queue.put(make_handle(1), TIMEOUT_S))
    assert seq_nos(queue.get()) == [0]
    assert waiting.result(TIMEOUT_S)
    assert seq_nos(queue.get()) == [1]


def test_get_waits_until_all_are_there() -> None:
    queue = LearnerQueue(2)
    queue.put(make_handle(0))
    with pytest.raises(TimeoutError, match="1 of 2"):
        queue.get(2, timeout_s=0)
    waiting = in_thread(lambda: queue.get(2, TIMEOUT_S))
    queue.put(make_handle(1))
    assert seq_nos(waiting.result(TIMEOUT_S)) == [0, 1]


def test_get_of_more_than_capacity_is_an_error() -> None:
    with pytest.raises(SpecError, match="expected 1 to 2"):
        LearnerQueue(2).get(3)


def test_wanting_and_taking_are_reported_before_the_arrays_travel() -> None:
    events: list[str] = []
    queue = LearnerQueue(1, on_change=lambda: events.append("change"))
    queue.put(make_handle(0, on_resolve=lambda: events.append("resolve")))
    queue.get()
    assert events == ["change", "change", "resolve"]


def test_lost_fragment_is_counted_and_replaced() -> None:
    def lose() -> None:
        raise WorkerError("node lost")

    queue = LearnerQueue(4)
    queue.put(make_handle(0))
    queue.put(make_handle(1, on_resolve=lose))
    queue.put(make_handle(2))
    assert seq_nos(queue.get(2)) == [0, 2]
    assert assert_balanced(queue)["fragments"]["discarded"] == {"lost": 1}


def test_slow_arrays_go_back_to_the_front_on_timeout() -> None:
    is_slow = True

    def wait() -> None:
        if is_slow:
            raise TimeoutError

    queue = LearnerQueue(3)
    for handle in (make_handle(0), make_handle(1, on_resolve=wait), make_handle(2)):
        queue.put(handle)
    with pytest.raises(TimeoutError):
        queue.get(2, timeout_s=0)
    assert assert_balanced(queue)["fragments"]["queued"] == 3
    is_slow = False
    assert seq_nos(queue.get(3)) == [0, 1, 2]


def test_interrupted_get_loses_nothing() -> None:
    interrupts = [KeyboardInterrupt()]

    def interrupt() -> None:
        if interrupts:
            raise interrupts.pop()

    queue = LearnerQueue(2)
    queue.put(make_handle(0))
    queue.put(make_handle(1, on_resolve=interrupt))
    with pytest.raises(KeyboardInterrupt):
        queue.get(2)
    assert seq_nos(queue.get(2)) == [0, 1]
    assert assert_balanced(queue)["fragments"]["delivered"] == 2


def test_fail_serves_what_is_there_first() -> None:
    queue = LearnerQueue(2)
    queue.put(make_handle(0))
    queue.fail(WorkerError("no worker is left"))
    assert seq_nos(queue.get()) == [0]
    for _ in range(2):
        with pytest.raises(WorkerError, match="no worker is left"):
            queue.get()
    with pytest.raises(ClosedError):
        queue.put(make_handle(1))


def test_fail_wakes_get() -> None:
    queue = LearnerQueue(1)
    waiting = in_thread(queue.get)
    queue.fail(WorkerError("no worker is left"))
    assert isinstance(waiting.exception(TIMEOUT_S), WorkerError)


def test_close_wakes_get_and_put() -> None:
    empty = LearnerQueue(1)
    full = LearnerQueue(1)
    full.put(make_handle(0))
    waiting = [in_thread(empty.get), in_thread(lambda: full.put(make_handle(1)))]
    empty.close()
    full.close()
    full.close()
    for each in waiting:
        assert isinstance(each.exception(TIMEOUT_S), ClosedError)
    assert assert_balanced(full)["fragments"]["discarded"] == {"closed": 1}


def test_close_while_arrays_travel_is_seen() -> None:
    travelling = threading.Event()

    def travel() -> None:
        travelling.set()
        raise TimeoutError

    queue = LearnerQueue(1)
    queue.put(make_handle(0, on_resolve=travel))
    waiting = in_thread(queue.get)
    assert travelling.wait(TIMEOUT_S)
    queue.close()
    assert isinstance(waiting.exception(TIMEOUT_S), ClosedError)
    assert assert_balanced(queue)["fragments"]["discarded"] == {"closed": 1}


def test_many_producers_and_consumers_deliver_each_fragment_once() -> None:
    queue = LearnerQueue(3)

    def produce(worker_id: int) -> None:
        for seq_no in range(50):
            queue.put(make_handle(seq_no, worker_id), TIMEOUT_S)

    def consume() -> list[Fragment]:
        return [fragment for _ in range(50) for fragment in queue.get(2, TIMEOUT_S)]

    with ThreadPoolExecutor(6) as executor:
        producers = [executor.submit(produce, worker_id) for worker_id in range(4)]
        consumers = [executor.submit(consume) for _ in range(2)]
        taken = [f for consumer in consumers for f in consumer.result(TIMEOUT_S)]
        for producer in producers:
            producer.result(TIMEOUT_S)
    assert {(f.worker_id, f.seq_no) for f in taken} == {(w, s) for w in range(4) for s in range(50)}
    assert len(taken) == 200
    assert assert_balanced(queue)["env_steps"]["delivered"] == 2000


def test_admitting_never_waits() -> None:
    queue = LearnerQueue(1)
    assert queue.admit(make_handle(0)) and queue.admit(make_handle(1))
    assert not queue.admit(make_handle(0))
    queue.close()
    with pytest.raises(ClosedError):
        queue.admit(make_handle(2))
    assert assert_balanced(queue)["fragments"]["discarded"] == {"duplicate": 1, "closed": 2}


def test_refused_fragments_are_counted() -> None:
    queue = LearnerQueue(1)
    queue.close()
    queue.refuse(make_handle(0), "closed")
    assert assert_balanced(queue)["env_steps"]["discarded"] == {"closed": 10}


def test_stale_fragments_are_dropped_and_replaced_in_get() -> None:
    newest = 1
    queue = LearnerQueue(4, is_stale=lambda handle: newest - handle.info.min_policy_version > 1)
    for seq_no in range(2):
        queue.put(make_handle(seq_no, min_policy_version=seq_no))
    newest = 2
    with pytest.raises(TimeoutError, match="1 of 2"):
        queue.get(2, timeout_s=0)
    assert assert_balanced(queue)["fragments"]["discarded"] == {"stale": 1}
    queue.put(make_handle(2, min_policy_version=2))
    assert seq_nos(queue.get(2)) == [1, 2]


def test_levels_say_what_a_waiting_get_lacks() -> None:
    levels: list[tuple[int, ...]] = []
    queue = LearnerQueue(3, on_change=lambda: levels.append(queue.levels()))
    queue.put(make_handle(0))
    queue.put(make_handle(1))
    queue.get(2)
    with pytest.raises(TimeoutError):
        queue.get(3, timeout_s=0)
    assert queue.levels() == (3, 0, 0, 2, 0)
    # capacity, depth, wanted, num_taken, held: wanting, having taken, wanting again
    assert levels == [(3, 2, 2, 0, 0), (3, 0, 0, 2, 2), (3, 0, 3, 2, 0)]


def test_losing_a_fragment_is_reported_as_wanting_another() -> None:
    def lose() -> None:
        raise WorkerError("node lost")

    wanted: list[int] = []
    queue = LearnerQueue(2, on_change=lambda: wanted.append(queue.levels().wanted))
    queue.put(make_handle(0, on_resolve=lose))
    with pytest.raises(TimeoutError):
        queue.get(1, timeout_s=0)
    assert wanted == [1, 0, 1]
    assert queue.levels().num_taken == 0


def test_waiting_get_keeps_its_room_when_the_capacity_shrinks() -> None:
    queue = LearnerQueue(3)
    wanting = threading.Event()
    queue._on_change = wanting.set
    waiting = in_thread(lambda: queue.get(3, TIMEOUT_S))
    assert wanting.wait(TIMEOUT_S)
    queue.capacity = 1
    for seq_no in range(3):
        queue.put(make_handle(seq_no), timeout_s=0)
    assert len(waiting.result(TIMEOUT_S)) == 3
    with pytest.raises(SpecError, match="capacity is 0"):
        queue.capacity = 0


def test_recovered_queue_accepts_and_serves_again() -> None:
    queue = LearnerQueue(1)
    assert not queue.wait_until_over(0)
    queue.fail(WorkerError("no worker is left"))
    assert queue.wait_until_over(TIMEOUT_S)
    queue.recover()
    queue.put(make_handle(0))
    assert seq_nos(queue.get()) == [0]


def test_handles_are_delivered_with_their_arrays_left_where_they_are() -> None:
    queue = LearnerQueue(4)

    def refuse() -> None:
        raise AssertionError("nobody asked for the arrays")

    handle = make_handle(0, on_resolve=refuse)
    queue.put(handle)
    assert queue.get_handles() == [handle]
    assert assert_balanced(queue)["fragments"]["delivered"] == 1
    with pytest.raises(TimeoutError):
        queue.get_handles(1, timeout_s=0.0)
