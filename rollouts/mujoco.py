# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's environments: models that differ by environment, and MuJoCo's own state of one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.families.model_fields import Scaled, Uniform
from rollouts.families.mujoco_engine import assets_dir, load_engine, requirement

__all__ = ["Scaled", "Uniform", "assets_dir", "integration_state", "load_engine", "requirement"]


def integration_state(state: bytes) -> npt.NDArray[np.float64]:
    """MuJoCo's own state within a state that `get_state` of one of its environments returned.

    Args:
      state: One entry of `VectorEnv.get_state`.

    Returns:
      The vector of `mujoco.mj_getState(..., mjSTATE_INTEGRATION)`, read-only: time, positions,
      velocities and what else the next step depends on. `mujoco.mj_setState` takes it.

    Raises:
      SpecError: The bytes are no state, are damaged, or are of no environment of MuJoCo.
    """
    numbers = _native.physics_state(state)
    numbers.flags.writeable = False
    return numbers
