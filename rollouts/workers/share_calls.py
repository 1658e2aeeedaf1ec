# SPDX-License-Identifier: Apache-2.0
"""ShareCalls: the driver's calls to a coordinator, answered from its queue. No threads, no Ray."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from rollouts.errors import RolloutsError
from rollouts.learner.fetching import Claim
from rollouts.learner.fragment import FragmentHandle
from rollouts.learner.queue import LearnerQueue
from rollouts.workers.slot import NO_WORKER, NoWorkerError
from rollouts.workers.worker_failure import WorkerFailure


@dataclass(frozen=True, slots=True)
class ShareAnswer:
    """Fragments of a call, in the order of arrival; fewer than were asked for if it failed."""

    handles: list[FragmentHandle]
    failure: WorkerFailure | None = None


class ShareCalls:
    """Open calls, each for some fragments, which are answered in the order of their numbers.

    A call claims its fragments as soon as it comes, so that a fleet that collects on demand has
    exactly as many in flight and queued as open calls lack: the fragments that are lost with this
    process are those that the driver counts as interrupted. An earlier call gets the earlier
    fragments of each worker, in whatever order calls arrive. Thread-safe.
    """

    def __init__(self) -> None:
        """Begins without calls; the first one has the number 0."""
        self._lock = threading.Lock()
        self._open: deque[tuple[Claim, Future[ShareAnswer]]] = deque()
        self._early: dict[int, tuple[Claim, Future[ShareAnswer]]] = {}
        self._next = 0

    def ask(self, queue: LearnerQueue, number: int, num_fragments: int) -> Future[ShareAnswer]:
        """Opens a call; `serve` answers it. Never blocks.

        Args:
          queue: The queue of the share's fragments.
          number: How many calls the driver made before.
          num_fragments: Fragments that it wants.
        """
        claim: Claim = Claim(num_fragments)
        answer: Future[ShareAnswer] = Future()
        with self._lock:
            self._early[number] = (claim, answer)
            while self._next in self._early:
                self._open.append(self._early.pop(self._next))
                self._next += 1
        queue.begin(claim)
        return answer

    def serve(self, queue: LearnerQueue) -> None:
        """Answers calls whose fragments are all here, and every call once no more will come."""
        with self._lock:
            while self._open:
                claim, answer = self._open[0]
                try:
                    if not queue.try_take(claim):
                        return
                    answered = ShareAnswer([*claim.taken])
                    queue.deliver(claim)
                except RolloutsError as error:
                    queue.put_back(claim)
                    answered = ShareAnswer(_take_rest(queue), _failure_of(error))
                self._open.popleft()
                answer.set_result(answered)


def _failure_of(error: RolloutsError) -> WorkerFailure:
    """Returns why nothing more comes; `NO_WORKER` where all workers failed for good."""
    reason = NO_WORKER if isinstance(error, NoWorkerError) else "coordinator_error"
    return WorkerFailure(message=str(error), traceback=str(error), reason=reason)


def _take_rest(queue: LearnerQueue) -> list[FragmentHandle]:
    """Takes what is left in a queue that failed."""
    if queue.closed:
        return []
    rest: Claim = Claim(queue.depth)
    queue.begin(rest)
    queue.try_take(rest)
    handles = [*rest.taken]
    queue.deliver(rest)
    return handles
