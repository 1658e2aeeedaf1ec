# SPDX-License-Identifier: Apache-2.0
"""FleetThread: runs the fleet on a thread of its own, so workers collect while the learner learns.

`fleet.py` decides about each worker; this file has the fleet's thread, lock and queue.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from rollouts.errors import ClosedError, WorkerError
from rollouts.learner.fragment import Fragment, FragmentHandle
from rollouts.learner.queue import LearnerQueue
from rollouts.support import at_exit
from rollouts.support.no_room import start_thread
from rollouts.workers.fleet import Fleet, FleetRules
from rollouts.workers.fleet_turns import MOST_EVENTS, TICK_S, FleetTurns
from rollouts.workers.offers import OfferSource
from rollouts.workers.slot import Slot, WorkerHandle
from rollouts.workers.waits import AwakeClock
from rollouts.workers.worker_config import WorkerConfig

_log = logging.getLogger(__name__)

# s that `close` waits for the merge thread, which ends within milliseconds if it is healthy; Ctrl-C
# in `get` ends in `close`, so this is short
_JOIN_TIMEOUT_S = 2.0

# s that an exit waits for the merge thread of an abandoned coordinator, which may be shutting Ray
# down
ABANDONED_TIMEOUT_S = 30.0

# s between two readings of the clock; a longer gap means that this process was stopped
_MAX_GAP_S = 10 * TICK_S


class FleetThread:
    """Owns the fleet, the lock around it, the merge thread and the queue.

    The merge thread sleeps on `_inbox`. Ended calls, `get`, new weights and `close` post into it,
    so that it never polls. Calls are made while a worker has credit and (in flight + queued) is
    below the limit: nothing else holds workers back, as the queue always has room for fragments
    that were asked for.

    `_lock` guards the fleet. Lock order: `_lock`, then the queue's, then none.
    """

    def __init__(
        self,
        config: WorkerConfig,
        num_workers: int,
        launch: Callable[[WorkerConfig], WorkerHandle],
        *,
        weights: OfferSource,
        rules: FleetRules,
        check: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Launches the workers and the merge thread; does not wait for the workers.

        Args:
          config: See `Fleet`.
          num_workers: The number of workers to begin with.
          launch: Starts one incarnation.
          weights: Source of the newest weights; nothing is collected before there are any.
          rules: See FleetRules.
          check: Raises if workers are out of reach for good; called after a tick without events.
          clock: Returns seconds; the fleet leaves out those in which this process was stopped.
        """
        is_stale = rules.lag.is_stale(lambda: weights.version)
        self.queue = LearnerQueue(num_workers, on_change=self._make_room, is_stale=is_stale)
        self._submits_here = rules.queue.merge == "ordered"
        self._check = check
        self._inbox: queue.SimpleQueue[tuple[Slot, Future[Any]] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._is_abandoned = False
        # whether the merge thread was woken, and whether weights are new; its next turn clears both
        self._is_woken = self._has_news = False
        self._lock = threading.Lock()
        self._fleet = Fleet(
            config,
            launch,
            weights=weights,
            queue=self.queue,
            rules=rules,
            on_done=lambda slot, future: self._inbox.put((slot, future)),
            clock=AwakeClock(_MAX_GAP_S, clock),
            cpu_clock=time.thread_time,
        )
        self._turns = FleetTurns(self._fleet, time.monotonic)
        self._thread = threading.Thread(target=self._run, name="rollouts-merge", daemon=True)
        # the thread starts before the workers, so that none is left over if it cannot start
        with self._lock:
            start_thread(self._thread)
            try:
                self._fleet.scale_to(num_workers)
            except BaseException:
                self._stopping.set()
                raise
        at_exit.call_at_exit(self._close)

    def _make_room(self) -> None:
        """Makes the merge thread ask for fragments, because a `get` wants some, or took some.

        With merge="ordered" the caller's thread asks for them at once, so that their weights depend
        on the order of the caller's calls alone.
        """
        if self._submits_here:
            with self._lock:
                self._fleet.submit()
        self._wake()

    def _wake(self) -> None:
        # callers set the flag, and the merge thread clears it before its turn: one event wakes it
        # for all callers in between
        if not self._is_woken:
            self._is_woken = True
            self._inbox.put(None)

    def published(self) -> None:
        """Notes that there are new weights."""
        with self._lock:
            self._fleet.publish()
        self._has_news = True
        self._make_room()

    def get(self, num_fragments: int, timeout_s: float | None) -> list[Fragment]:
        """See `LearnerQueue.get`; a TimeoutError also says what the workers are doing."""
        with self.told_of_workers(timeout_s):
            return self.queue.get(num_fragments, timeout_s)

    def get_pending(self, num_fragments: int, timeout_s: float | None) -> list[FragmentHandle]:
        """Waits for fragments as `get` does, but leaves their arrays where they are."""
        with self.told_of_workers(timeout_s):
            return self.queue.get_handles(num_fragments, timeout_s)

    def scale_to(self, num_workers: int) -> None:
        """See `RolloutCoordinator.scale_to`."""
        if not self._thread.is_alive():
            raise ClosedError("the coordinator was closed or its merge thread stopped")
        with self._lock:
            self._scale(num_workers)

    def _scale(self, num_workers: int) -> None:
        """Scales the fleet, whose lock is held."""
        self._fleet.scale_to(num_workers)

    def drain(self, timeout_s: float | None) -> None:
        """See `RolloutCoordinator.drain`."""
        with self._lock:
            self._fleet.drain()
        if not self.queue.wait_until_over(timeout_s):
            raise TimeoutError(
                f"{self.stats()['fragments']['in_flight']} fragments were still in flight after "
                f"{timeout_s} s of draining; they arrive later"
            )

    def stats(self) -> dict[str, Any]:
        """Returns the fleet's and the queue's part of `RolloutCoordinator.stats`."""
        with self._lock:
            return self._fleet.stats()

    def close(self) -> None:
        """Wakes all waiters, stops the merge thread and kills the workers. Idempotent.

        Waits at most 2 * _JOIN_TIMEOUT_S. A merge thread that is in a call for longer, as when Ray
        does not answer, kills the workers itself once the call returns.
        """
        self._close(_JOIN_TIMEOUT_S)

    def abandon(self) -> None:
        """Makes the merge thread end everything, and waits for nothing.

        It takes no lock, as the garbage collector may call it on a thread that holds one.
        """
        self._is_abandoned = True
        self._inbox.put(None)

    def turned(self) -> None:
        """Does nothing here; the merge thread calls it, without a lock, after each turn."""

    def release(self) -> None:
        """Does nothing here; after `abandon`, the merge thread calls it when it ends."""

    def _close(self, timeout_s: float = at_exit.TIMEOUT_S) -> None:
        self._stopping.set()
        self._inbox.put(None)
        self.queue.close()
        self._thread.join(ABANDONED_TIMEOUT_S if self._is_abandoned else timeout_s)
        if self._lock.acquire(timeout=timeout_s):
            try:
                self._fleet.stop()
            finally:
                self._lock.release()
        else:
            _log.warning("the merge thread is in a call that does not return: workers end later")

    @contextmanager
    def told_of_workers(self, timeout_s: float | None) -> Iterator[None]:
        """Adds the workers' states to a TimeoutError raised inside."""
        try:
            yield
        except TimeoutError as error:
            states = ", ".join(f"{w['worker_id']} {w['state']}" for w in self.stats()["workers"])
            raise TimeoutError(f"{error} ({timeout_s} s); workers: {states}") from None

    def _next(self) -> list[tuple[Slot, Future[Any]] | None]:
        """Waits for an event; returns it and others that have come, or none after a tick."""
        found: list[tuple[Slot, Future[Any]] | None] = []
        try:
            found.append(self._inbox.get(timeout=TICK_S))
            while len(found) < MOST_EVENTS:
                found.append(self._inbox.get_nowait())
        except queue.Empty:
            pass
        return found

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                events = self._next()
                if not events:
                    self._check()
                if self._is_abandoned:
                    self._stopping.set()
                    break
                self._is_woken = False
                # read before it is cleared: weights that come in between belong to this turn
                if has_weights := self._has_news:
                    self._has_news = False
                ended = [event for event in events if event is not None]
                with self._lock:
                    self._turns.take(
                        ended, has_room=len(ended) < len(events), has_weights=has_weights
                    )
                self.turned()
        except ClosedError:
            pass  # close() came after _stopping was read
        except BaseException as error:
            # a caller that waits for fragments must not wait for ever
            failure = WorkerError(f"the merge thread stopped: {error!r}")
            failure.__cause__ = error
            self.queue.fail(failure)
            self.turned()
        finally:
            if self._stopping.is_set():
                with self._lock:
                    self._fleet.stop()
            if self._is_abandoned:
                self.queue.close()
                self.release()
