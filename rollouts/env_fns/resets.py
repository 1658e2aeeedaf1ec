# SPDX-License-Identifier: Apache-2.0
"""Resets of all environments or of some, and the halves of calls as Gymnasium names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rollouts.checks import options_dict, seconds, seed_list
from rollouts.env_fns.batches import Batch
from rollouts.env_fns.send_recv import EnvFnsSendRecv
from rollouts.errors import (
    CallPendingError,
    CallTimeoutError,
    DTypeError,
    NoCallPendingError,
    ProtocolError,
    SpecError,
)

Array = npt.NDArray[Any]
Info = dict[str, Any]
_T = TypeVar("_T")


class EnvFnsResets(EnvFnsSendRecv):
    """Adds `reset` and the four calls of AsyncVectorEnv to `send` and `recv`."""

    _seed: int | None

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Info]:
        """Starts new episodes and returns their first observations.

        Batches in flight are waited for and discarded. In asynchronous mode the result is the
        first batch of B environments; recv returns the others.

        Args:
          seed: int: environment i is reset with seed + env_id. Sequence of N ints or None: one
            per environment. None: the first reset of all uses the seed that this VectorEnv was
            made with, if any; later ones none.
          options: {"reset_mask": (N,) bool} resets the marked environments alone and returns all
            N observations (synchronous mode only); a mask that marks none changes nothing.
            Everything else is passed on to `reset` of each environment.

        Returns:
          obs, nested as the batched observation space, and info of the environments reset.

        Raises:
          SpecError, DTypeError: Bad mask, seed or options; nothing has changed then.
          ProtocolError: A mask while environments are in flight, or one that leaves out
            environments that were never reset.
          EnvError: An environment failed. ClosedError: the VectorEnv was closed.
        """
        return self._end_reset(self._begin_reset(seed, options), None)

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Starts what `reset` does and returns at once; `reset_wait` returns the result.

        Args:
          seed, options: As for `reset`.

        Raises:
          CallPendingError: A call before it was not waited for. Else as `reset`.
        """
        self._check_not_pending("reset_async")
        self._rows_reset = self._begin_reset(seed, options)
        self._pending = "reset"

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Info]:
        """Waits for what `reset_async` has started; returns as `reset`.

        Args:
          timeout: Seconds to wait; None waits for ever.

        Raises:
          NoCallPendingError: Nothing was started. CallTimeoutError: Not within `timeout`; it goes
            on and may be waited for again. EnvError, ClosedError: As `reset`.
        """
        self._check_pending("reset")
        return self._in_time(lambda left: self._end_reset(self._rows_reset, left), "reset", timeout)

    def step_async(self, actions: Any) -> None:
        """Starts what `step` does and returns at once; `step_wait` returns the result.

        Args:
          actions: As for `step`.

        Raises:
          CallPendingError: A call before it was not waited for. Else as `step`.
        """
        self._check_not_pending("step_async")
        self.send(actions)
        self._pending = "step"

    def step_wait(self, timeout: float | None = None) -> tuple[Any, Array, Array, Array, Info]:
        """Waits for what `step_async` has started; returns as `step`.

        Args:
          timeout: Seconds to wait; None waits for ever.

        Raises:
          NoCallPendingError: Nothing was started. CallTimeoutError: Not within `timeout`; it goes
            on and may be waited for again. EnvError: An environment failed; the batch comes with
            the next call. ClosedError: The VectorEnv was closed.
        """
        self._check_pending("step")
        return self._in_time(self.recv, "step", timeout)

    # -- helpers -------------------------------------------------------------------

    def _check_not_pending(self, name: str) -> None:
        self._host.check_open()
        if self._pending is not None:
            raise CallPendingError(
                f"Calling `{name}` while waiting for a pending call to `{self._pending}` to "
                f"complete: call {self._pending}_wait first",
                self._pending,
            )

    def _check_pending(self, name: str) -> None:
        self._host.check_open()
        if self._pending != name:
            raise NoCallPendingError(
                f"Calling `{name}_wait` without any prior call to `{name}_async`.", name
            )

    def _in_time(self, call: Callable[[float | None], _T], name: str, timeout: float | None) -> _T:
        timeout_s = seconds("timeout", timeout)
        try:
            return call(timeout_s)
        except TimeoutError as error:
            raise CallTimeoutError(
                f"The call to `{name}_wait` has timed out after {timeout} second(s)."
            ) from error

    def _begin_reset(self, seed: Any, options: dict[str, Any] | None) -> Array | None:
        """Sends a reset; returns the rows that a mask marks, None without a mask."""
        self._host.check_open()
        given = dict(options_dict(options))  # wrappers above read the mask from theirs later
        mask = given.pop("reset_mask", None)
        rows = np.arange(self.num_envs) if mask is None else self._masked_rows(mask)
        seeds = self._seeds(seed)
        if mask is None:
            self._discard()
        if rows.size:
            self._host.reset(rows, [seeds[row] for row in rows.tolist()], given or None)
            self._is_first_reset = False  # a reset that was refused leaves the seed to the next
            whole = mask is None and self._synchronous
            self._sent(None if whole else rows, is_reset=True)
        return None if mask is None else rows

    def _end_reset(self, rows: Array | None, timeout_s: float | None) -> tuple[Any, Info]:
        if rows is None:
            batch = self._next_batch(timeout_s, None, None)
            return batch.obs, self._info(batch)
        if rows.size:
            batch = self._next_batch(timeout_s, None, None)
        else:
            self._pending = None
            batch = self._reader.read(rows, {}, same_step=self._same_step)
        return self._reader.observations(slice(None)), self._info(self._widened(batch, rows))

    def _masked_rows(self, mask: Any) -> Array:
        what = "`options['reset_mask']`"
        if not isinstance(mask, np.ndarray):
            raise DTypeError(f"{what} must be a numpy array, got {type(mask)}")
        if mask.shape != (self.num_envs,):
            raise SpecError(f"{what} must have shape `({self.num_envs},)`, got {mask.shape}")
        if mask.dtype != np.bool_:
            raise DTypeError(f"{what} must have `dtype=np.bool_`, got {mask.dtype}")
        if not self._synchronous:
            raise SpecError(
                f"{what} needs a synchronous environment (batch_size == num_envs), this one has "
                f"batch_size {self.batch_size} and num_envs {self.num_envs}"
            )
        self._check_rest("a reset of some environments")
        missing = np.flatnonzero(~mask & ~self._episodes.has_begun)
        if missing.size:
            raise ProtocolError(
                f"{what} leaves out env_id {missing[0] + self.env_id_offset}, which was never reset"
            )
        return np.flatnonzero(mask)

    def _widened(self, batch: Batch, rows: Array) -> Batch:
        """A batch of all N environments, of which only `rows` have something to tell."""
        nothing = np.zeros(self.num_envs, np.bool_)
        truncated = nothing.copy()
        truncated[rows] = batch.truncated
        everything = np.arange(self.num_envs)
        return replace(
            batch,
            terminated=nothing,
            truncated=truncated,
            env_id=(everything + self.env_id_offset).astype(np.int32),
            episode_return=self._episodes.returns.copy(),
            episode_length=self._episodes.lengths.copy(),
            final_obs=self._reader.final_observations() if self._same_step else None,
            records=[(int(rows[place]), record) for place, record in batch.records],
        )

    def _seeds(self, seed: Any) -> list[int | None]:
        if seed is None and self._is_first_reset:
            seed = self._seed
        if seed is None:
            return [None] * self.num_envs
        seeds = seed_list(seed, self.num_envs)
        if np.ndim(seed):
            return seeds
        first = int(seed) + self.env_id_offset
        return list(range(first, first + self.num_envs))
