# SPDX-License-Identifier: Apache-2.0
"""`Resets`: new episodes of all environments, or of those that a mask marks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.checks import options_dict, seed_list
from rollouts.envs.hosted.batches import Batch, BatchReader, HostedEpisodes
from rollouts.envs.hosted.in_flight import InFlight
from rollouts.envs.hosted.processes.host import Host
from rollouts.envs.hosted.receiver import BatchReceiver
from rollouts.errors import DTypeError, ProtocolError, SpecError

Array = npt.NDArray[Any]


class Resets:
    """Starts resets with their seeds, and reads their results."""

    def __init__(
        self,
        host: Host,
        episodes: HostedEpisodes,
        flight: InFlight,
        reader: BatchReader,
        receiver: BatchReceiver,
        *,
        batch_size: int,
        env_id_offset: int,
        same_step: bool,
        seed: int | None,
    ) -> None:
        """Takes the seed of the first reset, and the objects that send and receive."""
        self._host, self._episodes, self._flight = host, episodes, flight
        self._reader, self._receiver = reader, receiver
        self._batch_size, self._offset, self._seed = batch_size, env_id_offset, seed
        self._num_envs, self._same_step = host.num_envs, same_step
        self._is_synchronous = batch_size == host.num_envs
        self._is_first = True

    def begin(self, seed: Any, options: dict[str, Any] | None) -> Array | None:
        """Sends a reset; returns the rows that a mask marks, None without a mask.

        Raises:
          SpecError, DTypeError, ProtocolError, ClosedError: As `VectorEnv.reset`; nothing has
            changed then.
        """
        self._host.check_open()
        given = dict(options_dict(options))  # a copy: wrappers read the mask later
        mask = given.pop("reset_mask", None)
        rows = np.arange(self._num_envs) if mask is None else self._masked_rows(mask)
        seeds = self._seeds(seed)
        if mask is None:
            self._receiver.discard()
        if rows.size:
            self._send(rows, seeds, given or None, is_whole=mask is None)
        return None if mask is None else rows

    def begin_all(self) -> None:
        """Sends a reset of all environments, which go on in their random streams."""
        self._receiver.discard()
        self._send(np.arange(self._num_envs), self._seeds(None), None, is_whole=True)

    def end(self, rows: Array | None, timeout_s: float | None) -> Batch:
        """Waits for the resets that `begin` has sent; a masked reset shows all N environments."""
        if rows is None:
            return self._receiver.next_batch(timeout_s)
        if rows.size:
            batch = self._receiver.next_batch(timeout_s)
        else:
            self._flight.pending = None
            batch = self._reader.read(rows, {}, same_step=self._same_step)
        return self._widened(batch, rows)

    def _send(
        self,
        rows: Array,
        seeds: list[int | None],
        options: dict[str, Any] | None,
        *,
        is_whole: bool,
    ) -> None:
        self._host.reset(rows, [seeds[row] for row in rows.tolist()], options)
        self._is_first = False  # a reset that was refused leaves the seed to the next
        self._flight.send(None if is_whole and self._is_synchronous else rows, is_reset=True)

    def _masked_rows(self, mask: Any) -> Array:
        what = "`options['reset_mask']`"
        if not isinstance(mask, np.ndarray):
            raise DTypeError(f"{what} must be a numpy array, got {type(mask)}")
        if mask.shape != (self._num_envs,):
            raise SpecError(f"{what} must have shape `({self._num_envs},)`, got {mask.shape}")
        if mask.dtype != np.bool_:
            raise DTypeError(f"{what} must have `dtype=np.bool_`, got {mask.dtype}")
        if not self._is_synchronous:
            raise SpecError(
                f"{what} needs a synchronous environment (batch_size == num_envs), this one has "
                f"batch_size {self._batch_size} and num_envs {self._num_envs}"
            )
        self._flight.check_rest("a reset of some environments")
        missing = np.flatnonzero(~mask & ~self._episodes.has_begun)
        if missing.size:
            raise ProtocolError(
                f"{what} leaves out env_id {missing[0] + self._offset}, which was never reset"
            )
        return np.flatnonzero(mask)

    def _widened(self, batch: Batch, rows: Array) -> Batch:
        """A batch of all N environments, in which only `rows` have infos and failures."""
        nothing = np.zeros(self._num_envs, np.bool_)
        truncated = nothing.copy()
        truncated[rows] = batch.truncated
        everything = np.arange(self._num_envs)
        return batch._replace(
            obs=self._reader.observations(slice(None)),
            reward=np.zeros(self._num_envs),
            terminated=nothing,
            truncated=truncated,
            env_id=(everything + self._offset).astype(np.int32),
            episode_return=self._episodes.returns.copy(),
            episode_length=self._episodes.lengths.copy(),
            final_obs=None if batch.final_obs is None else self._reader.final_observations(),
            records=[(int(rows[place]), record) for place, record in batch.records],
        )

    def _seeds(self, seed: Any) -> list[int | None]:
        if seed is None and self._is_first:
            seed = self._seed
        if seed is None:
            return [None] * self._num_envs
        seeds = seed_list(seed, self._num_envs)
        if np.ndim(seed):
            return seeds
        first = int(seed) + self._offset
        return list(range(first, first + self._num_envs))
