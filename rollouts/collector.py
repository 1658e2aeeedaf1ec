# SPDX-License-Identifier: Apache-2.0
"""Door to `rollouts.collecting.collector`."""

from rollouts.collecting.collector import BatchedEnv, Collector

__all__ = ["BatchedEnv", "Collector"]
