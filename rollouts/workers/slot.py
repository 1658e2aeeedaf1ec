# SPDX-License-Identifier: Apache-2.0
"""Slot: the driver's record of one worker: its calls, its incarnation, its failures."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from rollouts.errors import WorkerError
from rollouts.learner.fragment import FragmentHandle, FragmentInfo
from rollouts.workers.call_size import WORTH_S
from rollouts.workers.worker import WorkerInfo
from rollouts.workers.worker_config import WorkerConfig
from rollouts.workers.worker_failure import WorkerFailure

if TYPE_CHECKING:
    from rollouts.collecting.frame_stacks import Payload
    from rollouts.workers.offers import WeightOffer

T = TypeVar("T")

Fetch = Callable[[float], "Payload"]

# failure of a coordinator that has no worker left; it is not replaced: the next would have none
# either
NO_WORKER = "no_worker_left"


class CoordinatorDied(Exception):
    """Ends the calls of a coordinator that died; in a worker's calls any exception means death."""


class NoWorkerError(WorkerError):
    """Ends a queue that gets no more fragments, as no worker is left."""


Answer = FragmentInfo | WorkerFailure
# a call for one fragment returns an answer; one for several, an answer for each that was begun
Answers = Answer | tuple[Answer, ...]


class WorkerHandle(Protocol):
    """The driver's end of one incarnation of a worker. No method blocks; calls run in order."""

    def start(self) -> Future[WorkerInfo | WorkerFailure]: ...

    def collect(
        self, offer: WeightOffer, num_fragments: int
    ) -> tuple[Future[Answers], Sequence[Fetch]]: ...

    def kill(self) -> None: ...


# a function that starts one incarnation, and does not wait for it
Launch = Callable[[WorkerConfig], WorkerHandle]


@dataclass(frozen=True, slots=True)
class CallFailure:
    """The failure of a call; `reason` is the name under which it is counted."""

    reason: str
    error: str

    @property
    def summary(self) -> str:
        """The line that matters: a traceback's last, else the first."""
        lines = self.error.strip().splitlines() or [""]
        return lines[-1] if self.reason in ("worker_error", "env_error") else lines[0]


class CallOutcome(NamedTuple):
    """Fragments that a call completed, in their order, and the failure that ended it, if any."""

    handles: list[FragmentHandle]
    failure: CallFailure | None


@dataclass(slots=True, eq=False)
class Call:
    """A call for one fragment or several; `fetches` has one entry for each fragment."""

    future: Future[Answers]
    fetches: Sequence[Fetch]
    submitted_at: float  # s, of the fleet's clock
    is_reported: bool = False
    verdict: CallFailure | None = None  # set where the call was given up before its future ended
    num_taken: int = 0  # fragments that were taken over

    @property
    def num_fragments(self) -> int:
        """Fragments that were asked for."""
        return len(self.fetches)

    @property
    def is_over(self) -> bool:
        """Tells whether the call ended or was given up."""
        return self.verdict is not None or self.future.done()

    @property
    def outcome(self) -> CallOutcome:
        """The result of a call that is over."""
        if self.verdict is not None:
            return CallOutcome([], self.verdict)
        future: Future[Any] = self.future
        answers = outcome(future)
        if isinstance(answers, CallFailure):
            return CallOutcome([], answers)
        handles: list[FragmentHandle] = []
        several = answers if isinstance(answers, tuple) else (answers,)
        for answer, fetch in zip(several, self.fetches, strict=False):
            if isinstance(answer, WorkerFailure):
                return CallOutcome(handles, CallFailure(answer.reason, answer.traceback))
            handles.append(FragmentHandle(answer, fetch))
        return CallOutcome(handles, None)

    def limit_s(self, timeout_s: float) -> float:
        """Returns the seconds after which the call is late, where one fragment may take timeout_s.

        A worker that has collected for `WORTH_S` begins no further fragment.
        """
        return timeout_s + WORTH_S if self.num_fragments > 1 else timeout_s


@dataclass(slots=True, eq=False)
class Slot:
    """The driver's record of one worker, over all its incarnations.

    States:
      starting   launched, not yet there
      running    gets calls while it has credit
      draining   completes its calls and then stops
      benched    failed too often; not started again until `scale_to` names it
      stopped    not wanted, or closed
    """

    config: WorkerConfig
    noun: str = "worker"  # or "coordinator", whose number and life are in config
    state: str = "stopped"
    handle: WorkerHandle | None = None
    starting: Future[WorkerInfo | WorkerFailure] | None = None
    start_deadline: float = 0.0  # s, of the fleet's clock
    info: WorkerInfo | None = None
    calls: deque[Call] = field(default_factory=deque)
    last_reported_at: float = 0.0  # s, of the fleet's clock
    last_call: int = 0
    most_per_call: int = 1  # fragments, see `CallSize`
    num_fragments: int = 0
    num_steps: int = 0
    failed_at: deque[float] = field(default_factory=deque)
    failures_in_row: int = 0
    last_error: str | None = None

    @property
    def is_wanted(self) -> bool:
        """Tells whether the worker runs or starts."""
        return self.state in ("starting", "running")

    @property
    def is_idle(self) -> bool:
        """Tells whether the worker runs and has completed all that it was asked for."""
        return self.state == "running" and all(call.is_reported for call in self.calls)

    def take(self, info: FragmentInfo) -> None:
        """Counts a fragment that was taken over."""
        self.num_fragments += 1
        self.num_steps += info.num_steps
        self.failures_in_row = 0

    def report(self, future: Future[Any], now: float) -> None:
        """Marks the call that `future` belongs to; there is none for a former incarnation's."""
        for call in self.calls:
            if call.future is future:
                call.is_reported = True
                self.last_reported_at = now

    def hung_call(self, now: float, timeout_s: float) -> Call | None:
        """Returns the call on which the worker has worked for too long, if any."""
        for call in self.calls:
            # a dead worker has no call to wait for, a living one works on its first open call
            if call.verdict is not None:
                return None
            if not call.future.done():
                since = max(call.submitted_at, self.last_reported_at)
                return call if now - since > call.limit_s(timeout_s) else None
        return None

    def deadline(self, hang_timeout_s: float | None) -> float:
        """Returns the time, s of the fleet's clock, before which the worker cannot be late."""
        if self.state == "starting":
            return self.start_deadline
        limit_s = math.inf if hang_timeout_s is None else hang_timeout_s
        for call in self.calls:
            if call.verdict is None and not call.future.done():
                return max(call.submitted_at, self.last_reported_at) + call.limit_s(limit_s)
        return math.inf

    def may_restart(self, now: float, max_restarts: int, window_s: float) -> bool:
        """Counts a failure; tells whether the worker may be started again after it."""
        self.failed_at.append(now)
        self.failures_in_row += 1
        while now - self.failed_at[0] > window_s:
            self.failed_at.popleft()
        return max(len(self.failed_at), self.failures_in_row) <= max_restarts

    def pardon(self) -> None:
        """Forgets failures."""
        self.failed_at.clear()
        self.failures_in_row = 0

    def as_dict(self) -> dict[str, Any]:
        """Returns the slot's part of `RolloutCoordinator.stats`."""
        return {
            "worker_id": self.config.worker_id,
            "incarnation": self.config.incarnation,
            "state": self.state,
            "pid": None if self.info is None else self.info.pid,
            "host": None if self.info is None else self.info.host,
            "in_flight": sum(call.num_fragments - call.num_taken for call in self.calls),
            "fragments": self.num_fragments,
            "env_steps": self.num_steps,
            "recent_failures": len(self.failed_at),
            "last_error": self.last_error,
        }


def outcome(future: Future[T | WorkerFailure]) -> T | CallFailure:
    """Returns the result of a finished call, or a failure: the worker raised or died."""
    death = future.exception()
    if death is not None:
        reason = "coordinator_died" if isinstance(death, CoordinatorDied) else "worker_died"
        return CallFailure(reason, f"{type(death).__name__}: {death}")
    result = future.result()
    if isinstance(result, WorkerFailure):
        return CallFailure(result.reason, result.traceback)
    return result


def obituary(slots: Sequence[Slot], rule: str) -> NoWorkerError:
    """Returns the error that no worker is left, with the rule and each different last error."""
    ids_by_error: dict[str, list[int]] = {}
    for slot in slots:
        if slot.state == "benched":
            ids_by_error.setdefault(slot.last_error or "", []).append(slot.config.worker_id)
    noun = slots[0].noun
    causes = "\n".join(f"{noun} {ids}: {error}" for error, ids in ids_by_error.items())
    return NoWorkerError(f"no {noun} is left: {rule}. Last errors:\n{causes}")
