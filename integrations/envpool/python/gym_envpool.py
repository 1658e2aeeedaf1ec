# SPDX-License-Identifier: Apache-2.0
"""EnvPool's gym face: the API of gym < 0.26, or the new one."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
from gymnasium import spaces
from rollouts.integrations.envpool.python.env_spec import EnvSpec
from rollouts.integrations.envpool.python.gymnasium_envpool import GymFace


class GymEnvPool(GymFace, gymnasium.Env[Any, Any]):
    """`make(..., env_type="gym")`.

    It is a `gymnasium.Env`, so that its wrappers take it. Scripts that import the old package
    gym find its spaces: those are used if it was imported when the environment is made.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self._start(spec)
        old = sys.modules.get("gym")
        if old is not None and old is not gymnasium and hasattr(old, "spaces"):
            self.observation_space = in_package(spec.observation_space, old.spaces)
            self.action_space = in_package(spec.action_space, old.spaces)
            self.single_observation_space = self.observation_space
            self.single_action_space = self.action_space


def in_package(space: spaces.Space[Any], package: Any) -> Any:
    """A space of Gymnasium as one of the package gym."""
    if isinstance(space, spaces.Discrete):
        return package.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return package.MultiDiscrete(space.nvec)
    assert isinstance(space, spaces.Box)
    return package.Box(space.low, space.high, space.shape, space.dtype)
