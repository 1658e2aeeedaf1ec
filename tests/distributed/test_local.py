# SPDX-License-Identifier: Apache-2.0
"""The coordinator with num_workers=0."""

from __future__ import annotations

from typing import Any

import pytest
from counter_world import (
    CounterCollector,
    assert_balanced,
    assert_exactly_once,
    make_policy,
    weights,
)

from rollouts import RolloutCoordinator
from rollouts.errors import ClosedError, ProtocolError, SpecError, WorkerError
from rollouts.workers import CollectOptions, Placement, QueueLimits


def local(**kwargs: Any) -> RolloutCoordinator:
    settings = {"num_workers": 0, "num_envs_per_worker": 3, "rollout_length": 4} | kwargs
    collect = CollectOptions(make_collector=CounterCollector)
    return RolloutCoordinator("Counter", make_policy, collect=collect, **settings)


def test_collects_when_asked_with_the_newest_weights() -> None:
    with local() as coordinator:
        fragments = []
        for version in (1, 2, 3):
            assert coordinator.publish_weights(weights()) == version
            fragments += coordinator.get_fragments(2)
            assert {f.min_policy_version for f in fragments[-2:]} == {version}
        assert_exactly_once(fragments)
        stats = coordinator.stats()
        assert_balanced(stats)
        assert stats["env_steps"]["delivered"] == 6 * 12
        assert stats["policy_lag"] == {"min": 0, "mean": 0.0, "max": 0}


def test_timeout_keeps_what_was_collected() -> None:
    with local() as coordinator:
        coordinator.publish_weights(weights())
        with pytest.raises(TimeoutError):
            coordinator.get(num_fragments=10**6, timeout_s=0.01)
        queued = coordinator.stats()["queue_depth"]
        assert queued > 0
        assert_exactly_once(coordinator.get_fragments(queued + 1))


def test_every_call_collects_at_least_one_fragment() -> None:
    with local() as coordinator:
        coordinator.publish_weights(weights())
        # however slow the machine is: a caller that asks again and again gets there
        for queued in (1, 2):
            with pytest.raises(TimeoutError):
                coordinator.get(num_fragments=4, timeout_s=0)
            assert coordinator.stats()["queue_depth"] == queued
        coordinator.get_fragments(3, timeout_s=0)


def test_error_is_a_worker_error_with_its_cause() -> None:
    with local(env_options={"fail": ((0,), 1)}) as coordinator:
        coordinator.publish_weights(weights())
        coordinator.get()
        for _ in range(2):
            with pytest.raises(WorkerError, match="the counter broke") as caught:
                coordinator.get()
            assert isinstance(caught.value.__cause__, ValueError)
        assert coordinator.stats()["fragments"]["interrupted"] == {"worker_error": 1}


def test_leftovers_above_the_lag_limit_are_dropped_and_replaced() -> None:
    with local(queue=QueueLimits(max_policy_lag=0)) as coordinator:
        coordinator.publish_weights(weights())
        with pytest.raises(TimeoutError):
            coordinator.get(num_fragments=10**6, timeout_s=0.01)
        queued = coordinator.stats()["fragments"]["queued"]
        coordinator.publish_weights(weights())
        (fragment,) = coordinator.get_fragments(1)
        assert fragment.min_policy_version == 2
        stats = coordinator.stats()
        assert_balanced(stats)
        assert stats["fragments"]["discarded"] == {"stale": queued}


def test_drained_coordinator_serves_what_is_left() -> None:
    with local() as coordinator:
        coordinator.publish_weights(weights())
        with pytest.raises(TimeoutError):
            coordinator.get(num_fragments=10**6, timeout_s=0.01)
        coordinator.drain()
        queued = coordinator.stats()["queue_depth"]
        assert len(coordinator.get_fragments(queued)) == queued
        with pytest.raises(ClosedError, match="drained"):
            coordinator.get()
        with pytest.raises(ProtocolError, match="num_workers=0"):
            coordinator.scale_to(1)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            {"num_workers": 2, "placement": Placement(max_workers=1)},
            r"placement\.max_workers is 1, expected at least num_workers=2",
        ),
        ({"placement": "PACK"}, r'is \'PACK\', .* such as placement=Placement\(strategy="PACK"\)'),
        ({"sync_mode": "lockstep"}, "sync_mode is 'lockstep'"),
    ],
)
def test_argument_out_of_range_is_an_error_at_once(argument: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        local(**argument)


def test_get_before_publish_and_after_close_are_errors() -> None:
    coordinator = local()
    with pytest.raises(ProtocolError, match="publish_weights"):
        coordinator.get()
    coordinator.close()
    coordinator.close()
    with pytest.raises(ClosedError):
        coordinator.get()
