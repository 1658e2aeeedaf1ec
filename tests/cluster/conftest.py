# SPDX-License-Identifier: Apache-2.0
"""Coordinators and replay services in the Ray that tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from counter_world import CounterCollector, make_policy, wait_until, weights
from replay_world import Start, make_coordinator, make_service
from warm_workers import use_warm_workers

from rollouts import RolloutCoordinator
from rollouts.replay import ReplayService
from rollouts.workers import CollectOptions


@pytest.fixture(scope="session", autouse=True)
def warm_workers() -> None:
    """Tests that start a Ray of their own have its workers quickly."""
    use_warm_workers()


@pytest.fixture
def counters(ray_session: Any) -> Iterator[Callable[..., RolloutCoordinator]]:
    """Makes coordinators of counter worlds in the shared Ray, and closes them."""
    opened = []

    def start(**kwargs: Any) -> RolloutCoordinator:
        settings = {"num_workers": 2, "num_envs_per_worker": 3, "rollout_length": 8} | kwargs
        collect = CollectOptions(make_collector=CounterCollector)
        coordinator = RolloutCoordinator("Counter", make_policy, collect=collect, **settings)
        opened.append(coordinator)
        return coordinator

    yield start
    for coordinator in opened:
        coordinator.close()


@pytest.fixture
def start(ray_session: Any) -> Iterator[Start]:
    """Makes a coordinator and a service over it in the shared Ray, and closes both.

    Workers begin together: otherwise the items of one that starts late would be few beside those of
    the others, and a batch might have none of them.
    """
    opened: list[Any] = []

    def make(
        coordinator: dict[str, Any] | None = None, **service: Any
    ) -> tuple[RolloutCoordinator, ReplayService]:
        opened.append(make_coordinator(**(coordinator or {})))
        opened.append(make_service(opened[-1], **service))
        workers = opened[-2]
        wait_until(lambda: all(one["state"] == "running" for one in workers.stats()["workers"]))
        workers.publish_weights(weights())
        return workers, opened[-1]

    yield make
    for each in reversed(opened):
        each.close()
