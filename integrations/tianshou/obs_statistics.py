# SPDX-License-Identifier: Apache-2.0
"""Running statistics of observations, shared between environments as by VectorEnvNormObs."""

from __future__ import annotations

from typing import Any

import numpy as np

from rollouts.envs.statistics import RunningStatistics
from rollouts.errors import SpecError

from ..shared.pool_statistics import PoolStatistics


class ObsRms:
    """The result of `get_obs_rms`: an environment's statistics, which change as it steps.

    Pickled, for a checkpoint, it is the `rollouts.RunningStatistics` of that moment.
    """

    def __init__(self, env: PoolStatistics) -> None:
        self._env = env

    @property
    def statistics(self) -> RunningStatistics:
        """Returns the present statistics."""
        return self._env.observation_statistics

    @property
    def mean(self) -> Any:
        """(*obs_shape,) float64."""
        return self.statistics.mean

    @property
    def var(self) -> Any:
        """(*obs_shape,) float64."""
        return self.statistics.var

    @property
    def count(self) -> float:
        """The number of rows."""
        return self.statistics.count

    def __reduce__(self) -> Any:
        now = self.statistics
        return RunningStatistics, (now.mean, now.var, now.count)


class SharesStatistics(PoolStatistics):
    """`get_obs_rms` and `set_obs_rms`, which give test environments the training's statistics."""

    _obs_rms: Any = None

    def get_obs_rms(self) -> ObsRms:
        """The statistics of normalize_observation, for `set_obs_rms` and for checkpoints.

        Raises:
          SpecError: The pool does not normalise observations.
        """
        _ = self.observation_statistics
        return ObsRms(self)

    def set_obs_rms(self, obs_rms: Any) -> None:
        """Scales by other statistics, and does not update them.

        Args:
          obs_rms: The result of `get_obs_rms` of the training's environments, which is read again
            whenever all environments are reset; or an object with mean, var and count.

        Raises:
          SpecError: Another object, or statistics of other observations.
        """
        if not all(hasattr(obs_rms, name) for name in ("mean", "var", "count")):
            raise SpecError(
                f"obs_rms is {obs_rms!r}, expected what get_obs_rms() of other environments "
                "returns, or mean, var and count"
            )
        self.update_statistics = False
        self._obs_rms = obs_rms
        self.follow_statistics()

    def follow_statistics(self) -> bool:
        """Takes over the statistics of `set_obs_rms`; False for none. No step may be under way."""
        rms = self._obs_rms
        if rms is None:
            return False
        mean, var = (np.asarray(one, np.float64) for one in (rms.mean, rms.var))
        self.observation_statistics = RunningStatistics(mean, var, float(rms.count))
        return True
