# SPDX-License-Identifier: Apache-2.0
"""Messages between a ReplayClient and its service: a few numbers, never arrays of items."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rollouts.errors import RolloutsError
from rollouts.replay.shards.shard import ShardReport


class UnreachableError(RolloutsError):
    """Raised where nobody answers at present; the caller may ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The part of a batch that a client may draw from one shard."""

    shard_id: int
    incarnation: int
    actor: str  # name of the shard's process
    count: int
    share: float  # part of all draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An admitted batch, or what was missing in one."""

    size: int  # items in the table
    policy_version: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A batch that a learner has; age and policy_lag as in ReplayBuffer.stats."""

    table: str
    num_items: int
    age: dict[str, float]
    policy_lag: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Deliveries and reports that a client received since it last asked."""

    delivered: tuple[Delivered, ...] = ()
    reports: tuple[tuple[int, int, ShardReport], ...] = ()  # shard_id, incarnation
    lost: tuple[tuple[int, int, str], ...] = ()  # shard_id, incarnation, why
    num_stale_priorities: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question.

    Attributes:
      kind     "sample": a batch that is not admitted yet; "draw": what is missing in one that is,
               because a shard died or had less; "stats", "can_sample"; "news": nothing
      batch    name of the batch, for its place in the queue when it is asked for again
      is_endless  whether that there are no weights yet is an error: who asks is the process of
               the service, and has no timeout
      wait_s   seconds until the answer is None, so that a client that is gone holds up nothing
    """

    kind: Literal["sample", "draw", "stats", "can_sample", "news"]
    table: str = ""
    num_items: int = 0
    batch: str = ""
    is_endless: bool = False
    wait_s: float = 0.0
    news: News = News()


class Link(Protocol):
    """A client's end; picklable. No method waits for an answer."""

    def ask(self, ask: Ask) -> Future[Any]:
        """Asks the service.

        The future has the answer, which is an exception where the service raised one. It fails
        with UnreachableError.

        Raises:
          ClosedError: There is no such service any more.
        """
        ...

    def call(self, actor: str, method: str, *args: Any) -> Future[Any]:
        """Calls a shard; see ShardHandle.call."""
        ...


class Mailbox(Protocol):
    """The service's end. No method waits."""

    def take(self) -> Future[Sequence[tuple[Any, Ask]]]:
        """Takes what was asked since the last call, with a number each; done when something was.

        Fails with UnreachableError.
        """
        ...

    def answer(self, answers: Sequence[tuple[Any, Any]]) -> None:
        """Sends answers by number; those that nobody waits for any more are dropped."""
        ...

    def link(self) -> Link:
        """Returns what a client needs."""
        ...

    def close(self) -> None:
        """Ends it: all that was asked fails with ClosedError at the next attempt."""
        ...
