# SPDX-License-Identifier: Apache-2.0
"""Door to `rollouts.pool.vector_env`."""

from rollouts.pool.vector_env import VectorEnv

__all__ = ["VectorEnv"]
