# SPDX-License-Identifier: Apache-2.0
"""The arrays that `VectorEnv.collect` writes, made anew for each rollout."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_DTYPES: dict[str, npt.DTypeLike] = {
    "reward": np.float32,
    "log_prob": np.float32,
    "value": np.float32,
    "bootstrap_value": np.float32,
    "terminated": np.bool_,
    "truncated": np.bool_,
    "episode_return": np.float64,
    "episode_length": np.int32,
}


def step_arrays(pool: Any, num_steps: int) -> dict[str, Array]:
    """Makes the arrays of steps and their actions, each (T, N, ...)."""
    shape = (num_steps, pool.num_envs)
    space = pool.single_action_space
    arrays: dict[str, Array] = {name: np.empty(shape, dtype) for name, dtype in _DTYPES.items()}
    arrays["action"] = np.empty((*shape, *(space.shape or ())), space.dtype)
    return arrays


def rollout_arrays(pool: Any, num_steps: int, num_inputs: int) -> dict[str, Array]:
    """Makes a rollout's arrays: obs (T + 1, N, ...), inputs (T, N, num_inputs), last_value (N,)."""
    num_envs, space = pool.num_envs, pool.single_observation_space
    return step_arrays(pool, num_steps) | {
        "obs": np.empty((num_steps + 1, num_envs, *space.shape), space.dtype),
        "inputs": np.empty((num_steps, num_envs, num_inputs), np.float32),
        "last_value": np.empty(num_envs, np.float32),
    }
