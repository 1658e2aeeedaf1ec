# SPDX-License-Identifier: Apache-2.0
"""A batch on its way to a client: asked for, admitted, drawn from shards, perhaps drawn again."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rollouts.replay.clients.asking import Grant, Piece, UnreachableError
from rollouts.replay.sampling import ReplayBatch
from rollouts.replay.shards.joining import Drawn
from rollouts.replay.shards.shard import FragmentLostError, ShardLostError

# seconds until a service that could not be reached is asked again
_RETRY_S = 0.1


@dataclass(slots=True, eq=False)
class _Part:
    piece: Piece
    future: Future[Any]
    batch: ReplayBatch | None = None


class Draft:
    """A batch in progress. One thread works on it at a time; no method waits."""

    def __init__(self, name: str, table: str, batch_size: int) -> None:
        """Begins without a request to the service."""
        self.name = name
        self.table = table
        self.batch_size = batch_size
        self.size = 0  # items in the table when the batch was granted
        self.is_admitted = False
        self.num_missing = batch_size  # items that no shard was asked for yet
        self._asking: Future[Any] | None = None
        self._ask_again_at = 0.0
        self._parts: list[_Part] = []

    @property
    def may_ask(self) -> bool:
        """Tells if the service must be asked now."""
        late_enough = time.monotonic() >= self._ask_again_at
        return bool(self.num_missing) and self._asking is None and late_enough

    @property
    def is_complete(self) -> bool:
        """Tells if all items have come."""
        return not self.num_missing and all(part.batch for part in self._parts)

    @property
    def drawn(self) -> list[Drawn]:
        """The parts of a complete batch."""
        return [
            Drawn(part.piece.shard_id, part.piece.incarnation, part.piece.share, part.batch)
            for part in self._parts
            if part.batch is not None
        ]

    def asked(self, asking: Future[Any]) -> None:
        """Records that the service was asked for the missing items."""
        self._asking = asking

    def take_grant(self) -> Grant | None:
        """Returns what the service granted; None: it has not answered.

        Raises:
          Exception: What the service raised.
        """
        if self._asking is None or not self._asking.done():
            return None
        asking, self._asking = self._asking, None
        if isinstance(asking.exception(), UnreachableError):
            self._ask_again_at = time.monotonic() + _RETRY_S
            return None
        answer = asking.result()
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return None
        grant: Grant = answer
        self.is_admitted, self.size = True, grant.size
        return grant

    def drawing(self, piece: Piece, future: Future[Any]) -> None:
        """Records that a shard was asked."""
        self._parts.append(_Part(piece, future))
        self.num_missing -= piece.count

    def take_parts(self) -> list[tuple[Piece, Any]]:
        """Takes the answers of shards.

        Returns:
          For each shard that answered, its ShardReport, or the ShardLostError of a shard that died.

        Raises:
          Exception: What a shard raised.
        """
        found: list[tuple[Piece, Any]] = []
        for part in [p for p in self._parts if p.batch is None and p.future.done()]:
            error = part.future.exception()
            if error is not None and not isinstance(error, ShardLostError | FragmentLostError):
                raise error
            if isinstance(error, ShardLostError):
                found.append((part.piece, error))
            elif error is None:
                part.batch, report = part.future.result()
                found.append((part.piece, report))
            if part.batch is None:
                self._parts.remove(part)
            self.num_missing += part.piece.count - (len(part.batch.key) if part.batch else 0)
        return found
