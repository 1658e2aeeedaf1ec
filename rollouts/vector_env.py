# SPDX-License-Identifier: Apache-2.0
"""Pools of environments: `rollouts.VectorEnv`."""

from rollouts.pool.vector_env import VectorEnv

__all__ = ["VectorEnv"]
