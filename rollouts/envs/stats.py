# SPDX-License-Identifier: Apache-2.0
"""Counts and times that `VectorEnv.stats()` returns: `PoolStats`, and on a device `DeviceStats`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TimePercentiles:
    """Durations in seconds, from histograms whose buckets are 6 % wide.

    Attributes:
      count: Durations that were measured.
      p50, p90, p99, max: Percentiles and the largest duration; NaN when count is 0.
    """

    count: int
    p50: float
    p90: float
    p99: float
    max: float


# identity, not equality: arrays have no single truth value
@dataclass(frozen=True, slots=True, eq=False)
class PoolStats:
    """Counts and times since the VectorEnv was made or its `reset_stats` was called.

    Everything is counted. Each step is timed if a step takes a microsecond or more. Lighter
    environments are timed in one of 32 sends, chosen at random, and then in chunks: each step gets
    an equal share of its chunk's time.

    Attributes:
      env_steps: Computed steps of single environments, received or not. A step that begins the next
        episode (next-step autoreset) counts, `reset` does not.
      num_recvs: Batches received, including those of `step` and `reset`.
      num_env_errors: Times an environment failed.
      num_steps_in_lanes: Steps of MuJoCo environments that lanes computed, one or several at once;
        0 in all other families.
      num_steps_by_mujoco: Steps that MuJoCo's own code computed, because lanes do not support the
        model or leave an event in the step to MuJoCo.
      step_time_s: Time to compute one environment's step.
      queue_wait_s: Time from sending an environment until a thread began its step or reset.
      batch_wait_s: Time that a call of `recv` or `step` waited for a batch. The learner loses it to
        the environments; it includes the caller's own part of the stepping.
      env_step_time_s: (N,) float64, mean time of a step per environment, in order of
        env_id; NaN where none was timed. The largest are the stragglers.
      num_in_flight: Environments sent and not yet received, now.
      buffer_bytes: Bytes of all batch buffers the pool owns, now.
    """

    env_steps: int
    num_recvs: int
    num_env_errors: int
    num_steps_in_lanes: int
    num_steps_by_mujoco: int
    step_time_s: TimePercentiles
    queue_wait_s: TimePercentiles
    batch_wait_s: TimePercentiles
    env_step_time_s: npt.NDArray[np.float64]
    num_in_flight: int
    buffer_bytes: int

    @classmethod
    def from_native(cls, values: Mapping[str, Any]) -> PoolStats:
        """Makes the counts from the native pool's dict."""
        fields: dict[str, Any] = dict(values)
        for name in ("step_time_s", "queue_wait_s", "batch_wait_s"):
            fields[name] = TimePercentiles(*fields[name])
        return cls(**fields)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceStats:
    """Counts since the environments were made or `reset_stats` was called.

    Tensors are on the device: reading them waits for the device.

    Attributes:
      env_steps: Steps of single environments that were launched, without those of `reset`.
      num_launches: Number of launched kernels or graphs.
      num_episodes: () int64, episodes that ended.
      episode_length: () float64, their mean length; NaN where none ended.
      episode_return: () float64, their mean return; NaN where none ended.
    """

    env_steps: int
    num_launches: int
    num_episodes: Tensor
    episode_length: Tensor
    episode_return: Tensor
