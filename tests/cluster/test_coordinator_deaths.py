# SPDX-License-Identifier: Apache-2.0
"""A coordinator in a process of its own that dies, and another one in its place."""

from __future__ import annotations

import os
import sys
from typing import Any

import psutil
import pytest
from counter_world import assert_exactly_once, wait_until

from rollouts.workers import Fragment

pytest.importorskip("ray")

pytestmark = pytest.mark.system


def make_host(seed: int, first_version: int) -> Any:
    """Starts an actor that has a coordinator of counter worlds, with two workers."""
    import ray

    # local, so that it comes by value and takes over the path before it imports
    class Host:
        def __init__(self, path: list[str], seed: int, first_version: int) -> None:
            sys.path[:] = path
            from counter_world import CounterCollector, make_policy

            from rollouts import RolloutCoordinator
            from rollouts.workers import CollectOptions, Placement, WeightTransport

            self.coordinator: Any = RolloutCoordinator(
                "Counter",
                make_policy,
                num_workers=2,
                num_envs_per_worker=3,
                rollout_length=8,
                seed=seed,
                placement=Placement(num_cpus=0.25),
                weights=WeightTransport(first_version=first_version),
                collect=CollectOptions(make_collector=CounterCollector),
            )

        def take(self, num_fragments: int) -> tuple[list[Fragment], int, list[int]]:
            """Publishes and takes; returns the version and the workers' pids, too."""
            from counter_world import weights

            version = self.coordinator.publish_weights(weights())
            fragments = self.coordinator.get_fragments(num_fragments, timeout_s=300)
            workers = self.coordinator.stats()["workers"]
            return fragments, version, [one["pid"] for one in workers if one["pid"]]

    path = [os.path.abspath(entry) for entry in sys.path]
    return ray.remote(num_cpus=0)(Host).remote(path, seed, first_version)


def test_workers_end_with_their_coordinator_and_another_one_goes_on(ray_session: Any) -> None:
    import ray

    first = make_host(seed=1, first_version=1)
    fragments, version, pids = ray.get(first.take.remote(4), timeout=600)
    assert_exactly_once(fragments)
    ray.kill(first)
    # Ray ends the actors of a process that died
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))

    second = make_host(seed=2, first_version=version + 1)
    later, newer, _ = ray.get(second.take.remote(4), timeout=600)
    ray.kill(second)
    assert newer == version + 1
    assert {one.min_policy_version for one in later} == {newer}
    # workers have the same numbers again, but with another seed no episode is played twice
    assert_exactly_once(later)
    seeds = [{int(one.batch.obs[0, 0, 1]) for one in life} for life in (fragments, later)]
    assert not seeds[0] & seeds[1]
