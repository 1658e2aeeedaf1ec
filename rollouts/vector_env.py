# SPDX-License-Identifier: Apache-2.0
"""Door to `rollouts.envs.vector_env`."""

from rollouts.envs.vector_env import VectorEnv

__all__ = ["VectorEnv"]
