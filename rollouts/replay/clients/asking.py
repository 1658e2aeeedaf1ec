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
    """Raised where the service cannot be reached at present; the caller may ask again."""


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
    """An admitted batch, or the missing items of one."""

    size: int  # items in the table
    policy_version: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A batch that a learner has received; age and policy_lag as in ReplayBuffer.stats."""

    table: str
    num_items: int
    age: dict[str, float]
    policy_lag: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Deliveries and reports that a client has received since its last question."""

    delivered: tuple[Delivered, ...] = ()
    reports: tuple[tuple[int, int, ShardReport], ...] = ()  # shard_id, incarnation
    lost: tuple[tuple[int, int, str], ...] = ()  # shard_id, incarnation, reason
    num_stale_priorities: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question.

    Attributes:
      kind     "sample": a batch that is not admitted yet; "draw": missing items of an admitted
               batch, because a shard died or had fewer; "stats", "can_sample"; "news": no question
      batch    name of the batch, which keeps its place in the queue when it is asked for again
      is_endless  whether missing weights are an error: the client is in the process of the service,
               and waits without a timeout
      wait_s   seconds until the answer is None, so that a client that is gone delays no other
    """

    kind: Literal["sample", "draw", "stats", "can_sample", "news"]
    table: str = ""
    num_items: int = 0
    batch: str = ""
    is_endless: bool = False
    wait_s: float = 0.0
    news: News = News()


class Link(Protocol):
    """A client's end of the connection; picklable. No method waits for an answer."""

    def ask(self, ask: Ask) -> Future[Any]:
        """Sends a question to the service.

        The future has the answer, which is an exception where the service raised one. It fails with
        UnreachableError if the service cannot be reached.

        Raises:
          ClosedError: The service no longer exists.
        """
        ...

    def call(self, actor: str, method: str, *args: Any) -> Future[Any]:
        """Calls a shard; see ShardHandle.call."""
        ...


class Mailbox(Protocol):
    """The service's end of the connection. No method waits."""

    def take(self) -> Future[Sequence[tuple[Any, Ask]]]:
        """Takes the questions since the last call, each with a number.

        The future is done when there is a question; it fails with UnreachableError.
        """
        ...

    def answer(self, answers: Sequence[tuple[Any, Any]]) -> None:
        """Sends answers by number; answers that no client waits for any more are dropped."""
        ...

    def link(self) -> Link:
        """Returns the link that a client needs."""
        ...

    def close(self) -> None:
        """Closes the mailbox: every question fails with ClosedError at the next attempt."""
        ...
