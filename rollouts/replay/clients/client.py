# SPDX-License-Identifier: Apache-2.0
"""ReplayClient: a learner in another process samples from a ReplayService."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
import uuid
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from rollouts.errors import ClosedError
from rollouts.replay.arguments import (
    as_batch_size,
    as_beta,
    as_count,
    as_floats,
    as_timeout,
    as_whole,
    check_updates,
)
from rollouts.replay.clients.asking import Ask, Delivered, Grant, Link, News, UnreachableError
from rollouts.replay.clients.draft import Draft
from rollouts.replay.config import TableConfig
from rollouts.replay.faces import SampledReplay, on_device
from rollouts.replay.reader import summary
from rollouts.replay.sampling import ReplayBatch
from rollouts.replay.shards.joining import join_drawn
from rollouts.replay.shards.keys import KeyLayout
from rollouts.replay.shards.shard import ShardLostError
from rollouts.replay.shards.signal import Signal
from rollouts.support.same_release import sealed

if TYPE_CHECKING:
    import torch

# seconds that a question waits at the service; a client that is still alive then asks again
_ASK_S = 1.0
# seconds until a service that could not be reached is tried again
_RETRY_S = 0.1


class ReplayClient(SampledReplay):
    """Samples from a ReplayService in another process: `ReplayService.client` makes it.

    Any number of clients share one service, in Ray actors or tasks or in other drivers of the same
    Ray. The service's limiter admits their batches in the order of their questions, and the shards
    send the items straight to the clients: the arrays pass neither the service nor other clients. A
    learner uses a client like a `ReplayBuffer`, with the same batches, priorities, `prefetch` and
    `ReplayDataset`.

    A batch counts as sampled when it is admitted, and the service reserves nothing for a client. A
    client that dies delays others by at most a second, and batches that it did not receive stay
    counted as sampled: stats()["clients"] has their number. If a shard dies meanwhile, its part is
    drawn again, from the restarted shard or from others, within the same admission.

    Picklable: an actor that gets one requests its own batches. Thread-safe.

    Example:
      @ray.remote
      class Learner:
          def __init__(self, client):
              self.batches = client.prefetch(256, device="cuda")
      learners = [Learner.remote(service.client()) for _ in range(4)]
    """

    def __init__(
        self,
        link: Link,
        tables: Mapping[str, TableConfig],
        keys: KeyLayout,
        *,
        is_here: bool = False,
    ) -> None:
        """Takes the link to the service, without asking it; ReplayService.client calls this."""
        self.tables = MappingProxyType(dict(tables))
        self.policy_version = 0  # the newest version that the service reported
        self._link = link
        self._keys = keys
        self._is_here = is_here  # whether this is the service's process
        self._name = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._signal = Signal()  # Ray's threads call this too
        self._lock = threading.Lock()  # guards all below
        self._closed = False
        self._shards: dict[int, tuple[int, str]] = {}  # latest known incarnation and actor
        self._unclaimed: list[Draft] = []  # drafts of samples that timed out
        self._news = News()  # counts that were not reported to the service yet

    def __reduce__(self) -> Any:
        return sealed(ReplayClient, self._link, dict(self.tables), self._keys)

    def sample(
        self,
        batch_size: int,
        *,
        table: str | None = None,
        beta: float = 0.4,
        timeout_s: float | None = None,
        device: str | torch.device | None = None,
    ) -> ReplayBatch:
        """Waits until the service admits the whole batch and its shards have sent it.

        Args:
          batch_size: Items B.
          table: Name of the table; None: the first.
          beta: Exponent of the importance weights over all shards; 0: none, 1: full correction.
          timeout_s: Seconds to wait; None: for ever. A batch that is still on its way then is
            returned by the next call for the same number of items.
          device: None: NumPy arrays, which may be read-only; else tensors there.

        Returns:
          As ReplayService.sample:
          A `TransitionBatch` or `SequenceBatch`, in the order of the shards.

        Raises:
          TimeoutError: Not admitted or not there within timeout_s.
          SpecError: A batch so large that it might never be admitted.
          WorkerError: No worker is left and there are too few items, a shard died too often, or
            this process is not connected to Ray.
          ProtocolError: Without timeout_s, in the process of the service, where no weights were
            published yet.
          ClosedError: The service or this client was closed, or the service's process ended.
        """
        timeout_s = as_timeout(timeout_s)
        is_endless = timeout_s is None
        batch = self._sample(
            as_batch_size(batch_size), self._table(table), as_beta(beta), timeout_s, is_endless
        )
        return on_device(batch, device)

    def _sample_ahead(
        self, batch_size: int, table: str, beta: float, timeout_s: float, takers: Collection[int]
    ) -> ReplayBatch:
        batch_size, beta = as_batch_size(batch_size), as_beta(beta)
        return self._sample(batch_size, table, beta, timeout_s, bool(takers))

    def _sample(
        self, batch_size: int, table: str, beta: float, timeout_s: float | None, is_endless: bool
    ) -> ReplayBatch:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        draft = self._begin(table, batch_size)
        while True:
            seen = self._signal.count
            self._check_open()
            left_s = _ASK_S if deadline is None else min(_ASK_S, deadline - time.monotonic())
            if self._advance(draft, max(0.0, left_s), is_endless and self._is_here):
                break
            if left_s <= 0:
                with self._lock:
                    self._unclaimed.append(draft)
                what = "sampled" if draft.is_admitted else "admitted by the rate limiter"
                raise TimeoutError(f"{batch_size} items were not {what} within {timeout_s} s")
            self._signal.wait(seen, min(left_s, _RETRY_S) if draft.may_ask else left_s)
        batch = join_drawn(draft.drawn, draft.size, keys=self._keys, beta=beta)
        delivered = Delivered(
            table=draft.table,
            num_items=batch_size,
            age=summary(batch.age),
            policy_lag=summary(batch.policy_lag),
        )
        self._tell(delivered=(delivered,))
        return batch

    def update_priorities(
        self, keys: ArrayLike, priorities: ArrayLike, *, table: str | None = None
    ) -> int:
        """Sets the priorities (B,) of the items `keys` (B,), arrays or tensors; does not wait.

        They go to the shards directly. Items that were removed are skipped, and so are items of a
        shard that died or was loaded, which the service counts in stats()["stale_priorities"].

        Returns:
          The number of items whose shards live, as far as this client knows.

        Raises:
          SpecError: A priority is negative or not finite, or there are not as many as keys.
          ClosedError: This client was closed.
        """
        name = self._table(table)
        all_keys, values = as_whole("keys", keys), as_floats("priorities", priorities)
        check_updates(all_keys, values, self.tables[name].most_priority)
        self._check_open()
        place = self._keys.split(all_keys)
        with self._lock:
            shards = dict(self._shards)
        sent = 0
        for shard_id, (incarnation, actor) in shards.items():
            rows = place.shard_id == shard_id
            rows &= place.life == self._keys.life(incarnation)
            if rows.any():
                arguments = name, place.key[rows], values[rows], incarnation
                future = self._link.call(actor, "update_priorities", *arguments)
                num_items = int(rows.sum())
                future.add_done_callback(functools.partial(self._count_stale, num_items))
                sent += num_items
        self._tell(num_stale_priorities=len(all_keys) - sent)
        return sent

    def size(self, table: str | None = None, *, timeout_s: float = 60.0) -> int:
        """Items in a table; errors as `stats`."""
        name = self._table(table)
        return int(self.stats(timeout_s=timeout_s)["tables"][name]["size"])

    def can_sample(self, n: int = 1, *, table: str | None = None, timeout_s: float = 60.0) -> bool:
        """Returns whether the rate limiter would admit n samples now; errors as `stats`."""
        name = self._table(table)
        ask = Ask(kind="can_sample", table=name, num_items=as_count(n))
        return bool(self._question(ask, timeout_s))

    def stats(self, *, timeout_s: float = 60.0) -> dict[str, Any]:
        """Returns ReplayService.stats, including all that this client has received.

        Raises:
          TimeoutError: No answer within timeout_s.
          ClosedError, WorkerError: As `sample`.
        """
        found: dict[str, Any] = self._question(Ask(kind="stats"), timeout_s)
        return found

    def close(self) -> None:
        """Reports the last batch to the service, and ends waiting calls. May be called twice.

        The service goes on.
        """
        with self._lock:
            was_closed, self._closed = self._closed, True
        if not was_closed:
            # the service may be gone
            with contextlib.suppress(Exception):
                self._ask(Ask(kind="news"))
        self._signal.wake()

    def _begin(self, table: str, batch_size: int) -> Draft:
        """Returns a batch that timed out earlier, or a new one."""
        with self._lock:
            for draft in self._unclaimed:
                if (draft.table, draft.batch_size) == (table, batch_size):
                    self._unclaimed.remove(draft)
                    return draft
        return Draft(f"{self._name}-{next(self._numbers)}", table, batch_size)

    def _advance(self, draft: Draft, wait_s: float, is_endless: bool) -> bool:
        """Does the next steps of a batch that are possible now; returns whether it is complete."""
        for piece, found in draft.take_parts():
            if isinstance(found, ShardLostError):
                self._tell(lost=((piece.shard_id, piece.incarnation, str(found)),))
            else:
                self._tell(reports=((piece.shard_id, piece.incarnation, found),))
        grant = draft.take_grant()
        if grant is not None:
            self._draw(draft, grant)
        if draft.may_ask:
            ask = Ask(
                kind="draw" if draft.is_admitted else "sample",
                table=draft.table,
                num_items=draft.num_missing,
                batch=draft.name,
                wait_s=wait_s,
                is_endless=is_endless,
            )
            draft.asked(self._ask(ask))
        return draft.is_complete

    def _draw(self, draft: Draft, grant: Grant) -> None:
        """Asks the shards for the items that were granted."""
        self.policy_version = max(self.policy_version, grant.policy_version)
        for piece in grant.pieces:
            arguments = draft.table, piece.count, grant.policy_version
            future = self._link.call(piece.actor, "sample", *arguments)
            draft.drawing(piece, future)
            future.add_done_callback(lambda done: self._signal.wake())
            with self._lock:
                known, _ = self._shards.get(piece.shard_id, (-1, ""))
                if piece.incarnation >= known:
                    self._shards[piece.shard_id] = (piece.incarnation, piece.actor)

    def _ask(self, ask: Ask) -> Future[Any]:
        with self._lock:
            news, self._news = self._news, News()
        future = self._link.ask(replace(ask, news=news))
        future.add_done_callback(lambda done: self._signal.wake())
        return future

    def _question(self, ask: Ask, timeout_s: float) -> Any:
        """Repeats a question until there is an answer."""
        deadline = time.monotonic() + timeout_s
        asking = self._ask(ask)
        while True:
            seen = self._signal.count
            self._check_open()
            if asking.done() and not isinstance(asking.exception(), UnreachableError):
                answer = asking.result()
                if isinstance(answer, Exception):
                    raise answer
                return answer
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"the replay service did not answer within {timeout_s} s")
            if asking.done():
                self._signal.wait(seen, min(left_s, _RETRY_S))
                asking = self._ask(ask)
            else:
                self._signal.wait(seen, min(left_s, _ASK_S))

    def _tell(
        self,
        *,
        delivered: tuple[Delivered, ...] = (),
        reports: tuple[Any, ...] = (),
        lost: tuple[Any, ...] = (),
        num_stale_priorities: int = 0,
    ) -> None:
        """Keeps news until the next question."""
        with self._lock:
            self._news = News(
                delivered=self._news.delivered + delivered,
                reports=self._news.reports + reports,
                lost=self._news.lost + lost,
                num_stale_priorities=self._news.num_stale_priorities + num_stale_priorities,
            )

    def _count_stale(self, num_items: int, done: Future[Any]) -> None:
        if done.exception() is not None or not done.result():
            self._tell(num_stale_priorities=num_items)

    def _check_open(self) -> None:
        with self._lock:
            if self._closed:
                raise ClosedError("the replay client is closed")
