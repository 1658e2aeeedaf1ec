# SPDX-License-Identifier: Apache-2.0
"""A bounded, closable queue between the workers' fragments and the learner.

The queue holds *handles*: small objects that stand for a fragment and can fetch its arrays. Arrays
are fetched only in `LearnerQueue.get`, on the learner's thread. The module does not depend on Ray.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from rollouts.errors import ClosedError, ProtocolError, SpecError, WorkerError
from rollouts.learner.account import Account
from rollouts.learner.backlog import Backlog
from rollouts.learner.fetching import Claim, Transfer, bring, in_slices
from rollouts.learner.fragment import Fragment, FragmentHandle

_log = logging.getLogger(__name__)

T = TypeVar("T")


class QueueLevels(NamedTuple):
    """Levels of a queue, in fragments: its capacity, its depth, and how many are wanted."""

    capacity: int
    depth: int
    wanted: int  # fragments that waiting `get` calls lack, including queued ones
    num_taken: int  # by `get` so far, without those put back or lost
    held: int  # taken by a `get` that has not returned: no longer in `depth`, still "queued"


class LearnerQueue:
    """Hands every fragment to the learner exactly once, in the order of arrival.

    A fragment is identified by (worker_id, incarnation, seq_no). A worker's incarnations only grow,
    and within an incarnation seq_no counts 0, 1, 2, ...; so one counter per worker is enough to
    refuse fragments that come twice or late.

    Thread-safe. All state is guarded by the one lock inside `_changed`; no handle is resolved and
    no callback is called while it is held, so it is always the last lock taken.

    The account balances at any moment, in env-steps and in fragments:
    produced = delivered + queued + sum(discarded by reason).
    """

    def __init__(
        self,
        capacity: int,
        *,
        on_change: Callable[[], None] | None = None,
        is_stale: Callable[[FragmentHandle], bool] | None = None,
    ) -> None:
        """Makes an empty queue.

        Args:
          capacity: Most fragments held at a time, and most that one `get` can ask for.
          on_change: Called without the lock, on the consumer's thread, when a `get` begins to want
            fragments and when room became free.
          is_stale: Returns whether a fragment is too old to be delivered; fragments of older
            weights become stale first. It must take no lock.
        """
        self._capacity = _checked_capacity(capacity)
        self._on_change = on_change or (lambda: None)
        self._changed = threading.Condition(threading.Lock())
        self._items = Backlog(is_stale or (lambda handle: False))
        self._expected: dict[int, tuple[int, int]] = {}
        self._failure: Exception | None = None
        self._closed = False
        self._claims: set[Claim] = set()
        self._num_taken = 0
        self._steps = Account()
        self._fragments = Account()

    @property
    def capacity(self) -> int:
        """Most fragments held at a time. If it is lowered, a waiting `get` keeps its room."""
        with self._changed:
            return self._capacity

    @capacity.setter
    def capacity(self, capacity: int) -> None:
        with self._changed:
            self._capacity = _checked_capacity(capacity)
            self._changed.notify_all()

    @property
    def depth(self) -> int:
        """Fragments waiting to be taken."""
        with self._changed:
            return len(self._items)

    def levels(self) -> QueueLevels:
        """Returns the numbers that producers need, all from one moment."""
        with self._changed:
            return self._levels()

    def snapshot(self) -> tuple[dict[str, Any], QueueLevels]:
        """Returns `stats` and `levels`, both of the same moment."""
        with self._changed:
            queued = self._queued()
            stats = {
                "env_steps": self._steps.as_dict(),
                "fragments": self._fragments.as_dict(),
                "queue_depth": len(queued),
                "queued_bytes": sum(handle.info.nbytes for handle in queued),
            }
            return stats, self._levels()

    @property
    def closed(self) -> bool:
        """Tells if `close` was called."""
        with self._changed:
            return self._closed

    def put(self, handle: FragmentHandle, timeout_s: float | None = None) -> bool:
        """Adds a completed fragment, waiting while the queue is full.

        Returns or raises after: room (also made by `get`), refusal, `timeout_s`, `fail`, `close`.

        Args:
          handle: The fragment.
          timeout_s: Seconds to wait for room; None waits for ever.
        Returns:
          True if it was queued; False if it was refused as a repetition, which counts as discarded.
        Raises:
          TimeoutError: no room within timeout_s; the fragment is not counted and may be put again.
          ProtocolError: the worker's fragments before this one are missing; it was discarded.
          ClosedError: the queue was closed or failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._has_room, timeout_s)
            if self._is_over:
                raise ClosedError("the learner queue is closed: no more fragments are accepted")
            if not self._has_room:
                raise TimeoutError(
                    f"the learner queue held {self._capacity} fragments for {timeout_s} s, "
                    "expected the learner to take some"
                )
            return self._admit(handle)

    def admit(self, handle: FragmentHandle) -> bool:
        """Does the same as `put`, without waiting; the caller must not exceed `levels`."""
        with self._changed:
            if self._is_over:
                raise ClosedError("the learner queue is closed: no more fragments are accepted")
            return self._admit(handle)

    def refuse(self, handle: FragmentHandle, reason: str) -> None:
        """Counts a completed fragment that can no longer be queued as discarded. Never blocks."""
        with self._changed:
            self._count_produced(handle)
            self._count_discarded(handle, reason)

    def drop_stale(self) -> int:
        """Discards queued fragments that are too old, as "stale"; returns their number."""
        with self._changed:
            stale = self._items.drop_stale()
            for handle in stale:
                self._count_discarded(handle, "stale")
            if stale:
                self._changed.notify_all()
            return len(stale)

    def get(self, num_fragments: int = 1, timeout_s: float | None = None) -> list[Fragment]:
        """Takes the oldest fragments and fetches their arrays: all `num_fragments` or none.

        Returns or raises after: enough fragments, `timeout_s`, `fail`, `close`, KeyboardInterrupt.
          Fragments taken before an exception go back to the front, so none is lost.

        Args:
          num_fragments: How many; at most `capacity`, because more cannot be queued together.
          timeout_s: Seconds to wait; None waits for ever.
        Returns:
          The fragments in order of arrival.
        Raises:
          TimeoutError: fewer fragments arrived within timeout_s.
          ClosedError: the queue was closed.
          Exception: the error given to `fail`, once too few fragments are left.
        """
        return self._get(num_fragments, timeout_s, self._resolve)

    def get_handles(
        self, num_fragments: int = 1, timeout_s: float | None = None
    ) -> list[FragmentHandle]:
        """Does the same as `get`, but does not fetch the arrays."""
        return self._get(num_fragments, timeout_s, lambda handle, deadline: handle)

    def hand_over(
        self, start: Callable[[FragmentHandle], Transfer], timeout_s: float | None = None
    ) -> FragmentHandle:
        """Sends the oldest fragment to another learner, begun by `start`; otherwise like `get`."""
        (transfer,) = self._get(
            1,
            timeout_s,
            lambda handle, deadline: bring(start(handle), deadline, lambda: self.closed),
        )
        transfer.keep()
        return transfer.handle

    def holds_of(self, worker_id: int) -> bool:
        """Tells if a fragment of this worker waits to be taken, or is being fetched."""
        with self._changed:
            return any(one.info.worker_id == worker_id for one in self._queued())

    def fail(self, error: Exception) -> None:
        """Ends the supply: `get` returns the fragments that are left and then raises `error`."""
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()

    def wait_until_over(self, timeout_s: float | None) -> bool:
        """Waits for `fail` or `close`; returns whether one of them came within timeout_s."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over, timeout_s)

    def recover(self) -> None:
        """Undoes `fail`: fragments come again."""
        with self._changed:
            self._failure = None

    def close(self) -> None:
        """Wakes every waiter with ClosedError and discards what is queued. Idempotent."""
        with self._changed:
            self._closed = True
            while self._items:
                self._count_discarded(self._items.popleft(), "closed")
            self._changed.notify_all()

    def stats(self) -> dict[str, Any]:
        """Returns {"env_steps": account, "fragments": account, "queue_depth": int,
        "queued_bytes": int}.

        An account is {"produced", "delivered", "queued", "discarded": {reason: n}}. All numbers are
        of one moment and of the same fragments: queue_depth is the fragments' "queued". A fragment
        that a `get` is fetching still counts, because it may come back.
        """
        return self.snapshot()[0]

    def begin(self, claim: Claim) -> None:
        """Announces a consumer's claim, to which `try_take` moves fragments. Never blocks.

        `get` consists of `begin`, `try_take`, `lose` and `deliver` or `put_back`; they are public
        for consumers that do not wait here.
        """
        with self._changed:
            self._claims.add(claim)
        self._on_change()

    def try_take(self, claim: Claim) -> bool:
        """Moves the oldest fragments to a claim, if all that it lacks are queued. Never blocks.

        Raises:
          ClosedError: The queue was closed.
          Exception: The error given to `fail`, if too few fragments are left.
        """
        if not claim.num_lacking:
            return True
        # dropped fragments make room, so producers are notified before this waits for more
        if self.drop_stale():
            self._on_change()
        with self._changed:
            has_taken = self._move(claim)
        if has_taken:
            self._on_change()
        return has_taken

    def lose(self, claim: Claim, handle: FragmentHandle) -> None:
        """Counts a fragment of a claim whose arrays are gone as lost; the claim lacks one more."""
        with self._changed:
            claim.taken.remove(handle)
            claim.num_lacking += 1
            self._num_taken -= 1
            self._count_discarded(handle, "lost")
        self._on_change()

    def deliver(self, claim: Claim) -> None:
        """Counts a claim's fragments as delivered, which ends the claim."""
        with self._changed:
            # fragments leave the claim one by one, so that an interrupt puts no delivered one back
            while claim.taken:
                self._steps.deliver(claim.taken.pop().info.num_steps)
                self._fragments.deliver(1)
            self._claims.discard(claim)

    def put_back(self, claim: Claim) -> None:
        """Gives a claim up; its fragments are taken next."""
        with self._changed:
            self._claims.discard(claim)
            self._num_taken -= len(claim.taken)
            if self._closed:
                for handle in claim.taken:
                    self._count_discarded(handle, "closed")
            else:
                self._items.put_back(claim.taken)
            self._changed.notify_all()

    def _levels(self) -> QueueLevels:
        return QueueLevels(
            capacity=self._capacity,
            depth=len(self._items),
            wanted=self._total_lacking,
            num_taken=self._num_taken,
            held=sum(len(claim.taken) for claim in self._claims),
        )

    def _queued(self) -> list[FragmentHandle]:
        return [*self._items, *(handle for claim in self._claims for handle in claim.taken)]

    @property
    def _is_over(self) -> bool:
        return self._closed or self._failure is not None

    @property
    def _has_room(self) -> bool:
        return len(self._items) < max(self._capacity, self._total_lacking)

    @property
    def _total_lacking(self) -> int:
        return sum(claim.num_lacking for claim in self._claims)

    def _admit(self, handle: FragmentHandle) -> bool:
        info = handle.info
        incarnation, seq_no = self._expected.get(info.worker_id, (-1, 0))
        # a new incarnation counts from 0 again
        if info.incarnation > incarnation:
            incarnation, seq_no = info.incarnation, 0
        self._count_produced(handle)
        if info.incarnation < incarnation or info.seq_no < seq_no:
            self._count_discarded(handle, "duplicate")
            return False
        if info.seq_no > seq_no:
            self._count_discarded(handle, "out_of_order")
            raise ProtocolError(
                f"worker {info.worker_id} (incarnation {incarnation}) delivered fragment "
                f"{info.seq_no}, expected {seq_no}: the fragments between are missing"
            )
        self._expected[info.worker_id] = (incarnation, seq_no + 1)
        self._items.append(handle)
        self._changed.notify_all()
        return True

    def _get(
        self,
        num_fragments: int,
        timeout_s: float | None,
        fetch: Callable[[FragmentHandle, float | None], T],
    ) -> list[T]:
        with self._changed:
            if not 1 <= num_fragments <= self._capacity:
                raise SpecError(
                    f"num_fragments is {num_fragments}, expected 1 to {self._capacity}: more are "
                    "never queued together; raise queue.max_queued_fragments to take more at a time"
                )
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        claim: Claim = Claim(num_fragments)
        fragments: list[T] = []
        try:
            self.begin(claim)
            # a loop, because a lost fragment is replaced by a later one
            while claim.num_lacking or len(fragments) < len(claim.taken):
                self._take(claim, deadline)
                while len(fragments) < len(claim.taken):
                    handle = claim.taken[len(fragments)]
                    try:
                        fragments.append(fetch(handle, deadline))
                    except WorkerError as error:
                        _log.warning("of worker %d: %s", handle.info.worker_id, error)
                        self.lose(claim, handle)
            self.deliver(claim)
        except BaseException:
            self.put_back(claim)
            raise
        return fragments

    def _take(self, claim: Claim, deadline: float | None) -> None:
        """Waits until enough fragments are queued that are not stale, and moves them to `claim`."""
        while not self.try_take(claim):
            with self._changed:
                remaining_s = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not self._changed.wait_for(
                    lambda: self._is_over or len(self._items) >= claim.num_lacking, remaining_s
                ):
                    raise TimeoutError(
                        f"{len(self._items)} of {claim.num_lacking} fragments were ready in time"
                    )

    def _move(self, claim: Claim) -> bool:
        if self._closed:
            raise ClosedError("the learner queue is closed")
        if len(self._items) < claim.num_lacking:
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            return False
        if claim.num_lacking and self._items.may_have_stale:
            return False
        while claim.num_lacking:
            claim.taken.append(self._items.popleft())
            claim.num_lacking -= 1
            self._num_taken += 1
        self._changed.notify_all()
        return True

    def _resolve(self, handle: FragmentHandle, deadline: float | None) -> Fragment:
        return in_slices(handle.resolve, deadline, lambda: self.closed)

    def _count_produced(self, handle: FragmentHandle) -> None:
        self._steps.produce(handle.info.num_steps)
        self._fragments.produce(1)

    def _count_discarded(self, handle: FragmentHandle, reason: str) -> None:
        self._steps.discard(handle.info.num_steps, reason)
        self._fragments.discard(1, reason)


def _checked_capacity(capacity: int) -> int:
    if capacity < 1:
        raise SpecError(f"capacity is {capacity}, expected at least 1")
    return capacity
