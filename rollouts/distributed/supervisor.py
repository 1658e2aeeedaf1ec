# SPDX-License-Identifier: Apache-2.0
"""Keeps every worker busy and alive and merges what they complete. Knows futures, not Ray."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rollouts.distributed.fragment import Fragment, FragmentInfo, PendingFragment, WorkerFailure
from rollouts.distributed.weights import WeightStore
from rollouts.distributed.worker import WorkerConfig, WorkerInfo
from rollouts.errors import ClosedError, ProtocolError, WorkerError
from rollouts.learner_queue import LearnerQueue

if TYPE_CHECKING:
    from rollouts.batch import RolloutBatch
    from rollouts.distributed.weights import WeightOffer

_log = logging.getLogger(__name__)

# how often the merge thread looks for workers that do not start, when nothing else happens
_TICK_S = 0.5
_JOIN_TIMEOUT_S = 10.0

T = TypeVar("T")

Fetch = Callable[[float], "RolloutBatch"]


class WorkerHandle(Protocol):
    """The driver's end of one incarnation of a worker. No method blocks; calls run in order."""

    def start(self) -> Future[WorkerInfo | WorkerFailure]: ...

    def collect(self, offer: WeightOffer) -> tuple[Future[FragmentInfo | WorkerFailure], Fetch]: ...

    def kill(self) -> None: ...


class Supervisor:
    """Runs n workers from a thread of its own.

    The merge thread sleeps on `_inbox`. Completed calls, room in the queue, new weights and `close`
    post into it, so it never polls. Calls are asked for while the worker has credit and
    (in flight + queued) < capacity: this is the whole of the back-pressure, as the queue always has
    room for what was asked for.

    A worker whose call fails is killed and started again as its next incarnation; its other calls
    are given up and counted. After `max_restarts` failures in a row without a fragment it is
    benched. When all are, the queue fails with their last errors.

    `_lock` guards the slots and counters. Lock order: `_lock`, then the queue's, then none.
    """

    def __init__(
        self,
        configs: Sequence[WorkerConfig],
        launch: Callable[[WorkerConfig], WorkerHandle],
        *,
        weights: WeightStore,
        capacity: int,
        credits_per_worker: int,
        max_restarts: int,
        start_timeout_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Launches the workers and the merge thread; does not wait for the workers.

        Args:
          configs: One per worker.
          launch: Starts one incarnation.
          weights: Where the newest weights are; nothing is collected before the first.
          capacity: Most fragments in flight and queued together.
          credits_per_worker: Most calls in flight per worker.
          max_restarts: Failures in a row without a fragment that a worker may have.
          start_timeout_s: Seconds a worker may take to start.
          check: Raises if the workers are out of reach for good; called when nothing happens.
        """
        self.queue: LearnerQueue[Fragment] = LearnerQueue(capacity, on_taken=self.wake)
        self._weights = weights
        self._launch = launch
        self._credits_per_worker = credits_per_worker
        self._max_restarts = max_restarts
        self._start_timeout_s = start_timeout_s
        self._check = check
        self._inbox: queue.SimpleQueue[tuple[_Slot, Future[Any]] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._restarts = 0
        self._interrupted: Counter[str] = Counter()
        self._num_submitted = 0
        self._slots = [_Slot(config) for config in configs]
        with self._lock:
            for slot in self._slots:
                self._start(slot)
        self._thread = threading.Thread(target=self._run, name="rollouts-merge", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Makes the merge thread look again. Never blocks; any thread."""
        self._inbox.put(None)

    def get(self, num_fragments: int, timeout_s: float | None) -> list[Fragment]:
        """See `LearnerQueue.get`; a TimeoutError also says what the workers are doing."""
        try:
            return self.queue.get(num_fragments, timeout_s)
        except TimeoutError as error:
            states = ", ".join(f"{w['worker_id']} {w['state']}" for w in self.stats()["workers"])
            raise TimeoutError(f"{error} ({timeout_s} s); workers: {states}") from None

    def stats(self) -> dict[str, Any]:
        """Returns the supervisor's part of `RolloutCoordinator.stats`."""
        with self._lock:
            return {
                "in_flight": sum(len(slot.calls) for slot in self._slots),
                "interrupted": dict(self._interrupted),
                "restarts": self._restarts,
                "workers": [slot.as_dict() for slot in self._slots],
            }

    def close(self) -> None:
        """Wakes all waiters, stops the merge thread and kills the workers. Idempotent."""
        self._stopping.set()
        self.wake()
        self.queue.close()
        self._thread.join(_JOIN_TIMEOUT_S)
        with self._lock:
            for slot in self._slots:
                self._abandon(slot, "closed")

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    event = self._inbox.get(timeout=_TICK_S)
                except queue.Empty:
                    self._check()
                    event = None
                self._handle(event)
        except ClosedError:
            pass  # close() came between two looks at _stopping
        except BaseException as error:
            # whoever waits for fragments must not wait for ever
            failure = WorkerError(f"the merge thread stopped: {error!r}")
            failure.__cause__ = error
            self.queue.fail(failure)

    def _handle(self, event: tuple[_Slot, Future[Any]] | None) -> None:
        with self._lock:
            if event is None:
                for slot in self._slots:
                    self._harvest(slot)
            else:
                slot, future = event
                # news of a former life finds no call to mark
                for call in slot.calls:
                    call.is_reported = call.is_reported or call.future is future
                self._harvest(slot)
            self._submit()

    def _harvest(self, slot: _Slot) -> None:
        """Takes over what a worker completed, in the order in which it was asked for.

        Only what was reported: to take more would put it before other workers' earlier fragments.
        """
        if slot.state == "starting":
            self._finish_start(slot)
        while slot.calls and slot.calls[0].is_reported:
            call = slot.calls[0]
            result = _outcome(call.future)
            if isinstance(result, _Failure):
                self._fail(slot, result)
                return
            try:
                self.queue.put(PendingFragment(result, call.fetch), timeout_s=0)
            except TimeoutError:
                return  # an interrupted get() put fragments back: the next one makes room
            except ProtocolError as error:
                slot.calls.popleft()
                self._fail(slot, _Failure("protocol", str(error)))
                return
            slot.calls.popleft()
            slot.num_fragments += 1
            slot.failures_in_row = 0

    def _finish_start(self, slot: _Slot) -> None:
        assert slot.starting is not None
        if slot.starting.done():
            result = _outcome(slot.starting)
            if isinstance(result, _Failure):
                self._fail(slot, result)
            else:
                slot.info, slot.state = result, "running"
        elif time.monotonic() > slot.start_deadline:
            error = f"not started within {self._start_timeout_s} s: are there CPUs for it?"
            self._fail(slot, _Failure("start_timeout", error))

    def _submit(self) -> None:
        """Asks for fragments as far as credit and room go, from the least busy worker first."""
        offer = self._weights.latest
        if offer is None:
            return
        room = self.queue.capacity - self.queue.depth - sum(len(s.calls) for s in self._slots)
        while room > 0:
            slots = [s for s in self._slots if s.state == "running"]
            slot = min(slots, key=lambda s: (len(s.calls), s.last_call), default=None)
            if slot is None or slot.handle is None or len(slot.calls) >= self._credits_per_worker:
                return
            future, fetch = slot.handle.collect(offer)
            slot.calls.append(_Call(future, fetch))
            self._num_submitted += 1
            slot.last_call = self._num_submitted
            self._notify(future, slot)
            room -= 1

    def _start(self, slot: _Slot) -> None:
        slot.handle = self._launch(slot.config)
        slot.starting = slot.handle.start()
        slot.start_deadline = time.monotonic() + self._start_timeout_s
        slot.state = "starting"
        self._notify(slot.starting, slot)

    def _notify(self, future: Future[Any], slot: _Slot) -> None:
        """Posts into the inbox when `future` is ready; called on whatever thread finds out."""
        future.add_done_callback(lambda done: self._inbox.put((slot, done)))

    def _fail(self, slot: _Slot, failure: _Failure) -> None:
        """Ends an incarnation; starts the next, or benches the worker."""
        config = slot.config
        _log.warning(
            "worker %d failed in incarnation %d (%s): %s",
            config.worker_id,
            config.incarnation,
            failure.reason,
            failure.summary,
        )
        self._abandon(slot, failure.reason)
        slot.last_error = failure.error
        slot.failures_in_row += 1
        if slot.failures_in_row <= self._max_restarts:
            self._restarts += 1
            slot.config = replace(config, incarnation=config.incarnation + 1)
            self._start(slot)
            return
        slot.state = "benched"
        if all(s.state == "benched" for s in self._slots):
            self.queue.fail(WorkerError(_obituary(self._slots)))

    def _abandon(self, slot: _Slot, reason: str) -> None:
        """Kills the worker's process and gives up its calls in flight, each counted."""
        if slot.calls:
            self._interrupted[reason] += len(slot.calls)
        slot.calls.clear()
        if slot.handle is not None:
            slot.handle.kill()
        slot.handle = slot.starting = slot.info = None
        slot.state = slot.state if slot.state == "benched" else "stopped"


@dataclass(slots=True, eq=False)
class _Call:
    future: Future[FragmentInfo | WorkerFailure]
    fetch: Fetch
    is_reported: bool = False


@dataclass(slots=True, eq=False)
class _Slot:
    """What is known of one worker, over all its incarnations. Guarded by the supervisor's lock."""

    config: WorkerConfig
    state: str = "starting"  # starting, running, benched, stopped
    handle: WorkerHandle | None = None
    starting: Future[WorkerInfo | WorkerFailure] | None = None
    start_deadline: float = 0.0  # s, time.monotonic
    info: WorkerInfo | None = None
    calls: deque[_Call] = field(default_factory=deque)
    last_call: int = 0
    num_fragments: int = 0
    failures_in_row: int = 0
    last_error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "worker_id": self.config.worker_id,
            "incarnation": self.config.incarnation,
            "state": self.state,
            "pid": None if self.info is None else self.info.pid,
            "host": None if self.info is None else self.info.host,
            "in_flight": len(self.calls),
            "fragments": self.num_fragments,
            "last_error": self.last_error,
        }


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str
    error: str

    @property
    def summary(self) -> str:
        """The line that matters: a traceback's last, else the first."""
        lines = self.error.strip().splitlines() or [""]
        return lines[-1] if self.reason == "worker_error" else lines[0]


def _outcome(future: Future[T | WorkerFailure]) -> T | _Failure:
    """Sorts a finished call into a result, an exception in the worker, or the worker's death."""
    death = future.exception()
    if death is not None:
        return _Failure("worker_died", f"{type(death).__name__}: {death}")
    result = future.result()
    if isinstance(result, WorkerFailure):
        return _Failure("worker_error", result.traceback)
    return result


def _obituary(slots: Sequence[_Slot]) -> str:
    """Says why no worker is left, each different error once."""
    ids_by_error: dict[str, list[int]] = {}
    for slot in slots:
        ids_by_error.setdefault(slot.last_error or "", []).append(slot.config.worker_id)
    causes = "\n".join(f"worker {ids}: {error}" for error, ids in ids_by_error.items())
    return (
        f"no worker is left: each failed {slots[0].failures_in_row} times in a row without "
        f"completing a fragment (max_restarts_per_worker). Last errors:\n{causes}"
    )
