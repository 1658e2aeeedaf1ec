# SPDX-License-Identifier: Apache-2.0
"""Learners that are Ray actors, each fed with its columns of every batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from counter_world import assert_balanced, weights

from rollouts import RolloutCoordinator
from rollouts.learner_shards import split_columns

pytestmark = pytest.mark.system


def test_actors_get_disjoint_columns_that_are_complete(
    ray_session: Any, counters: Callable[..., RolloutCoordinator]
) -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Learner:
        def __init__(self) -> None:
            self.seen: list[tuple[int, int, int]] = []

        def update(self, part: Any) -> int:
            env_id, seed, step = (part.obs[..., field].ravel() for field in (0, 1, 4))
            self.seen += zip(env_id.tolist(), seed.tolist(), step.tolist(), strict=True)
            return int(part.num_steps)

        def seen_steps(self) -> Any:
            return self.seen

    coordinator = counters()
    coordinator.publish_weights(weights())
    learners = [Learner.remote() for _ in range(2)]
    expected: list[tuple[int, int, int]] = []
    for _ in range(5):
        batch = coordinator.get(2, 300)
        expected += map(tuple, batch.obs[..., [0, 1, 4]].reshape(-1, 3).tolist())
        parts = split_columns(batch, 2)
        updates = [each.update.remote(part) for each, part in zip(learners, parts, strict=True)]
        assert sum(ray.get(updates, timeout=300)) == batch.num_steps
    seen = [ray.get(each.seen_steps.remote(), timeout=300) for each in learners]
    assert not set(seen[0]) & set(seen[1])
    assert sorted(seen[0] + seen[1]) == sorted(expected)
    assert len(set(expected)) == len(expected) == np.prod((5, 2, 8, 3))
    assert_balanced(coordinator.stats())
