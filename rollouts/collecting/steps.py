# SPDX-License-Identifier: Apache-2.0
"""What collectors do to single steps: some of their rows, and the bounds of their actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rollouts.batch import StepBatch

Array = NDArray[Any]


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
