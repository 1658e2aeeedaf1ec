# SPDX-License-Identifier: Apache-2.0
"""A replay as a torch dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollouts.errors import ProtocolError, SpecError
from rollouts.replay.faces import SampledReplay
from rollouts.replay.sampling import ReplayBatch
from rollouts.support.extras import needs

with needs("torch", "ReplayDataset"):
    import torch
    from torch.utils.data import IterableDataset, get_worker_info


class ReplayDataset(IterableDataset[ReplayBatch]):
    """Yields newly sampled batches of tensors; for `DataLoader(dataset, batch_size=None)`.

    The buffer is in this process, so the loader must have no workers (num_workers=0): to sample
    ahead use `ReplayBuffer.prefetch`.
    """

    def __init__(
        self,
        buffer: SampledReplay,
        batch_size: int,
        *,
        table: str | None = None,
        beta: float = 0.4,
        timeout_s: float | None = None,
        num_batches: int | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        """Takes the arguments; samples nothing yet.

        Args:
          buffer: ReplayBuffer, ReplayService or ReplayClient.
          batch_size, table, beta, timeout_s, device: As `ReplayBuffer.sample`.
          num_batches: Batches of one iteration; None: no end.

        Raises:
          SpecError: num_batches < 1.
        """
        if num_batches is not None and num_batches < 1:
            raise SpecError(f"num_batches is {num_batches}, expected at least 1, or None")
        self._buffer = buffer
        self._batch_size = batch_size
        self._num_batches = num_batches
        self._options: dict[str, Any] = {
            "table": table,
            "beta": beta,
            "timeout_s": timeout_s,
            "device": device,
        }

    def __iter__(self) -> Iterator[ReplayBatch]:
        """Samples; the errors of `ReplayBuffer.sample` pass through.

        Raises:
          ProtocolError: In a worker process of a DataLoader.
        """
        if get_worker_info() is not None:
            raise ProtocolError(
                "a ReplayDataset was iterated in a worker of a DataLoader, which has no buffer: "
                "use num_workers=0, and ReplayBuffer.prefetch to sample ahead"
            )
        taken = 0
        while self._num_batches is None or taken < self._num_batches:
            yield self._buffer.sample(self._batch_size, **self._options)
            taken += 1
