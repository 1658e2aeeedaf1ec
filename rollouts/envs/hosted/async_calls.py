# SPDX-License-Identifier: Apache-2.0
"""`AsyncCalls`: the halves of `reset` and `step` as Gymnasium's AsyncVectorEnv names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy.typing as npt

from rollouts.checks import seconds
from rollouts.envs.hosted.batches import BatchInfos
from rollouts.envs.hosted.in_flight import InFlight
from rollouts.envs.hosted.processes.host import Host
from rollouts.envs.hosted.receiver import BatchReceiver
from rollouts.envs.hosted.resets import Resets
from rollouts.envs.hosted.sender import ActionSender
from rollouts.errors import CallPendingError, CallTimeoutError, NoCallPendingError

Array = npt.NDArray[Any]
Info = dict[str, Any]
_T = TypeVar("_T")


class AsyncCalls:
    """`reset_async` and `reset_wait`, `step_async` and `step_wait`; the second ends each call."""

    def __init__(
        self,
        host: Host,
        flight: InFlight,
        sender: ActionSender,
        receiver: BatchReceiver,
        resets: Resets,
        infos: BatchInfos,
    ) -> None:
        """Takes the objects that send, receive and reset."""
        self._host, self._flight, self._infos = host, flight, infos
        self._sender, self._receiver, self._resets = sender, receiver, resets
        self._rows_reset: Array | None = None

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Starts what `reset` does and returns at once; `reset_wait` returns the result.

        Args:
          seed, options: As for `reset`.

        Raises:
          CallPendingError: The result of an earlier call was not waited for. Else as `reset`.
        """
        self._check_not_pending("reset_async")
        self._rows_reset = self._resets.begin(seed, options)
        self._flight.pending = "reset"

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Info]:
        """Waits for what `reset_async` has started; returns as `reset`.

        Args:
          timeout: Seconds to wait; None waits for ever.

        Raises:
          NoCallPendingError: Nothing was started. CallTimeoutError: Not within `timeout`; the call
            goes on and may be waited for again. EnvError, ClosedError: As `reset`.
        """
        self._check_pending("reset")
        batch = _in_time(lambda left: self._resets.end(self._rows_reset, left), "reset", timeout)
        return batch.obs, self._infos.of_step(batch)

    def step_async(self, actions: Any) -> None:
        """Starts what `step` does and returns at once; `step_wait` returns the result.

        Args:
          actions: As for `step`.

        Raises:
          CallPendingError: The result of an earlier call was not waited for. Else as `step`.
        """
        self._check_not_pending("step_async")
        self._sender.send(actions, None, None)
        self._flight.pending = "step"

    def step_wait(self, timeout: float | None = None) -> tuple[Any, Array, Array, Array, Info]:
        """Waits for what `step_async` has started; returns as `step`.

        Args:
          timeout: Seconds to wait; None waits for ever.

        Raises:
          NoCallPendingError: Nothing was started. CallTimeoutError: Not within `timeout`; the call
            goes on and may be waited for again. EnvError: An environment failed; the batch comes
            with the next call. ClosedError: The environment was closed.
        """
        self._check_pending("step")
        batch = _in_time(self._receiver.next_batch, "step", timeout)
        info = self._infos.of_step(batch)
        return batch.obs, batch.reward, batch.terminated, batch.truncated, info

    def _check_not_pending(self, name: str) -> None:
        self._host.check_open()
        pending = self._flight.pending
        if pending is not None:
            raise CallPendingError(
                f"Calling `{name}` while waiting for a pending call to `{pending}` to "
                f"complete: call {pending}_wait first",
                pending,
            )

    def _check_pending(self, name: str) -> None:
        self._host.check_open()
        if self._flight.pending != name:
            raise NoCallPendingError(
                f"Calling `{name}_wait` without any prior call to `{name}_async`.", name
            )


def _in_time(call: Callable[[float | None], _T], name: str, timeout: float | None) -> _T:
    timeout_s = seconds("timeout", timeout)
    try:
        return call(timeout_s)
    except TimeoutError as error:
        raise CallTimeoutError(
            f"The call to `{name}_wait` has timed out after {timeout} second(s)."
        ) from error
