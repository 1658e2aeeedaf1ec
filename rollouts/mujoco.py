# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's environments: models that differ by environment, and MuJoCo's own state of one."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from rollouts.families.model_fields import Scaled, Uniform
from rollouts.families.mujoco_engine import assets_dir, load_engine, requirement

__all__ = ["Scaled", "Uniform", "assets_dir", "integration_state", "load_engine", "requirement"]

# what a saved state begins with (native/include/rollouts/support/state.h)
_SEAL = struct.Struct("<8sIIQQQ")  # magic, version, bytes of the type's name, three more
_CLOCK = struct.Struct("<QIIIidB")
_PHYSICS = struct.Struct("<iQ")  # MuJoCo's release, numbers that follow


def integration_state(state: bytes) -> npt.NDArray[np.float64]:
    """MuJoCo's own state within a state that `get_state` of one of its environments returned.

    Args:
      state: One entry of `VectorEnv.get_state`.

    Returns:
      The vector of `mujoco.mj_getState(..., mjSTATE_INTEGRATION)`, read-only: time, positions,
      velocities and what else the next step depends on. `mujoco.mj_setState` takes it.
    """
    at = state_offset(state)
    _, length = _PHYSICS.unpack_from(state, at)
    return np.frombuffer(state, np.float64, length, at + _PHYSICS.size)


def state_offset(state: bytes) -> int:
    """Where the environment begins in a state of `VectorEnv.get_state`, after seal and episode."""
    return _SEAL.size + int(_SEAL.unpack_from(state)[2]) + _CLOCK.size
