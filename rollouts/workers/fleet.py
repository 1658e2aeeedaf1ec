# SPDX-License-Identifier: Apache-2.0
"""The workers as one state machine: calls, failures, restarts, scaling. No threads, no Ray."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from rollouts.errors import ClosedError, ProtocolError
from rollouts.learner.fragment import FragmentHandle
from rollouts.learner.queue import LearnerQueue, QueueLevels
from rollouts.workers.call_size import CALLS_PER_SHARE, CallSize, share_of
from rollouts.workers.coordinator_options import FaultPolicy, QueueLimits
from rollouts.workers.lag import LagRule, Pace
from rollouts.workers.merge import Demand, make_merge
from rollouts.workers.offers import OfferSource
from rollouts.workers.slot import (
    NO_WORKER,
    Call,
    CallFailure,
    CallOutcome,
    Slot,
    WorkerHandle,
    obituary,
    outcome,
)
from rollouts.workers.waits import WaitClock
from rollouts.workers.worker_config import WorkerConfig

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRules:
    """Rules of the fleet; RolloutCoordinator documents each."""

    faults: FaultPolicy = FaultPolicy()
    queue: QueueLimits = QueueLimits()
    lag: LagRule = LagRule()
    # whether arrays of queued fragments are lost with their worker
    payloads_in_workers: bool = False
    # the number of all workers, where each slot has a coordinator with a share of them; None: each
    # slot has a worker
    num_shared: int | None = None
    on_demand: bool = False  # whether only as much is collected as consumers wait for
    id_step: int = 1  # difference between the worker_ids of successive slots

    @property
    def noun(self) -> str:
        """The word for what a slot holds."""
        return "worker" if self.num_shared is None else "coordinator"

    @property
    def credits(self) -> int:
        """The most calls of a slot in flight."""
        return self.queue.credits_per_worker if self.num_shared is None else CALLS_PER_SHARE

    @property
    def most_per_call(self) -> int:
        """Fragments of the largest call, see `CallSize`."""
        queue = self.queue
        is_one = (
            self.lag.max_lag is not None
            or queue.merge == "ordered"
            or queue.credits_per_worker == 1
            or self.payloads_in_workers
        )
        return 1 if is_one else queue.max_fragments_per_call


class Fleet:
    """Asks workers for fragments, takes them over, and replaces the workers that fail.

    Not thread-safe: the owner locks. `on_done` is called on any thread when a call ends; the owner
    then calls `handle` with the same arguments, in any order and at any later time.

    After every call, in fragments: requested = produced + in_flight + sum(interrupted by reason),
    where the queue counts `produced`. A fragment counts as in flight until it was taken over.
    Fragments that a worker did not begin, because its call had lasted long enough, count as never
    requested.
    """

    def __init__(
        self,
        config: WorkerConfig,
        launch: Callable[[WorkerConfig], WorkerHandle],
        *,
        weights: OfferSource,
        queue: LearnerQueue,
        rules: FleetRules,
        on_done: Callable[[Slot, Future[Any]], None],
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Makes a fleet without workers: call `scale_to`.

        Args:
          config: The config of the first worker in its first incarnation; others differ from it
            in worker_id and incarnation alone.
          launch: Starts one incarnation.
          weights: Source of the newest weights; nothing is collected before there are any.
          queue: Gets the completed fragments. The fleet sets its capacity.
          rules: See FleetRules.
          on_done: Called with every call that ended.
          clock: Returns seconds.
          cpu_clock: Returns seconds of CPU time of the calling thread, by which the making of a
            call is measured.
        """
        self._config = config
        self._launch = launch
        self._weights = weights
        self._queue = queue
        self._rules = rules
        self._on_done = on_done
        self._clock, self._cpu_clock = clock, cpu_clock
        self._merge = make_merge(rules.queue.merge)
        self._pace = Pace()
        self._size = CallSize(rules.most_per_call)
        self._idle = WaitClock(clock)
        self._slots: list[Slot] = []
        # totals of all slots, so that the cost of an event does not depend on their number
        self._num_in_flight = 0  # fragments
        self._max_calls = 0  # num_workers * credits_per_worker, for the workers of all slots
        self._idle_slots: set[Slot] = set()
        self._draining: dict[int, Slot] = {}
        self._quiet_until = 0.0  # s, of the clock; no worker can be late before then
        self._is_draining = self._is_stopped = False
        self._num_requested = self._num_calls = self._restarts = 0
        self._interrupted: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._weight_pulls: Counter[str] = Counter()

    @property
    def in_flight(self) -> int:
        """Fragments asked for and not yet taken over."""
        return self._num_in_flight

    @property
    def num_failures(self) -> int:
        """Incarnations that failed so far."""
        return self._failures.total()

    def handle(self, *ended: tuple[Slot, Future[Any]]) -> None:
        """Takes over calls that ended, in the given order, and then asks for fragments once."""
        if self._is_stopped:
            return
        now, by_arrival = self._clock(), self._rules.queue.merge == "arrival"
        for slot, future in ended:
            slot.report(future, now)
            if by_arrival:
                self._harvest([slot])
            self._note_idle(slot)
        if not by_arrival:
            self._harvest(self._slots)
        self.make_calls()

    def look(self) -> None:
        """Finds late workers, drops stale fragments, asks for more, stops workers that are done."""
        if self._is_stopped:
            return
        if late := self._watch():
            self._harvest(late if self._rules.queue.merge == "arrival" else self._slots)
        self._queue.drop_stale()
        self._submit(fills=True)
        self._settle()

    def take_news(self) -> None:
        """Drops fragments that new weights have made stale, and asks for others."""
        if self._is_stopped:
            return
        self._queue.drop_stale()
        self.make_calls()

    def make_calls(self) -> None:
        """Asks for fragments as far as the queue has room, and stops workers that are done."""
        if self._is_stopped:
            return
        self._submit()
        self._settle()

    def publish(self) -> None:
        """Notes that there are new weights."""
        self._pace.publish(self._queue.levels().num_taken)

    def submit(self) -> None:
        """Asks for as many fragments as credit, room and the lag rule allow."""
        self._submit()
        self._count_idle()

    def _submit(self, *, fills: bool = False) -> None:
        """Asks for fragments; with `fills` also where there is no room for a whole call."""
        offer = self._weights.latest
        if offer is None or self._is_draining or self._is_stopped:
            return
        levels = self._queue.levels()
        # a queue that was closed before its levels were read is empty, but nobody takes from it
        if self._queue.closed:
            return
        limit, promised = self._limit(levels), self._merge.outstanding(self._num_in_flight)
        room = limit - levels.depth - promised
        demand = Demand(
            room,
            self._rules.credits,
            offer,
            size=self._call_size(limit, levels),
            num_lacking=room if fills else levels.wanted - levels.depth - promised,
        )
        for slot, weights, num_fragments in self._merge.calls_to_make(self._slots, demand):
            assert slot.handle is not None
            began_s = self._cpu_clock()
            future, fetches = slot.handle.collect(weights, num_fragments)
            self._size.measure_call(self._cpu_clock() - began_s)
            slot.calls.append(Call(future, fetches, self._clock()))
            self._num_in_flight += num_fragments
            self._idle_slots.discard(slot)
            self._num_requested += num_fragments
            self._num_calls += 1
            slot.last_call = self._num_calls
            self._tell_when_done(slot, future)

    def scale_to(self, num_slots: int, *, num_shared: int | None = None) -> None:
        """Makes the slots 0 to num_slots - 1 those that are wanted; see RolloutCoordinator.

        Args:
          num_slots: Workers, or coordinators where each slot has one.
          num_shared: See FleetRules; None leaves it as it is.
        """
        if self._is_draining or self._is_stopped:
            raise ProtocolError("scale_to() after drain() or close(): make a new coordinator")
        if num_shared is not None:
            self._rules = replace(self._rules, num_shared=num_shared)
        for index in range(num_slots):
            if index == len(self._slots):
                first = self._config
                config = replace(
                    first,
                    worker_id=first.worker_id + index * self._rules.id_step,
                    # one before the first incarnation: _start counts it up
                    incarnation=first.incarnation - 1,
                )
                self._slots.append(Slot(config, self._rules.noun))
            self._add(self._slots[index])
        for slot in self._slots[num_slots:]:
            self._remove(slot)
        limits = self._rules.queue
        self._max_calls = (self._rules.num_shared or num_slots) * limits.credits_per_worker
        self._queue.capacity = limits.max_queued_fragments or self._max_calls
        self._queue.recover()
        self.look()

    def drain(self) -> None:
        """Asks for no more fragments; once none is in flight, the queue raises ClosedError."""
        self._is_draining = True
        for slot in self._slots:
            self._merge.forget(slot)
        self._settle()

    def stop(self) -> None:
        """Kills all workers; completed fragments count as discarded, the others as interrupted."""
        self._is_stopped = True
        for slot in self._slots:
            self._abandon(slot, "closed")
            slot.state = "stopped" if slot.state != "benched" else slot.state
        self._count_idle()

    def stats(self) -> dict[str, Any]:
        """Returns the queue's account and the workers' state, all from one moment."""
        stats, levels = self._queue.snapshot()
        stats["fragments"]["requested"] = self._num_requested
        stats["fragments"]["in_flight"] = self.in_flight
        stats["fragments"]["interrupted"] = dict(self._interrupted)
        return {
            **stats,
            # held fragments, which a `get` is fetching, no longer count against the limit
            "outstanding_limit": self._limit(levels) + levels.held,
            "calls": self._num_calls,
            "restarts": self._restarts,
            "failures": dict(self._failures),
            "workers_wait_s": self._idle.seconds,
            "weight_pulls": dict(self._weight_pulls),
            "workers": [slot.as_dict() for slot in self._slots],
        }

    def _call_size(self, limit: int, levels: QueueLevels) -> int:
        """Returns how many fragments a call asks for, where there is room for them."""
        if self._rules.num_shared is not None:
            return share_of(limit, len(self._slots))
        per_version = self._pace.per_version(levels.num_taken)
        return self._size.allowed(self._max_calls, limit=limit, per_version=per_version)

    def _limit(self, levels: QueueLevels) -> int:
        """Returns how many fragments may be in flight and waiting to be taken."""
        if self._rules.on_demand:
            return levels.wanted
        per_version, capacity = self._pace.per_version(levels.num_taken), levels.capacity
        if self._rules.queue.max_queued_fragments is None:
            capacity = max(capacity, min(self._max_calls * self._size.wanted, per_version))
        return self._rules.lag.outstanding_limit(
            wanted=levels.wanted, per_version=per_version, capacity=capacity
        )

    def _count_idle(self) -> None:
        """Notes how many workers are idle now; `_idle` counts their seconds."""
        self._idle.num_waiting = 0 if self._is_draining else len(self._idle_slots)

    def _note_idle(self, slot: Slot) -> None:
        if slot.is_idle:
            self._idle_slots.add(slot)

    def _watch(self) -> list[Slot]:
        """Gives up workers that do not start or that hang; returns those that hang.

        No worker is checked before the earliest deadline. Calls that are made in between have later
        deadlines.
        """
        now, faults = self._clock(), self._rules.faults
        late: list[Slot] = []
        if now <= self._quiet_until:
            return late
        for slot in self._slots:
            if slot.state == "starting" and now > slot.start_deadline:
                error = (
                    f"not started within {faults.start_timeout_s} s: has the cluster the CPUs, "
                    "GPUs and labels that it needs?"
                )
                self._fail(slot, CallFailure("start_timeout", error))
            if faults.hang_timeout_s is None:
                continue
            call = slot.hung_call(now, faults.hang_timeout_s)
            if call is not None and slot.handle is not None:
                # earlier calls of the worker keep their turn in the queue: only this one fails now
                error = f"one fragment took longer than {faults.hang_timeout_s} s: killed as hung"
                call.verdict = CallFailure("hung", error)
                call.is_reported = True
                slot.handle.kill()
                late.append(slot)
        limits = (faults.start_timeout_s, faults.hang_timeout_s or math.inf)
        deadlines = (slot.deadline(faults.hang_timeout_s) for slot in self._slots)
        self._quiet_until = min(now + min(limits), *deadlines)
        return late

    def _harvest(self, slots: Sequence[Slot]) -> None:
        """Takes over reported calls, those of each worker in the order in which they were made."""
        # a fragment that is queued may make it another worker's turn
        while any([self._harvest_one(slot) for slot in slots]):
            pass

    def _harvest_one(self, slot: Slot) -> bool:
        if slot.state == "starting":
            self._finish_start(slot)
        # a call is taken over only once it is reported: reports come in the order in which the
        # calls of all workers ended
        if not slot.calls or not slot.calls[0].is_reported:
            return False
        call = slot.calls[0]
        handles, failure = call.outcome
        if handles and not self._merge.is_turn(slot):
            return False
        broken = self._admit(slot, call, handles)
        if broken is None and failure is not None:
            self._fail(slot, failure)
            return True
        self._complete(slot, len(handles))
        if broken is not None:
            self._fail(slot, broken)
        return True

    def _admit(
        self, slot: Slot, call: Call, handles: Sequence[FragmentHandle]
    ) -> CallFailure | None:
        """Queues the fragments of a call; returns a failure if their numbers are out of order."""
        broken: CallFailure | None = None
        for handle in handles:
            if broken is not None:
                self._queue.refuse(handle, broken.reason)
            else:
                try:
                    # there is room: `submit` asks for no more fragments than fit
                    self._queue.admit(handle)
                except ProtocolError as error:
                    broken = CallFailure("protocol", str(error))
            call.num_taken += 1
            self._num_in_flight -= 1
            if broken is None:
                slot.take(handle.info)
                self._size.measure(handle.info.collect_s)
                self._weight_pulls.update(handle.info.weight_pulls)
        return broken

    def _complete(self, slot: Slot, num_begun: int) -> None:
        """Ends the oldest call: the fragments that the worker began are all taken over."""
        call = slot.calls.popleft()
        self._give_back(call.num_fragments - num_begun)
        slot.most_per_call = max(slot.most_per_call, 2 * num_begun)
        self._merge.took(slot)

    def _give_back(self, num_fragments: int) -> None:
        """Takes back the request of fragments that a worker did not begin."""
        self._num_in_flight -= num_fragments
        self._num_requested -= num_fragments

    def _add(self, slot: Slot) -> None:
        """Makes a worker wanted again; one that is draining goes on with its calls."""
        if slot.state == "draining":
            self._run(slot)
        elif slot.state in ("stopped", "benched"):
            slot.pardon()
            self._start(slot)

    def _remove(self, slot: Slot) -> None:
        self._merge.forget(slot)
        if slot.state == "running":
            slot.state = "draining"
            self._draining[slot.config.worker_id] = slot
            self._idle_slots.discard(slot)
        elif slot.state in ("starting", "benched"):
            self._abandon(slot, "removed")
            slot.state = "stopped"

    def _start(self, slot: Slot) -> None:
        slot.config = replace(slot.config, incarnation=slot.config.incarnation + 1)
        slot.state = "starting"
        # a coordinator's first call may bring a first fragment of every worker
        slot.most_per_call = 1 if self._rules.num_shared is None else self._rules.num_shared
        slot.start_deadline = self._clock() + self._rules.faults.start_timeout_s
        slot.handle = self._launch(slot.config)
        slot.starting = slot.handle.start()
        self._tell_when_done(slot, slot.starting)

    def _finish_start(self, slot: Slot) -> None:
        if slot.starting is None or not slot.starting.done():
            return
        result = outcome(slot.starting)
        if isinstance(result, CallFailure):
            self._fail(slot, result)
        else:
            slot.info = result
            self._run(slot)
            if result.policies:
                self._weights.learn_policies(result.policies)

    def _run(self, slot: Slot) -> None:
        """Marks a worker as running, so that it gets calls."""
        slot.state = "running"
        self._draining.pop(slot.config.worker_id, None)
        self._merge.may_ask(slot)
        self._note_idle(slot)

    def _tell_when_done(self, slot: Slot, future: Future[Any]) -> None:
        future.add_done_callback(lambda done: self._on_done(slot, done))

    def _fail(self, slot: Slot, failure: CallFailure) -> None:
        """Ends an incarnation; starts the next, or benches or stops the worker."""
        config, faults = slot.config, self._rules.faults
        _log.warning(
            "%s %d failed in incarnation %d (%s): %s",
            slot.noun,
            config.worker_id,
            config.incarnation,
            failure.reason,
            failure.summary,
        )
        num_calls = len(slot.calls)
        self._abandon(slot, failure.reason)
        self._failures[failure.reason] += 1
        slot.last_error = failure.error
        if slot.state == "draining" or self._is_draining:
            slot.state = "stopped"
        elif failure.reason != NO_WORKER and slot.may_restart(
            self._clock(), faults.max_restarts, faults.restart_window_s
        ):
            self._merge.lost(slot, num_calls, self._weights.latest)
            self._restarts += 1
            self._start(slot)
            return
        else:
            slot.state = "benched"
            _log.error("%s %d is not started again", slot.noun, config.worker_id)
        self._merge.forget(slot)

    def _abandon(self, slot: Slot, reason: str) -> None:
        """Kills the worker's process and gives up its calls, which are counted."""
        for call in slot.calls:
            self._give_up(call, reason)
        slot.calls.clear()
        self._idle_slots.discard(slot)
        self._draining.pop(slot.config.worker_id, None)
        if slot.handle is not None:
            slot.handle.kill()
        slot.handle = slot.starting = slot.info = None

    def _give_up(self, call: Call, reason: str) -> None:
        """Counts the rest of a call: completed fragments as discarded, others as interrupted."""
        handles, failure = call.outcome if call.is_over else CallOutcome([], None)
        for handle in handles[call.num_taken :]:
            self._queue.refuse(handle, reason)
            self._num_in_flight -= 1
        num_others = call.num_fragments - len(handles)
        if call.is_over and failure is None:
            self._give_back(num_others)
        elif num_others:
            self._interrupted[reason] += num_others
            self._num_in_flight -= num_others

    def _is_needed(self, slot: Slot) -> bool:
        """Tells whether a worker still holds arrays of fragments that are queued."""
        return self._rules.payloads_in_workers and self._queue.holds_of(slot.config.worker_id)

    def _settle(self) -> None:
        """Stops workers that are done and tells the queue when nothing more will come."""
        for slot in [*self._draining.values()]:
            if not slot.calls and not self._is_needed(slot):
                self._abandon(slot, "removed")
                slot.state = "stopped"
        self._count_idle()
        if self._is_stopped or self.in_flight:
            return
        if self._is_draining:
            self._queue.fail(ClosedError("the coordinator was drained: nothing more will come"))
        elif self._slots and not any(slot.is_wanted for slot in self._slots):
            faults = self._rules.faults
            rule = (
                f"each failed {faults.max_restarts + 1} times in a row without completing a "
                f"fragment, or within {faults.restart_window_s:g} s (faults.max_restarts, "
                "faults.restart_window_s)"
            )
            if self._rules.num_shared is not None:
                rule += ", or has no worker left"
            self._queue.fail(obituary(self._slots, rule))
