# SPDX-License-Identifier: Apache-2.0
"""The time until which a call of `Collector.collect` waits."""

from __future__ import annotations

import time
from typing import Protocol, TypeVar

from rollouts.checks import seconds
from rollouts.errors import CallTimeoutError, SpecError

B = TypeVar("B", covariant=True)


class Receives(Protocol[B]):
    """An environment whose batches can be waited for."""

    def recv_batch(self, timeout_s: float | None = None) -> B:
        """Waits for the next batch."""
        ...


class Deadline:
    """The time at which one call stops waiting."""

    def __init__(self, timeout_s: float | None) -> None:
        """Counts from now on; None: no limit.

        Raises:
          SpecError: timeout_s is below 0 or NaN. DTypeError: it is not a number.
        """
        self._timeout_s = seconds("timeout_s", timeout_s)
        if self._timeout_s is not None and not self._timeout_s >= 0:
            raise SpecError(f"timeout_s must be None or a number >= 0, got {timeout_s}")
        self._has_received = False
        self._end = time.monotonic() + (self._timeout_s or 0.0)

    @property
    def is_never(self) -> bool:
        """Tells if the call waits for ever."""
        return self._timeout_s is None

    @property
    def remaining_s(self) -> float | None:
        """Seconds that are left, at least 0; None: no limit."""
        if self._timeout_s is None:
            return None
        # the longest that all systems can wait
        return min(max(self._end - time.monotonic(), 0.0), 1e6)

    def recv(self, env: Receives[B]) -> B:
        """Returns the next batch of `env`.

        Raises:
          CallTimeoutError: It did not come in time. A batch that is ready is returned even if no
            time is left, so that calls with a timeout of 0 make progress.
        """
        remaining_s = self.remaining_s
        if remaining_s == 0 and self._has_received:
            raise self.error()
        try:
            batch = env.recv_batch(remaining_s)
        except TimeoutError as error:
            raise self.error() from error
        self._has_received = True
        return batch

    def error(self) -> CallTimeoutError:
        """Returns the error to raise when the time is over."""
        return CallTimeoutError(
            f"collect: no rollout within {self._timeout_s} s; nothing is lost: call collect again, "
            "which returns the rollout that was begun"
        )
