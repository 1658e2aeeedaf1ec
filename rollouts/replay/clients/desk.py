# SPDX-License-Identifier: Apache-2.0
"""Answers the clients of a ReplayService, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rollouts.errors import ClosedError
from rollouts.replay.clients.asking import Ask, Mailbox, UnreachableError
from rollouts.support import at_exit
from rollouts.support.no_room import start_thread

if TYPE_CHECKING:
    from rollouts.replay.shards.shard_driver import ShardDriver

_log = logging.getLogger(__name__)

# the thread checks again after this long, even without a message
_LOOK_S = 0.5
_RETRY_S = 0.05
_JOIN_TIMEOUT_S = 10.0
# a batch that is not asked for again within this time has lost its place
_PLACE_S = 10.0

_NOT_YET = object()


@dataclass(slots=True, eq=False)
class _Waiting:
    number: Any
    ask: Ask
    since: float  # time.monotonic of the batch's first question, seconds
    until: float
    fresh: int | None  # see Supply.why_none


class Desk:
    """Decides which client's batch is admitted next.

    Batches of one table are admitted in the order of their first questions, so that small ones do
    not starve a large one. The desk reserves nothing for a client: a batch counts as sampled when
    it is admitted, a question ends after its `wait_s`, and a living client repeats it. A client
    that dies delays the others by no more than its `wait_s`.

    Only the thread uses the attributes that change.
    """

    def __init__(self, driver: ShardDriver, mailbox: Mailbox) -> None:
        """Starts the thread."""
        self._driver = driver
        self._mailbox = mailbox
        self._signal = driver.signal
        self._stopping = threading.Event()
        self._waiting: list[_Waiting] = []
        self._places: dict[str, tuple[float, float]] = {}  # by batch: since, last asked
        self._thread = threading.Thread(target=self._run, name="rollouts-replay-desk", daemon=True)
        start_thread(self._thread)
        at_exit.call_at_exit(self._stop)

    def close(self) -> None:
        """Refuses the waiting clients, and ends the thread. Idempotent."""
        self._stop(_JOIN_TIMEOUT_S)
        self._mailbox.close()

    def _stop(self, timeout_s: float = at_exit.TIMEOUT_S) -> None:
        self._stopping.set()
        self._signal.wake()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            taking = self._take()
            while not self._stopping.is_set():
                seen = self._signal.count
                if taking.done():
                    self._hear(taking)
                    taking = self._take()
                self._answer()
                left_s = [each.until - time.monotonic() for each in self._waiting]
                self._signal.wait(seen, min([_LOOK_S, *(max(0.0, s) for s in left_s)]))
            self._refuse(ClosedError("the replay service is closed"))
        except Exception as error:
            # the mailbox is gone, so clients that wait get no answer
            _log.warning("the clients of a replay service get no more answers: %s", error)

    def _take(self) -> Future[Any]:
        taking = self._mailbox.take()
        taking.add_done_callback(lambda done: self._signal.wake())
        return taking

    def _hear(self, taking: Future[Any]) -> None:
        """Adds new questions to those that wait."""
        error = taking.exception()
        if isinstance(error, UnreachableError):
            self._stopping.wait(_RETRY_S)
            return
        now = time.monotonic()
        for number, ask in taking.result():
            self._driver.hear(ask.news)
            since, _ = self._places.pop(ask.batch, (now, now))
            fresh = self._driver.supply.first_fresh if ask.is_endless else None
            self._waiting.append(_Waiting(number, ask, since, now + ask.wait_s, fresh))

    def _answer(self) -> None:
        """Answers the questions that have an answer, and those whose time is up."""
        now = time.monotonic()
        answers: list[tuple[Any, Any]] = []
        kept: list[_Waiting] = []
        not_first: set[str] = set()
        for each in sorted(self._waiting, key=lambda each: each.since):
            answer = self._attempt(each, is_first=each.ask.table not in not_first)
            if answer is _NOT_YET and each.ask.kind == "sample":
                not_first.add(each.ask.table)
            if answer is _NOT_YET and now < each.until:
                kept.append(each)
                continue
            if answer is _NOT_YET:
                answer = None
                self._places[each.ask.batch] = (each.since, now)
            answers.append((each.number, answer))
        self._waiting = kept
        self._places = {
            batch: (since, last)
            for batch, (since, last) in self._places.items()
            if now - last < _PLACE_S
        }
        if answers:
            self._mailbox.answer(answers)

    def _attempt(self, waiting: _Waiting, *, is_first: bool) -> Any:
        """Returns the answer, which may be an exception, or _NOT_YET."""
        ask = waiting.ask
        try:
            match ask.kind:
                case "stats":
                    return self._driver.stats()
                case "can_sample":
                    return self._driver.can_sample(ask.table, ask.num_items)
                case "news":
                    return True
            if ask.kind == "sample" and not is_first:
                return _NOT_YET
            waited_s = time.monotonic() - waiting.since
            grant = self._driver.grant(
                ask.table,
                ask.num_items,
                is_admitted=ask.kind == "draw",
                waited_s=waited_s,
                fresh=waiting.fresh,
            )
            return _NOT_YET if grant is None else grant
        except Exception as error:
            return error

    def _refuse(self, error: Exception) -> None:
        self._mailbox.answer([(each.number, error) for each in self._waiting])
        self._waiting = []
