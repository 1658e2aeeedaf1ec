# SPDX-License-Identifier: Apache-2.0
"""Helpers for single steps: some of their rows, and the bounds of their actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.batch import StepBatch

Array = NDArray[Any]


def cut_off(step: StepBatch) -> NDArray[np.bool_]:
    """Returns (B,) where an episode was truncated, not terminated, and has a final observation."""
    cut = step.truncated & ~step.terminated
    # a failed environment has no final observation
    return cut & ~step.info["_env_error"] if "_env_error" in step.info else cut


def least_advanced(
    waiting: NDArray[np.bool_], next_row: NDArray[np.intp], count: int
) -> NDArray[np.intp]:
    """Chooses at most `count` of the waiting environments (N,), those with fewest rows first."""
    rows = np.flatnonzero(waiting)
    return rows[np.argsort(next_row[rows], kind="stable")[: max(count, 0)]]


def select(step: StepBatch, mask: NDArray[np.bool_]) -> StepBatch:
    """Returns the rows of a step where `mask` (B,) holds."""
    return StepBatch(
        obs=step.obs[mask],
        reward=step.reward[mask],
        terminated=step.terminated[mask],
        truncated=step.truncated[mask],
        env_id=step.env_id[mask],
        episode_return=step.episode_return[mask],
        episode_length=step.episode_length[mask],
        final_obs=None if step.final_obs is None else step.final_obs[mask],
        info={name: values[mask] for name, values in step.info.items()},
    )


def finite_bounds(action_space: gymnasium.Space[Any]) -> tuple[Array, Array] | None:
    """Returns (low, high) of a Box that is bounded somewhere, else None."""
    if not isinstance(action_space, gymnasium.spaces.Box):
        return None
    if not (action_space.bounded_below.any() or action_space.bounded_above.any()):
        return None
    return action_space.low, action_space.high
