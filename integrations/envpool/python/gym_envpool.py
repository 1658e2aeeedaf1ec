# SPDX-License-Identifier: Apache-2.0
"""EnvPool's env_type="gym" with the API of gym < 0.26; with the new one it is Gymnasium's."""

from __future__ import annotations

from typing import Any

import gymnasium
from rollouts.integrations.envpool.python.env_spec import EnvSpec
from rollouts.integrations.envpool.python.gymnasium_envpool import GymFace


class GymEnvPool(GymFace, gymnasium.Env[Any, Any]):
    """`make(..., env_type="gym")`.

    It is a `gymnasium.Env`, so that Gymnasium's wrappers take it. Scripts that import the old
    package gym find gym's spaces, if gym was imported when the environment is made.
    """

    def __init__(self, spec: EnvSpec) -> None:
        spec.for_gym = True
        self._start(spec)
