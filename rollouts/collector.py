# SPDX-License-Identifier: Apache-2.0
"""Door to `rollouts.collecting.collector`."""

from rollouts.collecting.batched_env import BatchedEnv
from rollouts.collecting.collector import Collector

__all__ = ["BatchedEnv", "Collector"]
