# SPDX-License-Identifier: Apache-2.0
"""The two halves of `step`, measurements, and what may come when."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rollouts.batch import StepBatch
from rollouts.checks import seconds
from rollouts.env_fns.batches import (
    Batch,
    BatchReader,
    Episodes,
    add_failures,
    add_statistics,
)
from rollouts.env_fns.checks import checked_out, rows_of, rows_wanted
from rollouts.env_fns.counts import EnvFnsCounts
from rollouts.env_fns.leaves import action_columns
from rollouts.env_fns.processes import identity
from rollouts.env_fns.processes.host import Host
from rollouts.env_fns.processes.timing import WaitTimer
from rollouts.errors import CallPendingError, ProtocolError

Array = npt.NDArray[Any]
Info = dict[str, Any]


class EnvFnsSendRecv(EnvFnsCounts):
    """Sends actions to a host and receives batches; EnvFnsVectorEnv sets the attributes.

    One thread may send while another receives.
    """

    num_envs: int
    batch_size: int
    env_id_offset: int
    single_observation_space: gymnasium.Space[Any]
    _host: Host
    _reader: BatchReader
    _episodes: Episodes
    _waits: WaitTimer
    _synchronous: bool
    _same_step: bool
    _reports_errors: bool
    _has_statistics: bool
    _order: list[Array | None]
    _out: dict[str, Array]
    _held: Batch | None
    _last_rows: Array | None
    _is_first_reset: bool
    _pending: str | None  # "reset" or "step", where AsyncVectorEnv's calls started it

    def async_reset(self) -> None:
        """Starts a new episode everywhere without waiting; `recv` returns the first obs.

        Raises:
          ClosedError: The VectorEnv was closed.
        """
        self._discard()
        self._host.reset(np.arange(self.num_envs), self._seeds(None), None)
        self._is_first_reset = False
        self._sent(None if self._synchronous else np.arange(self.num_envs), is_reset=True)

    def send(
        self,
        actions: Any,
        env_id: npt.ArrayLike | None = None,
        *,
        out: dict[str, Array] | None = None,
    ) -> None:
        """Starts stepping environments and returns at once.

        Args:
          actions: Batch of n actions, nested as the batched action space.
          env_id: (n,) int, global ids as in `info["env_id"]`. None: all environments in
            synchronous mode, those of the last `recv` otherwise.
          out: Arrays that recv fills and returns in place of its own, by the names obs, reward,
            terminated, truncated, env_id, episode_return, episode_length and final_obs, any of
            them: n rows, the dtype that recv returns, C-contiguous. For obs and final_obs the
            observation space must be one array. Synchronous mode only.

        Raises:
          As `step`. Nothing is sent when an error is raised.
        """
        self._host.check_open()
        rows = self._rows(env_id)
        count = self.num_envs if rows is None else len(rows)
        columns = action_columns(self._host.action_leaves, actions, count)
        self._check_sendable(rows)
        targets = checked_out(
            out,
            self._host.observation_leaves,
            count,
            is_synchronous=self._synchronous,
            keeps_final=self._same_step,
        )
        if targets and self.num_in_flight:
            raise ProtocolError("a send with out must be the only one before the next recv")
        # an action that does not pickle fails here, before anything has changed
        objects = {
            leaf: [identity.dumps(value, self._host.known) for value in column]
            for leaf, column in enumerate(columns)
            if isinstance(column, list)
        }
        for leaf, column in enumerate(columns):
            if leaf not in objects:
                self._host.arrays[f"action/{leaf}"][slice(None) if rows is None else rows] = column
        # before the processes know, as another thread may receive what they do at once
        self._sent(rows)
        self._out = targets
        with self._host.lock:
            going = self._without_lost(rows)
            if going is None or going.size:
                if going is not None and going is not rows and objects:
                    sent = np.arange(self.num_envs) if rows is None else rows
                    kept = np.flatnonzero(np.isin(sent, going))
                    objects = {leaf: [values[i] for i in kept] for leaf, values in objects.items()}
                self._host.step(going, objects)

    def recv(
        self,
        timeout_s: float | None = None,
        *,
        min_envs: int | None = None,
        max_envs: int | None = None,
    ) -> tuple[Any, Array, Array, Array, Info]:
        """Waits for the next batch.

        Args:
          timeout_s: Seconds to wait; None waits for ever.
          min_envs, max_envs: Return as soon as min_envs environments have finished, with what
            has by then, at most max_envs. If one is None it is batch_size, or the other one if
            that leaves them in order. Asynchronous mode only.

        Returns:
          As `step`. In synchronous mode the rows sent since the last recv, in the order sent;
          in asynchronous mode the first environments to finish.

        Raises:
          TimeoutError: No batch within timeout_s. ProtocolError: too few environments are in
          flight to fill a batch. SpecError: not 1 <= min_envs <= max_envs <= num_envs, or
          synchronous mode. EnvError, ClosedError: as `step`. WorkerError: a process cannot be
          started again.
        """
        return self._five(self._next_batch(timeout_s, min_envs, max_envs))

    def recv_batch(
        self,
        timeout_s: float | None = None,
        *,
        min_envs: int | None = None,
        max_envs: int | None = None,
    ) -> StepBatch:
        """Waits for the next batch and returns its plain arrays; see `recv`.

        Returns:
          StepBatch; final_obs is dense, valid where terminated | truncated in same-step mode,
          None in the others. info has the arrays that environments reported, no nested dicts.
        """
        batch = self._next_batch(timeout_s, min_envs, max_envs)
        info = self._reader.infos(batch, same_step=False)
        info = {name: value for name, value in info.items() if not isinstance(value, dict)}
        if self._reports_errors:
            add_failures(info, batch)
        return StepBatch(
            batch.obs,
            batch.reward,
            batch.terminated,
            batch.truncated,
            batch.env_id,
            batch.episode_return,
            batch.episode_length,
            batch.final_obs,
            info,
        )

    def drain(self, timeout_s: float | None = None) -> tuple[Any, Array, Array, Array, Info]:
        """Waits for everything in flight and returns it as one batch, as `recv` does.

        Returns:
          As `step`, with as many rows as environments were in flight, maybe none.

        Raises:
          TimeoutError, EnvError, ClosedError: As `recv`.
        """
        return self._five(self._next_batch(timeout_s, None, None, drains=True))

    # -- sending -------------------------------------------------------------------

    def _begin_counts(self) -> None:
        self._in_flight = np.zeros(self.num_envs, np.bool_)
        self._is_reset = np.zeros(self.num_envs, np.bool_)  # in flight, and not a step
        # synchronous mode: rows in the order sent, None for all of them
        self._order = []
        self._out = {}
        self._held = None
        self._last_rows = None
        self._num_steps = self._num_recvs = self._num_errors = 0
        self._pending = None

    def _rows(self, env_id: npt.ArrayLike | None) -> Array | None:
        """Indices of environments; None: all of them, in order."""
        if env_id is None:
            if self._synchronous:
                return None
            if self._last_rows is None:
                raise ProtocolError("nothing was received yet; call async_reset() and recv() first")
            return self._last_rows
        return rows_of(env_id, self.env_id_offset, self.num_envs)

    def _check_sendable(self, rows: Array | None) -> None:
        if rows is None and self._episodes.all_can_step and not self.num_in_flight:
            return
        at: Any = slice(None) if rows is None else rows
        if self._out and self._order:
            raise ProtocolError("a send with out must be the only one before the next recv")
        if rows is not None and len(np.unique(rows)) != len(rows):
            raise ProtocolError("env_id has the same environment twice")
        if self._in_flight[at].any():
            raise ProtocolError(
                f"env_id {self._first(at, self._in_flight)} is in flight already: call recv first"
            )
        needs_reset = self._episodes.needs_reset
        if needs_reset[at].any():
            row = self._first(at, needs_reset)
            begun = self._episodes.has_begun[row - self.env_id_offset]
            raise ProtocolError(
                f"env_id {row} "
                + (
                    "has ended its episode, and autoreset is disabled: reset it by reset_mask"
                    if begun
                    else "was never reset: call reset() first"
                )
            )

    def _first(self, at: Any, mask: Array) -> int:
        return int(np.arange(self.num_envs)[at][mask[at]][0]) + self.env_id_offset

    def _without_lost(self, rows: Array | None) -> Array | None:
        """Settles rows whose process has died since; returns the others."""
        lost = self._host.lost
        if not lost:
            return rows
        everything = np.arange(self.num_envs) if rows is None else rows
        told = []
        for row in everything.tolist():
            failure = lost.pop(row, None)
            # an episode that was over has lost nothing
            if failure is not None and (self._same_step or not self._episodes.has_ended[row]):
                told.append(row)
                self._host.fail(row, failure)
        return everything[~np.isin(everything, told)] if told else rows

    def _sent(self, rows: Array | None, *, is_reset: bool = False) -> None:
        self.num_calls += 1
        at: Any = slice(None) if rows is None else rows
        self._in_flight[at] = True
        if is_reset:
            self._is_reset[at] = True
        if self._synchronous:
            self._order.append(rows)

    def _seeds(self, seed: Any) -> list[int | None]:
        raise NotImplementedError

    def _check_rest(self, what: str) -> None:
        self._host.check_open()
        if self._in_flight.any():
            raise CallPendingError(
                f"{what} while environments are in flight: call recv or drain first",
                self._pending or "send",
            )

    def _discard(self) -> None:
        """Waits for everything in flight and forgets it."""
        self._host.check_open()
        self._held = None
        self._host.wait(lambda: self._host.num_busy == 0)
        self._in_flight[:] = self._is_reset[:] = False
        self._host.finished.clear()
        self._host.records.clear()
        self._order, self._out = [], {}
        self._pending = None

    # -- receiving -----------------------------------------------------------------

    def _next_batch(
        self,
        timeout_s: float | None,
        min_envs: int | None,
        max_envs: int | None,
        *,
        drains: bool = False,
    ) -> Batch:
        least, most = rows_wanted(min_envs, max_envs, self.batch_size, self.num_envs)
        timeout_s = seconds("timeout_s", timeout_s)
        self._host.check_open()
        self.num_calls += 1
        if self._held is not None:
            batch, self._held = self._held, None
            self._pending = None
            return batch
        begin = time.perf_counter()
        try:
            rows = self._rows_done(timeout_s, least, most, drains=drains)
        finally:
            self._waits.add(time.perf_counter() - begin)
        batch = self._reader.read(rows, self._out, same_step=self._same_step)
        at: Any = slice(None) if rows is None else rows
        self._in_flight[at] = False
        self._out = {}
        self._num_recvs += 1
        self._num_steps += int(np.count_nonzero(~self._is_reset[at]))
        self._is_reset[at] = False
        self._num_errors += len(batch.failures)
        if not self._synchronous:
            self._last_rows = rows
        # what raises here, a warning as an error too, leaves the batch to the next call
        self._held = batch
        if batch.failures and not self._reports_errors:
            raise batch.error()
        self._tell_of_waits()
        self._held = None
        self._pending = None
        return batch

    def _rows_done(
        self, timeout_s: float | None, least: int, most: int, *, drains: bool
    ) -> Array | None:
        """Waits; returns the rows of the next batch, None for all of them in order."""
        host, in_flight = self._host, self.num_in_flight
        if not drains and in_flight < (1 if self._synchronous else least):
            raise ProtocolError(
                f"{in_flight} environments are in flight, too few for a batch: send first"
            )
        if self._synchronous or drains:
            host.wait(lambda: host.num_busy == 0, timeout_s)
        if not self._synchronous:
            if drains:
                most = in_flight
            else:
                host.wait(lambda: len(host.finished) >= least, timeout_s)
            count = min(most, len(host.finished))
            return np.array([host.finished.popleft() for _ in range(count)], np.intp)
        order, self._order = self._order, []
        if len(order) == 1 and order[0] is None:
            return None
        parts = [np.arange(self.num_envs) if rows is None else rows for rows in order]
        return np.concatenate(parts) if parts else np.zeros(0, np.intp)

    def _info(self, batch: Batch) -> Info:
        info = self._reader.infos(batch, same_step=self._same_step)
        if self._has_statistics:
            info = add_statistics(info, batch, same_step=self._same_step)
        if self._reports_errors:
            add_failures(info, batch)
        return info

    def _five(self, batch: Batch) -> tuple[Any, Array, Array, Array, Info]:
        info = self._info(batch)
        return batch.obs, batch.reward, batch.terminated, batch.truncated, info
