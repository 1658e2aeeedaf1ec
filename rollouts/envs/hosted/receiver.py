# SPDX-License-Identifier: Apache-2.0
"""`BatchReceiver`: waits for environments, and returns their results as batches."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.checks import seconds
from rollouts.envs.hosted.batches import Batch, BatchReader
from rollouts.envs.hosted.call_checks import rows_wanted
from rollouts.envs.hosted.counts import Counts
from rollouts.envs.hosted.in_flight import InFlight
from rollouts.envs.hosted.processes.host import Host
from rollouts.errors import ProtocolError

Array = npt.NDArray[Any]


class BatchReceiver:
    """Waits for environments and reads their rows. One thread may send meanwhile."""

    def __init__(
        self,
        host: Host,
        flight: InFlight,
        reader: BatchReader,
        counts: Counts,
        *,
        batch_size: int,
        same_step: bool,
        raises_errors: bool,
    ) -> None:
        """Takes the host to wait for, the reader of its rows, and the objects that count them."""
        self._host, self._flight, self._reader, self._counts = host, flight, reader, counts
        self._batch_size, self._same_step = batch_size, same_step
        self._raises_errors = raises_errors
        self._is_synchronous = batch_size == host.num_envs
        # received, but not yet handed out because something was raised
        self._held: Batch | None = None

    def next_batch(
        self,
        timeout_s: float | None,
        min_envs: int | None = None,
        max_envs: int | None = None,
        *,
        drains: bool = False,
    ) -> Batch:
        """Waits for the next batch, as `VectorEnv.recv` does.

        Args:
          timeout_s, min_envs, max_envs: As in `VectorEnv.recv`.
          drains: Whether the batch is to have all that is in flight.

        Raises:
          TimeoutError, ProtocolError, SpecError, DTypeError, EnvError, ClosedError, WorkerError: As
            in `VectorEnv.recv`. After an EnvError the batch comes with the next call.
        """
        flight, counts = self._flight, self._counts
        least = most = self._batch_size
        if min_envs is not None or max_envs is not None:
            least, most = rows_wanted(min_envs, max_envs, self._batch_size, self._host.num_envs)
        if timeout_s is not None:
            timeout_s = seconds("timeout_s", timeout_s)
        self._host.check_open()
        flight.num_calls += 1
        if self._held is not None:
            batch, self._held = self._held, None
            flight.pending = None
            return batch
        begin = time.perf_counter()
        try:
            rows = self._rows_done(timeout_s, least, most, drains=drains)
        finally:
            counts.waits.add(time.perf_counter() - begin)
        batch = self._reader.read(rows, flight.out, same_step=self._same_step)
        counts.num_recvs += 1
        counts.num_steps += flight.receive(rows)
        counts.num_errors += len(batch.failures)
        # an error below, or a warning that is an error, leaves the batch to the next call
        self._held = batch
        if batch.failures and self._raises_errors:
            raise batch.error()
        counts.warn_of_waits()
        self._held = None
        flight.pending = None
        return batch

    def discard(self) -> None:
        """Waits for everything in flight and drops it.

        Raises:
          ClosedError: The host was closed.
        """
        self._host.check_open()
        self._held = None
        self._host.wait(lambda: self._host.num_busy == 0)
        self._host.finished.clear()
        self._host.records.clear()
        self._flight.forget()

    def _rows_done(
        self, timeout_s: float | None, least: int, most: int, *, drains: bool
    ) -> Array | None:
        """Waits; returns the rows of the next batch, None for all of them in order."""
        host, in_flight = self._host, self._flight.count
        if not drains and in_flight < (1 if self._is_synchronous else least):
            raise ProtocolError(
                f"{in_flight} environments are in flight, too few for a batch: send first"
            )
        if self._is_synchronous or drains:
            host.wait(lambda: host.num_busy == 0, timeout_s)
        if self._is_synchronous:
            return self._flight.take_order()
        if drains:
            most = in_flight
        else:
            host.wait(lambda: len(host.finished) >= least, timeout_s)
        count = min(most, len(host.finished))
        return np.array([host.finished.popleft() for _ in range(count)], np.intp)
