# SPDX-License-Identifier: Apache-2.0
"""A bounded, closable queue between the workers' fragments and the learner.

The queue holds *handles*: small objects that say which fragment they stand for and can fetch its
arrays. Arrays are fetched only in `LearnerQueue.get`, on the learner's thread. Nothing here knows
Ray.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from rollouts.errors import ClosedError, ProtocolError, SpecError, WorkerError

# how long one attempt to fetch arrays may block before `get` looks for close() again
_RESOLVE_SLICE_S = 0.5

F = TypeVar("F")
F_co = TypeVar("F_co", covariant=True)


class FragmentHandle(Protocol[F_co]):
    """A completed fragment whose arrays may still be elsewhere."""

    @property
    def worker_id(self) -> int: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def seq_no(self) -> int: ...
    @property
    def num_steps(self) -> int: ...

    def resolve(self, timeout_s: float) -> F_co:
        """Fetches the fragment; may be called again after a TimeoutError.

        Raises:
          TimeoutError: the arrays did not arrive within timeout_s.
          WorkerError: the arrays are lost for good.
        """
        ...


class LearnerQueue(Generic[F]):
    """Hands every fragment to the learner exactly once, in the order of arrival.

    A fragment is known by (worker_id, incarnation, seq_no). Per worker, incarnations only grow, and
    within one incarnation seq_no counts 0, 1, 2, ...; so one counter per worker is enough to refuse
    whatever comes twice or late.

    Thread-safe. All state is guarded by the one lock inside `_changed`; no handle is resolved and
    no callback is called while it is held, so it is always the last lock taken.

    The account balances at any moment, in env-steps and in fragments:
    produced = delivered + queued + sum(discarded by reason).
    """

    def __init__(self, capacity: int, *, on_taken: Callable[[], None] | None = None) -> None:
        """Makes an empty queue.

        Args:
          capacity: Most fragments held at a time.
          on_taken: Called without the lock, on the consumer's thread, whenever room became free.
        """
        if capacity < 1:
            raise SpecError(f"capacity is {capacity}, expected at least 1")
        self.capacity = capacity
        self._on_taken = on_taken
        self._changed = threading.Condition(threading.Lock())
        self._items: deque[FragmentHandle[F]] = deque()
        self._expected: dict[int, tuple[int, int]] = {}
        self._failure: Exception | None = None
        self._closed = False
        self._steps = _Account()
        self._fragments = _Account()

    @property
    def depth(self) -> int:
        """Fragments waiting to be taken."""
        with self._changed:
            return len(self._items)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        with self._changed:
            return self._closed

    def put(self, handle: FragmentHandle[F], timeout_s: float | None = None) -> bool:
        """Adds a completed fragment, waiting while the queue is full.

        Ways out: room (also made by `get`), refusal, `timeout_s`, `fail`, `close`.

        Args:
          handle: The fragment.
          timeout_s: Seconds to wait for room; None waits for ever.
        Returns:
          True if it was queued; False if it was refused as a repetition, and counted as discarded.
        Raises:
          TimeoutError: no room within timeout_s; the fragment may be put again.
          ProtocolError: the worker's fragments before this one are missing; it was discarded.
          ClosedError: the queue was closed or failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._has_room, timeout_s)
            if self._is_over:
                raise ClosedError("the learner queue is closed: no more fragments are accepted")
            if not self._has_room:
                raise TimeoutError(
                    f"the learner queue held {self.capacity} fragments for {timeout_s} s, "
                    "expected the learner to take some"
                )
            return self._admit(handle)

    def get(self, num_fragments: int = 1, timeout_s: float | None = None) -> list[F]:
        """Takes the oldest fragments and fetches their arrays: all `num_fragments` or none.

        Ways out: enough fragments, `timeout_s`, `fail`, `close`, KeyboardInterrupt. Whatever was
        taken before an exception goes back to the front, so nothing is lost.

        Args:
          num_fragments: How many; at most `capacity`, or they could never be there together.
          timeout_s: Seconds to wait; None waits for ever.
        Returns:
          The fragments in order of arrival.
        Raises:
          TimeoutError: fewer fragments arrived within timeout_s.
          ClosedError: the queue was closed.
          Exception: what `fail` was given, once too few fragments are left.
        """
        if not 1 <= num_fragments <= self.capacity:
            raise SpecError(
                f"num_fragments is {num_fragments}, expected 1 to {self.capacity}: more are never "
                "queued together; raise max_queued_fragments to take more at a time"
            )
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        taken: list[FragmentHandle[F]] = []
        fragments: list[F] = []
        try:
            # a fragment found lost is replaced by a later one, hence the loop
            while len(fragments) < num_fragments:
                self._take(num_fragments - len(fragments), deadline, into=taken)
                while len(fragments) < len(taken):
                    handle = taken[len(fragments)]
                    try:
                        fragments.append(self._resolve(handle, deadline))
                    except WorkerError:
                        taken.remove(handle)
                        self._discard(handle, "lost")
            self._deliver(taken)
        except BaseException:
            self._put_back(taken)
            raise
        return fragments

    def fail(self, error: Exception) -> None:
        """Says that no more will come: `get` serves what is there and then raises `error`."""
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()

    def close(self) -> None:
        """Wakes every waiter with ClosedError and discards what is queued. Idempotent."""
        with self._changed:
            self._closed = True
            while self._items:
                self._count_discarded(self._items.popleft(), "closed")
            self._changed.notify_all()

    def stats(self) -> dict[str, Any]:
        """Returns {"env_steps": account, "fragments": account, "queue_depth": int}.

        An account is {"produced", "delivered", "queued", "discarded": {reason: n}}, all from one
        moment; a fragment that `get` is fetching still counts as queued.
        """
        with self._changed:
            return {
                "env_steps": self._steps.as_dict(),
                "fragments": self._fragments.as_dict(),
                "queue_depth": len(self._items),
            }

    @property
    def _is_over(self) -> bool:
        return self._closed or self._failure is not None

    @property
    def _has_room(self) -> bool:
        return len(self._items) < self.capacity

    def _admit(self, handle: FragmentHandle[F]) -> bool:
        incarnation, seq_no = self._expected.get(handle.worker_id, (-1, 0))
        # a new incarnation starts counting again
        if handle.incarnation > incarnation:
            incarnation, seq_no = handle.incarnation, 0
        self._steps.produced += handle.num_steps
        self._fragments.produced += 1
        self._steps.queued += handle.num_steps
        self._fragments.queued += 1
        if handle.incarnation < incarnation or handle.seq_no < seq_no:
            self._count_discarded(handle, "duplicate")
            return False
        if handle.seq_no > seq_no:
            self._count_discarded(handle, "out_of_order")
            raise ProtocolError(
                f"worker {handle.worker_id} (incarnation {incarnation}) delivered fragment "
                f"{handle.seq_no}, expected {seq_no}: the fragments between are missing"
            )
        self._expected[handle.worker_id] = (incarnation, seq_no + 1)
        self._items.append(handle)
        self._changed.notify_all()
        return True

    def _take(self, num: int, deadline: float | None, *, into: list[FragmentHandle[F]]) -> None:
        """Waits until `num` fragments are queued and moves them into `into`."""
        with self._changed:
            remaining_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            self._changed.wait_for(lambda: self._is_over or len(self._items) >= num, remaining_s)
            if self._closed:
                raise ClosedError("the learner queue is closed")
            if len(self._items) < num:
                if self._failure is not None:
                    raise self._failure.with_traceback(None)
                raise TimeoutError(f"{len(self._items)} of {num} fragments were ready in time")
            into.extend(self._items.popleft() for _ in range(num))
            self._changed.notify_all()
        if self._on_taken is not None:
            self._on_taken()

    def _resolve(self, handle: FragmentHandle[F], deadline: float | None) -> F:
        """Fetches in slices, so that close() and the deadline are seen while arrays travel."""
        while True:
            remaining_s = float("inf") if deadline is None else deadline - time.monotonic()
            try:
                return handle.resolve(min(_RESOLVE_SLICE_S, max(0.0, remaining_s)))
            except TimeoutError:
                if self.closed:
                    raise ClosedError("the learner queue is closed") from None
                if remaining_s <= _RESOLVE_SLICE_S:
                    raise

    def _deliver(self, handles: list[FragmentHandle[F]]) -> None:
        with self._changed:
            # emptied on the way, so that an interrupt from here on puts nothing back
            while handles:
                self._steps.deliver(handles.pop().num_steps)
                self._fragments.deliver(1)

    def _put_back(self, handles: list[FragmentHandle[F]]) -> None:
        with self._changed:
            if self._closed:
                for handle in handles:
                    self._count_discarded(handle, "closed")
            else:
                self._items.extendleft(reversed(handles))
            self._changed.notify_all()

    def _discard(self, handle: FragmentHandle[F], reason: str) -> None:
        with self._changed:
            self._count_discarded(handle, reason)

    def _count_discarded(self, handle: FragmentHandle[F], reason: str) -> None:
        self._steps.discard(handle.num_steps, reason)
        self._fragments.discard(1, reason)


class _Account:
    """Counts env-steps or fragments until they are delivered or discarded; the queue locks."""

    def __init__(self) -> None:
        self.produced = 0
        self.queued = 0
        self.delivered = 0
        self.discarded: Counter[str] = Counter()

    def deliver(self, amount: int) -> None:
        self.queued -= amount
        self.delivered += amount

    def discard(self, amount: int, reason: str) -> None:
        self.queued -= amount
        self.discarded[reason] += amount

    def as_dict(self) -> dict[str, Any]:
        return {
            "produced": self.produced,
            "delivered": self.delivered,
            "queued": self.queued,
            "discarded": dict(self.discarded),
        }
