# SPDX-License-Identifier: Apache-2.0
"""Rollouts with random numbers in every column."""

from __future__ import annotations

import numpy as np

from rollouts.batch import RolloutBatch


def make_batch(steps: int, envs: int, *, seed: int = 0) -> RolloutBatch:
    rng = np.random.default_rng(seed)
    shape = (steps, envs)
    return RolloutBatch(
        obs=rng.integers(0, 255, (*shape, 2, 3), np.uint8),
        action=rng.integers(0, 4, shape),
        reward=rng.random(shape, np.float32),
        terminated=rng.random(shape) < 0.2,
        truncated=rng.random(shape) < 0.2,
        bootstrap_value=rng.random(shape, np.float32),
        log_prob=rng.random(shape, np.float32),
        value=rng.random(shape, np.float32),
        last_obs=rng.integers(0, 255, (envs, 2, 3), np.uint8),
        last_value=rng.random(envs, np.float32),
        policy_version=rng.integers(0, 9, shape),
        env_id=np.arange(envs, dtype=np.int32),
        episode_return=rng.random(shape),
        episode_length=rng.integers(1, 9, shape, np.int32),
        extras={"hidden": rng.random((*shape, 5))},
    )
