# SPDX-License-Identifier: Apache-2.0
"""Return estimators over time-major rollouts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import RolloutBatch
from rollouts.errors import SpecError

FloatArray = NDArray[np.floating[Any]]


def gae(
    reward: FloatArray,
    value: FloatArray,
    *,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    bootstrap_value: FloatArray,
    last_value: FloatArray,
    gamma: float,
    gae_lambda: float,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Generalised advantage estimation, vectorised over B.

    The recursion stops where an episode ended. A terminated step has no future; a truncated one
    has the future that `bootstrap_value` estimates; the two together count as terminated.

    Args:
      reward           (T, B)
      value            (T, B)   V(obs[t])
      terminated       (T, B) bool
      truncated        (T, B) bool
      bootstrap_value  (T, B)   V(final_obs), read where truncated & ~terminated
      last_value       (B,)     V of the observation after row T - 1
      gamma:           discount per step
      gae_lambda:      0 is the one-step TD error, 1 the discounted return minus the baseline
    Returns:
      advantage        (T, B) float32
      target           (T, B) float32   advantage + value, what the value function should predict
      Sums run in float64, so that long rollouts lose nothing to rounding.
    Raises:
      SpecError: an array has another shape than (T, B) or (B,).
    Source: Schulman et al. 2016, "High-Dimensional Continuous Control Using GAE", equation 16.
    """
    _check_shapes(reward, value, terminated, truncated, bootstrap_value, last_value)
    baseline = value.astype(np.float64)
    ended = terminated | truncated

    # the value after each step: the next row's within an episode, the stand-in or 0 at its end
    next_value = np.concatenate([baseline[1:], last_value[None].astype(np.float64)])
    next_value = np.where(ended, np.where(terminated, 0.0, bootstrap_value), next_value)
    advantage = reward + gamma * next_value - baseline

    # what is left is the recursion, which nothing but time itself makes sequential
    decay = np.where(ended, 0.0, gamma * gae_lambda)
    for t in range(len(advantage) - 2, -1, -1):
        advantage[t] += decay[t] * advantage[t + 1]
    return advantage.astype(np.float32), (advantage + baseline).astype(np.float32)


def batch_gae(
    batch: RolloutBatch, *, gamma: float, gae_lambda: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Calls `gae` with the arrays of a rollout; returns the same."""
    return gae(
        batch.reward,
        batch.value,
        terminated=batch.terminated,
        truncated=batch.truncated,
        bootstrap_value=batch.bootstrap_value,
        last_value=batch.last_value,
        gamma=gamma,
        gae_lambda=gae_lambda,
    )


def _check_shapes(reward: FloatArray, *others: NDArray[Any]) -> None:
    *time_major, last_value = others
    if reward.ndim != 2:
        raise SpecError(f"reward has shape {reward.shape}, expected (T, B): time first")
    names = ("value", "terminated", "truncated", "bootstrap_value")
    for name, array in zip(names, time_major, strict=True):
        if array.shape != reward.shape:
            raise SpecError(f"{name} has shape {array.shape}, expected {reward.shape} as reward")
    if last_value.shape != reward.shape[1:]:
        raise SpecError(
            f"last_value has shape {last_value.shape}, expected {reward.shape[1:]}: one per column"
        )
