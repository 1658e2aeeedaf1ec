# SPDX-License-Identifier: Apache-2.0
"""The classes, in modules named as EnvPool's, because other libraries import them by name."""

from __future__ import annotations

from rollouts.integrations.envpool.python import (
    dm_envpool,
    env_spec,
    envpool,
    gym_envpool,
    gymnasium_envpool,
)

__all__ = ["dm_envpool", "env_spec", "envpool", "gym_envpool", "gymnasium_envpool"]
