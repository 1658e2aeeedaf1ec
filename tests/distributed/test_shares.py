# SPDX-License-Identifier: Apache-2.0
"""A coordinator's share of the workers: its numbers, its thread, its reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from acted_worker import ActedWorker, worker_config
from counter_world import WAIT_S, wait_until, weights

from rollouts.workers import FaultPolicy, QueueLimits
from rollouts.workers.call_size import share_of
from rollouts.workers.fleet import FleetRules
from rollouts.workers.lag import LagRule
from rollouts.workers.offers import WeightOffer
from rollouts.workers.share import (
    INCARNATIONS_PER_LIFE,
    WorkerShare,
    driver_rules,
    share_config,
    share_rules,
    share_size,
)
from rollouts.workers.slot import NO_WORKER
from rollouts.workers.worker_config import WorkerConfig

RULES = FleetRules(faults=FaultPolicy(max_restarts=0, start_timeout_s=3.0, hang_timeout_s=2.0))


class Share:
    """The second of three coordinators in its third life, on its own thread."""

    def __init__(self) -> None:
        self.workers: list[ActedWorker] = []
        config = share_config(replace(worker_config(), worker_id=1, incarnation=2))
        self.share = WorkerShare(config, 2, self.launch, rules=share_rules(RULES, 3))

    def launch(self, config: WorkerConfig) -> ActedWorker:
        self.workers.append(ActedWorker(config))
        return self.workers[-1]

    def ask(self, number: int, num_fragments: int, version: int | None = None) -> Any:
        offer = None if version is None else WeightOffer.of(version, weights())
        return self.share.ask(number, num_fragments, offer)


@pytest.fixture
def world() -> Any:
    made = Share()
    yield made
    made.share.close()


def test_workers_are_shared_out_one_by_one() -> None:
    sizes = [share_size(8, 3, number) for number in range(3)]
    assert sizes == [3, 3, 2]
    # calls of all coordinators together cover what may be in flight
    assert [share_of(limit, 2) for limit in (1, 8, 9, 64)] == [1, 1, 2, 8]


def test_workers_have_their_numbers_of_all_and_incarnations_of_their_life(world: Share) -> None:
    configs = [worker.config for worker in world.workers]
    assert [config.worker_id for config in configs] == [1, 4]
    assert {config.incarnation for config in configs} == {2 * INCARNATIONS_PER_LIFE}
    rows = world.share.report()["workers"]
    assert [row["worker_id"] for row in rows] == [1, 4]


def test_nothing_is_collected_but_what_was_asked_for(world: Share) -> None:
    first, second = world.workers
    answer = world.ask(0, 3, version=5)
    first.appear()
    second.appear()
    wait_until(lambda: len(first.calls) + len(second.calls) == 3)
    for worker in world.workers:
        while worker.is_open:
            worker.complete()
    handles = answer.result(timeout=WAIT_S).handles
    assert len(handles) == 3
    assert {handle.info.min_policy_version for handle in handles} == {5}
    fragments = world.share.report()["fragments"]
    assert fragments["requested"] == fragments["delivered"] == 3


def test_calls_are_answered_in_the_order_of_their_numbers(world: Share) -> None:
    first, _ = world.workers
    later = world.ask(1, 1)
    answer = world.ask(0, 1, version=1)
    first.appear()
    wait_until(lambda: len(first.calls) == 2)
    first.complete()
    assert answer.result(timeout=WAIT_S).handles[0].info.seq_no == 0
    assert not later.done()
    first.complete()
    assert later.result(timeout=WAIT_S).handles[0].info.seq_no == 1


def test_without_workers_calls_bring_what_came_and_the_reason(world: Share) -> None:
    first, second = world.workers
    answer, later = world.ask(0, 2, version=1), world.ask(1, 1)
    first.appear()
    wait_until(lambda: len(first.calls) == 2)
    first.complete()
    first.die()
    second.die()
    found = answer.result(timeout=WAIT_S)
    assert [handle.info.seq_no for handle in found.handles] == [0]
    assert found.failure is not None and found.failure.reason == NO_WORKER
    assert "no worker is left" in found.failure.message
    assert later.result(timeout=WAIT_S).failure is not None
    report = world.share.take_news()
    assert report is not None and report["failures"] == {"worker_died": 2}
    assert report["fragments"]["interrupted"] == {"worker_died": 1}
    # nothing failed since
    assert world.share.take_news() is None


def test_a_share_leaves_age_to_the_driver_and_size_of_calls_too() -> None:
    limited = replace(RULES, lag=LagRule(2, "drop"), queue=QueueLimits(max_policy_lag=2))
    rules = share_rules(limited, 2)
    assert rules.on_demand and rules.lag == LagRule()
    # with a limit on the lag each fragment has a call of its own, whatever leads the worker
    assert rules.most_per_call == limited.most_per_call == 1


def test_a_coordinator_is_late_when_its_workers_should_have_been_given_up() -> None:
    faults = replace(RULES.faults, max_restarts=3)
    assert driver_rules(replace(RULES, faults=faults), 8).faults.hang_timeout_s == 4 * (3.0 + 2.0)
    patient = replace(RULES, faults=replace(faults, hang_timeout_s=None))
    assert driver_rules(patient, 8).faults.hang_timeout_s is None
