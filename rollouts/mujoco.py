# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's environments: models that differ by environment, and MuJoCo's own state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.families.model_fields import Scaled, Uniform
from rollouts.families.mujoco_engine import assets_dir, load_engine, requirement

__all__ = ["Scaled", "Uniform", "assets_dir", "integration_state", "load_engine", "requirement"]


def integration_state(state: bytes) -> npt.NDArray[np.float64]:
    """MuJoCo's own state, extracted from a state that `get_state` returned.

    Args:
      state: An entry of the result of `VectorEnv.get_state`, for a MuJoCo environment.

    Returns:
      The vector of `mujoco.mj_getState(..., mjSTATE_INTEGRATION)`, read-only: time, positions,
      velocities and all else that the next step depends on. `mujoco.mj_setState` takes it.

    Raises:
      SpecError: The bytes are no state, are damaged, or belong to no environment of MuJoCo.
    """
    numbers = _native.physics_state(state)
    numbers.flags.writeable = False
    return numbers
