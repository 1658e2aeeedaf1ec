# SPDX-License-Identifier: Apache-2.0
"""RunRecord: the course of a simulated run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rollouts.learner.fragment import FragmentHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One sample of a run.

    Attributes:
      time_s: Simulated time.
      env_steps: Env-steps delivered so far.
      queue_depth, in_flight: Fragments of the driver's queue and of its calls.
      driver_busy_s: CPU time so far of the driver.
      coordinator_busy_s: CPU time so far of a coordinator's actor, the mean of all.
      learner_busy_s: Seconds of learning so far.
      workers: Running workers.
      lag: Mean lag, in versions, of the fragments delivered since the sample before.
      fragment_bytes, weight_bytes: Bytes so far over links into learners, and into workers.
    """

    time_s: float
    env_steps: int
    queue_depth: int
    in_flight: int
    driver_busy_s: float
    coordinator_busy_s: float
    learner_busy_s: float
    workers: int
    lag: float
    fragment_bytes: int
    weight_bytes: int


class RunRecord:
    """Counts deliveries, and keeps samples."""

    def __init__(self) -> None:
        """Starts empty."""
        self.env_steps = 0
        self.learner_busy_s = 0.0
        self.lags: Counter[int] = Counter()
        self.moments: list[Moment] = []
        self._lag_sum = self._num_since = 0

    def delivered(self, handles: Sequence[FragmentHandle], version: int) -> int:
        """Records a delivery while `version` is the newest; returns its env-steps."""
        steps = sum(handle.info.num_steps for handle in handles)
        lags = [version - handle.info.min_policy_version for handle in handles]
        self.lags.update(lags)
        self.env_steps += steps
        self._lag_sum += sum(lags)
        self._num_since += len(lags)
        return steps

    def learned(self, seconds: float) -> None:
        """Records an update."""
        self.learner_busy_s += seconds

    def mean_lag(self) -> float:
        """Returns the mean lag since the last call."""
        mean = self._lag_sum / self._num_since if self._num_since else 0.0
        self._lag_sum = self._num_since = 0
        return mean
