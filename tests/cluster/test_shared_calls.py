# SPDX-License-Identifier: Apache-2.0
"""Fragments that share calls of real workers: each is delivered once or counted, whatever dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from counter_world import (
    StepChecker,
    assert_balanced,
    assert_exactly_once,
    wait_until,
    weights,
)

from rollouts import RolloutCoordinator
from rollouts.workers import QueueLimits

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0
# room for calls of 16
ROOM = QueueLimits(max_queued_fragments=128)

Counters = Callable[..., RolloutCoordinator]


def take_until_shared(coordinator: RolloutCoordinator, take: Callable[..., Any]) -> None:
    """Gives fragments to `take` until all workers run and calls bring two or more on average."""
    # nobody computes for nothing while another one starts
    wait_until(lambda: all(one["state"] == "running" for one in coordinator.stats()["workers"]))
    coordinator.publish_weights(weights())
    while True:
        before = coordinator.stats()
        take(*coordinator.get_fragments(32, TIMEOUT_S))
        after = coordinator.stats()
        num_calls = after["calls"] - before["calls"]
        num_fragments = after["fragments"]["requested"] - before["fragments"]["requested"]
        is_there = all(worker["state"] == "running" for worker in after["workers"])
        if is_there and 0 < 2 * num_calls <= num_fragments:
            return


def test_small_fragments_share_calls_and_come_once_and_in_order(counters: Counters) -> None:
    coordinator, checker = counters(queue=ROOM), StepChecker()
    take_until_shared(coordinator, checker.add)
    coordinator.drain(TIMEOUT_S)
    while depth := coordinator.stats()["queue_depth"]:
        checker.add(*coordinator.get_fragments(min(depth, 32), TIMEOUT_S))
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["fragments"]["delivered"] == stats["fragments"]["requested"]
    assert stats["fragments"]["delivered"] == checker.num_fragments and not checker.num_missing
    assert stats["calls"] < checker.num_fragments


def test_workers_that_are_killed_while_fragments_share_calls_lose_none_of_the_count(
    counters: Counters,
) -> None:
    coordinator, checker = counters(queue=ROOM), StepChecker()
    take_until_shared(coordinator, checker.add)
    for worker in coordinator.stats()["workers"]:
        os.kill(worker["pid"], signal.SIGKILL)
    while not all(worker["incarnation"] for worker in coordinator.stats()["workers"]):
        checker.add(*coordinator.get_fragments(1, TIMEOUT_S))
        assert_balanced(coordinator.stats())
    # both go on, and share calls again
    take_until_shared(coordinator, checker.add)
    stats = coordinator.stats()
    assert_balanced(stats)
    assert checker.num_missing == 0
    assert checker.num_steps == stats["env_steps"]["delivered"]
    assert stats["failures"] == {"worker_died": 2}
    assert set(stats["fragments"]["interrupted"]) == {"worker_died"}
    assert stats["fragments"]["discarded"] == {}


def test_what_comes_before_an_error_in_a_shared_call_is_delivered(
    counters: Counters, tmp_path: Path
) -> None:
    order = tmp_path / "fail"
    coordinator = counters(num_workers=1, queue=ROOM, env_options={"fail_once": str(order)})
    fragments: list[Any] = []
    take_until_shared(coordinator, lambda *more: fragments.extend(more))
    order.touch()
    while not any(one.incarnation for one in fragments):
        fragments += coordinator.get_fragments(1, TIMEOUT_S)
    assert_exactly_once(fragments)
    assert sum(one.incarnation == 0 for one in fragments) == int(order.read_text())
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["failures"] == {"worker_error": 1}
    assert stats["calls"] < stats["fragments"]["requested"]


def test_arrays_of_a_shared_call_are_fetched_one_by_one(counters: Counters) -> None:
    coordinator, checker = counters(queue=ROOM), StepChecker()
    take_until_shared(coordinator, checker.add)
    handles = coordinator.get_pending(32, TIMEOUT_S)
    coordinator.close()
    # what was completed outlives its worker
    checker.add(*(handle.resolve(TIMEOUT_S) for handle in handles))
    assert not checker.num_missing
