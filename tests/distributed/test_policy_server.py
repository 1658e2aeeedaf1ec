# SPDX-License-Identifier: Apache-2.0
"""Batching of policy requests, without Ray."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inference_world import SumPolicy

from rollouts.errors import SpecError
from rollouts.workers.offers import WeightOffer
from rollouts.workers.policy_requests import BatchRule, PolicyRequest, Reply, RequestQueue
from rollouts.workers.policy_server import PolicyServer

TIMEOUT_S = 300
FOREVER_S = 3600.0


def request(rows: int, kind: str = "act", first: float = 0.0) -> PolicyRequest:
    obs = np.zeros((rows, 2), np.float32)
    obs[:, 0] = first + np.arange(rows)
    return PolicyRequest(kind, obs)


def queue(**rule: Any) -> RequestQueue:
    return RequestQueue(BatchRule(**rule))


def sizes(batch: list[tuple[PolicyRequest, Any]]) -> list[int]:
    return [len(each.obs) for each, _ in batch]


def test_enough_rows_make_a_batch_at_once() -> None:
    requests = queue(min_rows=5, timeout_s=1)
    assert requests.wait_s(0) is None
    requests.add(request(4), Future(), 10.0)
    assert requests.wait_s(10.0) == 1.0
    requests.add(request(1), Future(), 10.5)
    assert requests.wait_s(10.5) == 0
    assert sizes(requests.take()) == [4, 1]
    assert requests.wait_s(11) is None


def test_batch_is_due_when_its_oldest_request_waited_the_timeout() -> None:
    requests = queue(min_rows=100, timeout_s=2)
    requests.add(request(1), Future(), 10.0)
    requests.add(request(1), Future(), 11.5)
    assert requests.wait_s(11.75) == 0.25
    assert requests.wait_s(12.0) == requests.wait_s(99.0) == 0
    assert sizes(requests.take()) == [1, 1]


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=30),
    st.integers(1, 10),
)
def test_batches_keep_order_and_size_and_lose_nothing(rows: list[int], max_rows: int) -> None:
    requests = queue(max_rows=max_rows)
    added = [request(n) for n in rows]
    for each in added:
        requests.add(each, Future(), 0)
    taken = []
    while requests.wait_s(0) is not None:
        batch = requests.take()
        assert sum(sizes(batch)) <= max_rows or len(batch) == 1
        # the next one did not fit
        left = added[len(taken) + len(batch) :]
        assert not left or sum(sizes(batch)) + len(left[0].obs) > max_rows
        taken += [each for each, _ in batch]
    assert [id(each) for each in taken] == [id(each) for each in added]


@pytest.mark.parametrize(
    "rule",
    [
        {"min_rows": 0},
        {"min_rows": 9, "max_rows": 8},
        {"timeout_s": -1.0},
        {"timeout_s": float("nan")},
        # no lock can wait for so long
        {"timeout_s": float("inf")},
        {"timeout_s": 1e10},
    ],
)
def test_rule_that_cannot_work_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="expected"):
        BatchRule(**rule)


class World:
    """Servers of a SumPolicy that are closed after the test."""

    def __init__(self) -> None:
        self.policy = SumPolicy()
        self.servers: list[PolicyServer] = []

    def serve(self, **rule: Any) -> PolicyServer:
        server = PolicyServer(self.policy, BatchRule(**rule))
        self.servers.append(server)
        return server


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for server in world.servers:
        server.close()


def answer(future: Future[Reply]) -> Reply:
    reply = future.result(TIMEOUT_S)
    assert reply.failure is None and not reply.needs_offer
    return reply


def test_requests_share_one_forward_pass_and_each_gets_its_rows(world: World) -> None:
    server = world.serve(min_rows=6, timeout_s=FOREVER_S)
    futures = [server.submit(request(rows, first=10 * rows)) for rows in (1, 2, 3)]
    for rows, future in zip((1, 2, 3), futures, strict=True):
        expected = 10 * rows + np.arange(rows)
        arrays = answer(future).arrays
        np.testing.assert_array_equal(arrays["action"], expected)
        np.testing.assert_array_equal(arrays["log_prob"], -expected)
        np.testing.assert_array_equal(arrays["extras.twice"], 2 * expected)
    assert world.policy.batches == [6]
    expected_counts = {"requests": 3, "batches": 1, "forward_passes": 1, "rows": 6}
    assert server.stats() == {**expected_counts, "policy_version": 0}


def test_kinds_of_one_batch_take_a_pass_each(world: World) -> None:
    server = world.serve(min_rows=6, timeout_s=FOREVER_S)
    futures = [server.submit(request(2, kind)) for kind in ("value", "act", "value")]
    assert [set(answer(future).arrays) for future in futures] == [
        {"value"},
        {"action", "log_prob", "value", "extras.twice"},
        {"value"},
    ]
    assert world.policy.batches == [2, 4]


def test_too_few_rows_are_answered_after_the_timeout(world: World) -> None:
    server = world.serve(min_rows=100, timeout_s=0.01)
    assert len(answer(server.submit(request(3))).arrays["action"]) == 3


def test_requests_gather_while_a_batch_runs(world: World) -> None:
    entered, go = threading.Event(), threading.Event()
    act = world.policy.act

    def slow(obs: np.ndarray) -> Any:
        entered.set()
        assert go.wait(TIMEOUT_S)
        return act(obs)

    world.policy.act = slow  # type: ignore[method-assign]
    server = world.serve(timeout_s=0)
    futures = [server.submit(request(1))]
    assert entered.wait(TIMEOUT_S)
    futures += [server.submit(request(1)) for _ in range(4)]
    go.set()
    for future in futures:
        answer(future)
    assert world.policy.batches == [1, 4]


def test_newer_weights_are_taken_over_between_batches(world: World) -> None:
    server = world.serve()
    for version in (3, 7):
        server.offer(WeightOffer.of(version, {"offset": np.array([version])}))
        server.offer(WeightOffer.of(2, {"offset": np.array([-1.0])}))  # not newer
        reply = answer(server.submit(request(1), version))
        assert (reply.policy_version, reply.arrays["value"][0]) == (version, version)
    assert answer(server.submit(request(0, "weights"))).arrays["offset"] == [7]


def test_unknown_version_is_asked_for(world: World) -> None:
    server = world.serve()
    assert server.submit(request(1), 5).result(TIMEOUT_S).needs_offer
    server.offer(WeightOffer.of(5, {"offset": np.array([5])}))
    assert answer(server.submit(request(1), 5)).policy_version == 5


def test_failure_of_the_policy_reaches_the_batch_and_no_other(world: World) -> None:
    server = world.serve()
    failure = server.submit(request(1, first=666)).result(TIMEOUT_S).failure
    assert failure is not None and "the beast" in failure.traceback
    assert answer(server.submit(request(1))).arrays["value"][0] == 0


def test_weights_that_cannot_be_loaded_are_a_failure_and_the_old_ones_stay(world: World) -> None:
    server = world.serve()
    server.offer(WeightOffer.of(4, {"wrong": np.array([1])}))
    failure = server.submit(request(1), 4).result(TIMEOUT_S).failure
    assert failure is not None and "'offset'" in failure.message
    assert server.submit(request(1), 4).result(TIMEOUT_S).needs_offer
    assert answer(server.submit(request(1))).policy_version == 0


def test_observations_of_another_kind_are_refused(world: World) -> None:
    server = world.serve()
    answer(server.submit(request(1)))
    for obs in (np.zeros((1, 3), np.float32), np.zeros((1, 2), np.float64)):
        failure = server.submit(PolicyRequest("act", obs)).result(TIMEOUT_S).failure
        assert failure is not None and "expected float32 (2,)" in failure.message


def test_policy_that_returns_too_few_rows_is_a_failure(world: World) -> None:
    world.policy.value = lambda obs: np.zeros(1, np.float32)  # type: ignore[method-assign]
    failure = world.serve().submit(request(3, "value")).result(TIMEOUT_S).failure
    assert failure is not None and "1 rows of value for 3" in failure.message


def test_close_refuses_what_waits_and_what_comes(world: World) -> None:
    server = world.serve(min_rows=100, timeout_s=FOREVER_S)
    waiting = server.submit(request(1))
    server.close()
    for future in (waiting, server.submit(request(1))):
        failure = future.result(TIMEOUT_S).failure
        assert failure is not None and "closed" in failure.message
    assert not server._thread.is_alive()


def test_end_of_the_thread_refuses_what_was_asked_and_what_comes(world: World) -> None:
    entered, go = threading.Event(), threading.Event()

    def leave(obs: np.ndarray) -> Any:
        entered.set()
        assert go.wait(TIMEOUT_S)
        raise SystemExit("the policy ends the thread")

    world.policy.act = leave  # type: ignore[method-assign]
    server = world.serve(timeout_s=0)
    running = server.submit(request(1))
    assert entered.wait(TIMEOUT_S)
    waiting = server.submit(request(1))
    go.set()
    for future in (running, waiting):
        failure = future.result(TIMEOUT_S).failure
        assert failure is not None and "the policy ends the thread" in failure.traceback
    failure = server.submit(request(1)).result(TIMEOUT_S).failure
    assert failure is not None and "the policy ends the thread" in failure.traceback
