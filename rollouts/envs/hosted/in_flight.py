# SPDX-License-Identifier: Apache-2.0
"""`InFlight`: the environments that were sent and not yet received."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.envs.hosted.batches import HostedEpisodes
from rollouts.envs.hosted.call_checks import rows_of
from rollouts.errors import CallPendingError, ProtocolError

Array = npt.NDArray[Any]


class InFlight:
    """Keeps track of what is sent and received, and refuses what may not be sent now.

    Rows are indices of environments, 0 to N - 1; None stands for all of them, in order.

    Attributes:
      num_calls: The number of steps, resets and receives so far.
      out: The caller's arrays that the next batch fills, by name.
      last_rows: The rows of the last batch in asynchronous mode; None before the first.
      pending: "reset" or "step", where one of AsyncVectorEnv's calls started what is in flight.
    """

    def __init__(
        self, episodes: HostedEpisodes, num_envs: int, *, env_id_offset: int, is_synchronous: bool
    ) -> None:
        """Begins with N environments at rest."""
        self._episodes, self._num_envs = episodes, num_envs
        self._offset, self._is_synchronous = env_id_offset, is_synchronous
        self._is_sent = np.zeros(num_envs, np.bool_)
        self._is_reset = np.zeros(num_envs, np.bool_)  # in flight with a reset, not with a step
        # synchronous mode: rows in the order sent
        self._order: list[Array | None] = []
        self.num_calls = 0
        self.out: dict[str, Array] = {}
        self.last_rows: Array | None = None
        self.pending: str | None = None

    @property
    def count(self) -> int:
        """Environments sent and not yet received."""
        return int(np.count_nonzero(self._is_sent))

    def rows(self, env_id: npt.ArrayLike | None) -> Array | None:
        """The environments that a `send` means; None: all of them, in order.

        Raises:
          SpecError, DTypeError: Not ids of these environments.
          ProtocolError: `env_id` is None, but nothing was received.
        """
        if env_id is not None:
            return rows_of(env_id, self._offset, self._num_envs)
        if self._is_synchronous:
            return None
        if self.last_rows is None:
            raise ProtocolError("nothing was received yet; call async_reset() and recv() first")
        return self.last_rows

    def check_sendable(self, rows: Array | None) -> None:
        """Raises ProtocolError where a row is in flight already or needs a reset first."""
        if rows is None and self._episodes.all_can_step and not self.count:
            return
        at: Any = slice(None) if rows is None else rows
        if self.out and self._order:
            raise ProtocolError("a send with out must be the only one before the next recv")
        if rows is not None and len(np.unique(rows)) != len(rows):
            raise ProtocolError("env_id has the same environment twice")
        if self._is_sent[at].any():
            raise ProtocolError(
                f"env_id {self._first(at, self._is_sent)} is in flight already: call recv first"
            )
        needs_reset = self._episodes.needs_reset
        if needs_reset[at].any():
            row = self._first(at, needs_reset)
            begun = self._episodes.has_begun[row - self._offset]
            raise ProtocolError(
                f"env_id {row} "
                + (
                    "has ended its episode, and autoreset is disabled: reset it by reset_mask"
                    if begun
                    else "was never reset: call reset() first"
                )
            )

    def check_rest(self, what: str) -> None:
        """Raises CallPendingError where an environment is in flight."""
        if self._is_sent.any():
            raise CallPendingError(
                f"{what} while environments are in flight: call recv or drain first",
                self.pending or "send",
            )

    def send(self, rows: Array | None, *, is_reset: bool = False) -> None:
        """Marks rows as sent."""
        self.num_calls += 1
        at: Any = slice(None) if rows is None else rows
        self._is_sent[at] = True
        if is_reset:
            self._is_reset[at] = True
        if self._is_synchronous:
            self._order.append(rows)

    def take_order(self) -> Array | None:
        """Returns the rows sent since the last batch, in the order sent; synchronous mode only."""
        order, self._order = self._order, []
        if len(order) == 1 and order[0] is None:
            return None
        parts = [np.arange(self._num_envs) if rows is None else rows for rows in order]
        return np.concatenate(parts) if parts else np.zeros(0, np.intp)

    def receive(self, rows: Array | None) -> int:
        """Marks rows as received; returns how many of them were steps."""
        at: Any = slice(None) if rows is None else rows
        self._is_sent[at] = False
        self.out = {}
        num_steps = int(np.count_nonzero(~self._is_reset[at]))
        self._is_reset[at] = False
        if not self._is_synchronous:
            self.last_rows = rows
        return num_steps

    def forget(self) -> None:
        """Marks everything as at rest; what was in flight will not be received."""
        self._is_sent[:] = self._is_reset[:] = False
        self._order, self.out = [], {}
        self.pending = None

    def _first(self, at: Any, mask: Array) -> int:
        return int(np.arange(self._num_envs)[at][mask[at]][0]) + self._offset
