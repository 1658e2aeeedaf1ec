# SPDX-License-Identifier: Apache-2.0
"""The learner's interface of every replay: ReplayBuffer, ReplayService and ReplayClient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rollouts.errors import SpecError
from rollouts.replay.config import TableConfig
from rollouts.replay.sampling import ReplayBatch

if TYPE_CHECKING:
    import torch

    from rollouts.replay.prefetch import ReplayPrefetcher


class SampledReplay(ABC):
    """Base of all replays from which a learner draws batches with `sample`."""

    tables: Mapping[str, TableConfig]

    @abstractmethod
    def sample(
        self,
        batch_size: int,
        *,
        table: str | None = None,
        beta: float = 0.4,
        timeout_s: float | None = None,
        device: str | torch.device | None = None,
    ) -> ReplayBatch: ...

    @abstractmethod
    def close(self) -> None: ...

    def prefetch(
        self,
        batch_size: int,
        *,
        table: str | None = None,
        beta: float = 0.4,
        device: str | torch.device = "cpu",
        depth: int = 2,
    ) -> ReplayPrefetcher:
        """Samples on a thread of its own, up to `depth` batches ahead of the learner."""
        from rollouts.replay.prefetch import ReplayPrefetcher

        name = self._table(table)
        return ReplayPrefetcher(
            lambda timeout_s, takers: self._sample_ahead(batch_size, name, beta, timeout_s, takers),
            device,
            depth=depth,
        )

    @abstractmethod
    def _sample_ahead(
        self, batch_size: int, table: str, beta: float, timeout_s: float, takers: Collection[int]
    ) -> ReplayBatch:
        """Samples for the threads `takers`, which wait for it without a timeout.

        Raises:
          ProtocolError: The takers would wait for ever; their own call of `sample` would raise
            this, too.
        """
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _table(self, name: str | None) -> str:
        if name is None:
            return next(iter(self.tables))
        if not isinstance(name, str) or name not in self.tables:
            raise SpecError(f"there is no table {name!r}, expected one of {list(self.tables)}")
        return name


def on_device(batch: ReplayBatch, device: str | torch.device | None) -> ReplayBatch:
    """Returns the batch with tensors on this device instead of arrays; None: the batch as it is."""
    if device is None:
        return batch
    from rollouts.replay.prefetch import move

    return move(batch, device)
