# SPDX-License-Identifier: Apache-2.0
"""`Counts`: the counters and times behind `stats`, and advice on them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.envs.hosted.processes.host import Host
from rollouts.envs.hosted.processes.timing import WaitTimer, percentiles, waiting_advice
from rollouts.envs.stats import PoolStats
from rollouts.machine.cpu_count import usable_cpus
from rollouts.support.user_warnings import warn_user

Array = npt.NDArray[Any]

_LOOKS_AT_WAITS_EVERY = 32  # batches


class Counts:
    """Counts of what was received; times of steps are in the memory that processes share.

    Attributes:
      num_steps, num_recvs, num_errors: Since construction or `reset`.
      waits: Time that callers waited in `recv`.
    """

    def __init__(self, host: Host) -> None:
        """Begins at 0."""
        self._host = host
        self.waits = WaitTimer()
        self.num_steps = self.num_recvs = self.num_errors = 0
        self._has_warned = False

    def stats(self, num_in_flight: int) -> PoolStats:
        """The counts of `VectorEnv.stats`. Only some steps of light environments are timed."""
        arrays = self._host.arrays
        counts = arrays["step_time_count"].astype(np.float64)
        means = np.full(self._host.num_envs, math.nan)
        np.divide(arrays["step_time_sum"], counts, out=means, where=counts > 0)
        return PoolStats(
            env_steps=self.num_steps,
            num_recvs=self.num_recvs,
            num_env_errors=self.num_errors,
            num_steps_in_lanes=0,
            num_steps_by_mujoco=0,
            step_time_s=percentiles(
                arrays["step_time_histogram"].sum(0), float(arrays["step_time_max"].max())
            ),
            queue_wait_s=percentiles(
                arrays["queue_wait_histogram"].sum(0), float(arrays["queue_wait_max"].max())
            ),
            batch_wait_s=self.waits.percentiles(),
            env_step_time_s=means,
            num_in_flight=num_in_flight,
            buffer_bytes=self._host.num_bytes,
        )

    def reset(self) -> None:
        """Begins all counts and times anew. From any thread."""
        for name in ("sum", "count", "histogram", "max"):
            self._host.arrays[f"step_time_{name}"][...] = 0
        for name in ("histogram", "max"):
            self._host.arrays[f"queue_wait_{name}"][...] = 0
        self.waits.clear()
        self.num_steps = self.num_recvs = self.num_errors = 0

    def warn_of_waits(self) -> None:
        """Warns once, if environments wait one after the other while CPUs idle.

        Where warnings are errors this raises, so the caller must have stored the batch before.
        """
        if self._has_warned or self.num_recvs % _LOOKS_AT_WAITS_EVERY:
            return
        advice = waiting_advice(self._host.arrays, self._host.num_envs, usable_cpus())
        if advice is not None:
            self._has_warned = True
            warn_user(advice, RuntimeWarning)
