# SPDX-License-Identifier: Apache-2.0
"""EnvFnsCounts: the counters and times behind `stats`, and advice on them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.env_fns.processes.host import Host
from rollouts.env_fns.processes.timing import WaitTimer, percentiles, waiting_advice
from rollouts.machine.cpu_count import usable_cpus
from rollouts.pool.stats import PoolStats
from rollouts.support.user_warnings import warn_user

Array = npt.NDArray[Any]

_LOOKS_AT_WAITS_EVERY = 32  # batches


class EnvFnsCounts:
    """Counts for `stats`; those who send and receive keep them."""

    num_envs: int
    _host: Host
    _waits: WaitTimer
    _in_flight: Array
    _num_steps: int
    _num_recvs: int
    _num_errors: int
    _told_of_waits: bool = False
    # how often somebody stepped, reset or received, for collectors
    num_calls: int = 0

    @property
    def num_in_flight(self) -> int:
        """Environments sent and not yet received."""
        return int(np.count_nonzero(self._in_flight))

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the memory shared with the processes."""
        return self._host.num_bytes

    def stats(self) -> PoolStats:
        """Counts and times since construction or `reset_stats`; see `PoolStats`.

        From any thread, also after `close`. Times of light environments are samples.
        """
        arrays = self._host.arrays
        counts = arrays["step_time_count"].astype(np.float64)
        means = np.full(self.num_envs, math.nan)
        np.divide(arrays["step_time_sum"], counts, out=means, where=counts > 0)
        return PoolStats(
            env_steps=self._num_steps,
            num_recvs=self._num_recvs,
            num_env_errors=self._num_errors,
            num_steps_in_lanes=0,
            num_steps_by_mujoco=0,
            step_time_s=percentiles(
                arrays["step_time_histogram"].sum(0), float(arrays["step_time_max"].max())
            ),
            queue_wait_s=percentiles(
                arrays["queue_wait_histogram"].sum(0), float(arrays["queue_wait_max"].max())
            ),
            batch_wait_s=self._waits.percentiles(),
            env_step_time_s=means,
            num_in_flight=self.num_in_flight,
            buffer_bytes=self.buffer_bytes,
        )

    def reset_stats(self) -> None:
        """Begins the counts and times of `stats` anew. From any thread."""
        for name in ("sum", "count", "histogram", "max"):
            self._host.arrays[f"step_time_{name}"][...] = 0
        for name in ("histogram", "max"):
            self._host.arrays[f"queue_wait_{name}"][...] = 0
        self._waits.clear()
        self._num_steps = self._num_recvs = self._num_errors = 0

    def _tell_of_waits(self) -> None:
        """Warns once those whose CPUs idle while environments wait one after the other.

        Where warnings are errors this raises, so that a batch must be held before.
        """
        if self._told_of_waits or self._num_recvs % _LOOKS_AT_WAITS_EVERY:
            return
        advice = waiting_advice(self._host.arrays, self.num_envs, usable_cpus())
        if advice is not None:
            self._told_of_waits = True
            warn_user(advice, RuntimeWarning)
