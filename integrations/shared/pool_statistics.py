# SPDX-License-Identifier: Apache-2.0
"""PoolStatistics: the running statistics of the pool behind an adapter, under the pool's names."""

from __future__ import annotations

from typing import Any

from rollouts.envs.statistics import RunningStatistics


class PoolStatistics:
    """Statistics of an adapter whose `pool` normalises; see `rollouts.VectorEnv`."""

    pool: Any

    @property
    def observation_statistics(self) -> RunningStatistics:
        """The statistics that scale observations; SpecError for none."""
        statistics: RunningStatistics = self.pool.observation_statistics
        return statistics

    @observation_statistics.setter
    def observation_statistics(self, statistics: RunningStatistics) -> None:
        self.pool.observation_statistics = statistics

    @property
    def reward_statistics(self) -> RunningStatistics:
        """The statistics that scale rewards; SpecError for none."""
        statistics: RunningStatistics = self.pool.reward_statistics
        return statistics

    @reward_statistics.setter
    def reward_statistics(self, statistics: RunningStatistics) -> None:
        self.pool.reward_statistics = statistics

    @property
    def update_statistics(self) -> bool:
        """Tells if batches change the statistics; False for evaluation."""
        return bool(getattr(self.pool, "update_statistics", False))

    @update_statistics.setter
    def update_statistics(self, updates: bool) -> None:
        self.pool.update_statistics = updates
