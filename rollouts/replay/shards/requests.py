# SPDX-License-Identifier: Apache-2.0
"""Samples that several shards were asked for, and priorities that are written back to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from rollouts.replay.arguments import check_updates
from rollouts.replay.clients.asking import Grant, News, Piece
from rollouts.replay.sampling import ReplayBatch
from rollouts.replay.shards.admission import Admission
from rollouts.replay.shards.joining import Drawn, join_drawn
from rollouts.replay.shards.keys import KeyLayout
from rollouts.replay.shards.shard import FragmentLostError, ShardLostError, ShardReport
from rollouts.replay.shards.shard_set import Shard, ShardSet

Array = NDArray[Any]


@dataclass(slots=True, eq=False)
class _Part:
    """The part of a request that was sent to one shard."""

    shard: Shard
    incarnation: int
    count: int
    share: float
    future: Future[tuple[ReplayBatch | None, ShardReport]]
    batch: ReplayBatch | None = None


@dataclass(slots=True, eq=False)
class BatchRequest:
    """A batch on its way."""

    table: str
    batch_size: int
    policy_version: int
    size: int  # items in the table when it was asked for
    parts: list[_Part]
    num_missing: int  # items that have to be drawn (again)


class Requests:
    """Requests samples from shards. Not thread-safe: the owner locks, and no method waits."""

    def __init__(
        self,
        shards: ShardSet,
        admissions: dict[str, Admission],
        keys: KeyLayout,
        most_priority: Mapping[str, float],
    ) -> None:
        """Begins without requests; `most_priority`: highest priority of an item, by table."""
        self._shards = shards
        self._most_priority = most_priority
        self._admissions = admissions
        self._keys = keys
        self.num_stale_priorities = 0
        # items by table: in batches admitted for clients, and in batches that clients report as
        # received
        self.num_admitted, self.num_delivered = Counter[str](), Counter[str]()

    def make(self, table: str, batch_size: int, policy_version: int) -> BatchRequest | None:
        """Asks for a batch, or returns None where the rate limiter does not admit it."""
        admission = self._admissions[table]
        if not admission.can_sample(batch_size):
            return None
        admission.samples += batch_size
        request = BatchRequest(table, batch_size, policy_version, admission.size, [], batch_size)
        self._draw(request)
        return request

    def is_complete(self, request: BatchRequest) -> bool:
        """Returns whether all parts have come; requests again what a shard did not have."""
        for part in [part for part in request.parts if part.batch is None and part.future.done()]:
            if not self._take(part):
                request.parts.remove(part)
            request.num_missing += part.count - (len(part.batch.key) if part.batch else 0)
        self._draw(request)
        return not request.num_missing and all(part.batch for part in request.parts)

    def join(self, request: BatchRequest, beta: float) -> ReplayBatch:
        """Returns the batch of a complete request; needs no lock."""
        drawn = [
            Drawn(part.shard.shard_id, part.incarnation, part.share, part.batch)
            for part in request.parts
            if part.batch is not None
        ]
        return join_drawn(drawn, request.size, keys=self._keys, beta=beta)

    def grant(
        self, table: str, num_items: int, policy_version: int, *, is_admitted: bool
    ) -> Grant | None:
        """Lets a client draw, or returns None where it has to wait.

        Args:
          table: Its name.
          num_items: Size of the batch, or the number of its missing items.
          policy_version: The newest version.
          is_admitted: Whether the limiter admitted them before.

        Raises:
          SpecError: A batch so large that it might never be admitted.
        """
        admission = self._admissions[table]
        if not is_admitted:
            admission.check_batch(num_items)
        # the order of clients' calls of a shard and of ours is not defined, so clients may send
        # none while contents change
        if self._shards.is_loading or not (is_admitted or admission.can_sample(num_items)):
            return None
        pieces = tuple(
            Piece(
                shard_id=shard.shard_id,
                incarnation=shard.incarnation,
                actor=shard.handle.name,
                count=count,
                share=share,
            )
            for shard, count, share in self._shards.draw(table, num_items)
        )
        if not pieces:
            return None
        if not is_admitted:
            admission.samples += num_items
            self.num_admitted[table] += num_items
        return Grant(size=admission.size, policy_version=policy_version, pieces=pieces)

    def hear(self, news: News) -> None:
        """Takes over a client's reports."""
        for shard_id, incarnation, report in news.reports:
            self._shards.see(self._shards.shards[shard_id], incarnation, report)
        for shard_id, incarnation, why in news.lost:
            self._shards.lose(self._shards.shards[shard_id], incarnation, ShardLostError(why))
        for batch in news.delivered:
            self.num_delivered[batch.table] += batch.num_items
        self.num_stale_priorities += news.num_stale_priorities

    def update_priorities(self, table: str, keys: Array, priorities: Array) -> int:
        """See ReplayService.update_priorities."""
        check_updates(keys, priorities, self._most_priority[table])
        place = self._keys.split(keys)
        sent = 0
        for shard in self._shards.shards:
            rows = place.shard_id == shard.shard_id
            rows &= place.life == self._keys.life(shard.incarnation)
            if rows.any() and not shard.is_lost:
                arguments = table, place.key[rows], priorities[rows], shard.incarnation
                shard.handle.call("update_priorities", *arguments)
                sent += int(rows.sum())
        self.num_stale_priorities += len(keys) - sent
        return sent

    def _draw(self, request: BatchRequest) -> None:
        """Requests the missing items, if a shard has items."""
        if not request.num_missing:
            return
        for shard, count, share in self._shards.draw(request.table, request.num_missing):
            arguments = request.table, count, request.policy_version
            future = self._shards.watched(shard.handle.call("sample", *arguments))
            request.parts.append(_Part(shard, shard.incarnation, count, share, future))
            request.num_missing -= count

    def _take(self, part: _Part) -> bool:
        """Takes a shard's answer; returns whether it was a batch."""
        error = part.future.exception()
        if isinstance(error, ShardLostError):
            self._shards.lose(part.shard, part.incarnation, error)
        elif error is not None and not isinstance(error, FragmentLostError):
            raise error
        if error is not None:
            return False
        part.batch, report = part.future.result()
        self._shards.see(part.shard, part.incarnation, report)
        return part.batch is not None
