# SPDX-License-Identifier: Apache-2.0
"""ModelledProcess: a process that leads workers, around the fleet and the queue of real runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rollouts.learner.queue import LearnerQueue
from rollouts.simulation.event_loop import EventLoop
from rollouts.simulation.job_model import DriverModel
from rollouts.workers.fleet import Fleet, FleetRules
from rollouts.workers.fleet_turns import MOST_EVENTS, TICK_S, FleetTurns
from rollouts.workers.offers import OfferSource
from rollouts.workers.slot import Slot, WorkerHandle
from rollouts.workers.worker_config import WorkerConfig


class ModelledProcess:
    """Runs a fleet as `FleetThread` does, in simulated time: its process does one thing at a time.

    Attributes:
      fleet, queue: The objects of a real run.
      is_dead: Whether its process died.
      busy_s: Seconds of CPU time so far.
      num_turns: Turns of the merge thread so far.
    """

    def __init__(
        self,
        costs: DriverModel,
        loop: EventLoop,
        *,
        config: WorkerConfig,
        num_slots: int,
        rules: FleetRules,
        weights: OfferSource,
        launch: Callable[[WorkerConfig], WorkerHandle],
        after_turn: Callable[[], None],
    ) -> None:
        """Makes a process without workers; arguments as those of `FleetThread`.

        Args:
          costs: Microseconds of what it does.
          loop: The time.
          config, rules, weights, launch: See `FleetThread`.
          num_slots: Workers, or coordinators, that it leads.
          after_turn: Called after each turn.
        """
        self.is_dead = False
        self.busy_s = 0.0
        self.num_turns = 0
        self._costs, self._loop, self._after_turn = costs, loop, after_turn
        self._submits_here = rules.queue.merge == "ordered"
        self._inbox: deque[tuple[Slot, Future[Any]]] = deque()
        self._has_room = self._has_weights = self._is_turning = False
        self._free_at = 0.0
        self._unpaid_us = 0.0  # cost of calls since the last payment
        self._submit_s = 0.0  # CPU time of all calls that were made
        self.queue = LearnerQueue(
            num_slots,
            on_change=self._make_room,
            is_stale=rules.lag.is_stale(lambda: weights.version),
        )
        self.fleet = Fleet(
            config,
            lambda config: _Submitting(launch(config), self),
            weights=weights,
            queue=self.queue,
            rules=rules,
            on_done=self._ended,
            clock=loop.clock,
            cpu_clock=lambda: self._submit_s,
        )
        self._turns = FleetTurns(self.fleet, loop.clock)

    def begin(self, num_slots: int) -> None:
        """Launches what it leads, and starts the clock."""
        self.fleet.scale_to(num_slots)
        self._tick()

    def die(self) -> None:
        """Ends the process: its workers, requests and fragments that were not taken are lost."""
        self.is_dead = True
        self.fleet.stop()
        self.queue.close()

    def use(self, microseconds: float) -> float:
        """Uses the process as soon as it is free; returns the time at which this use ends."""
        self.busy_s += microseconds / 1e6
        self._free_at = max(self._free_at, self._loop.now) + microseconds / 1e6
        return self._free_at

    def published(self) -> None:
        """Reports to the fleet that there are new weights."""
        self.fleet.publish()
        self._has_weights = True
        self._make_room()

    def submitted(self, num_fragments: int) -> None:
        """Counts a call for a number of fragments."""
        cost_us = self._costs.making_us(num_fragments)
        self._unpaid_us += cost_us
        self._submit_s += cost_us / 1e6

    def _make_room(self) -> None:
        if self._submits_here:
            self.fleet.submit()
            self._pay_for_calls()
        self._has_room = True
        self._wake()

    def _ended(self, slot: Slot, future: Future[Any]) -> None:
        self._inbox.append((slot, future))
        self._wake()

    def _tick(self) -> None:
        if self.is_dead:
            return
        self._wake()
        self._loop.at(self._loop.now + TICK_S, self._tick)

    def _wake(self) -> None:
        if not (self._is_turning or self.is_dead):
            self._is_turning = True
            self._loop.at(self._free_at, self._begin_turn)

    def _begin_turn(self) -> None:
        """Takes events that have come; their effects appear after the time that they cost."""
        if self.is_dead:
            return
        inbox = self._inbox
        ended = [inbox.popleft() for _ in range(min(len(inbox), MOST_EVENTS))]
        cost_us = sum(self._costs.call_us(_num_fragments(future)) for _, future in ended)
        self._loop.at(self.use(cost_us), self._end_turn, ended)

    def _end_turn(self, ended: list[tuple[Slot, Future[Any]]]) -> None:
        if self.is_dead:
            return
        self.num_turns += 1
        has_room, self._has_room = self._has_room, False
        has_weights, self._has_weights = self._has_weights, False
        self._turns.take(ended, has_room=has_room, has_weights=has_weights)
        self._pay_for_calls()
        self._after_turn()
        self._is_turning = False
        if self._inbox or self._has_room or self._has_weights:
            self._wake()

    def _pay_for_calls(self) -> None:
        self.use(self._unpaid_us)
        self._unpaid_us = 0.0


class _Submitting:
    """A worker whose calls are counted."""

    __slots__ = ("_process", "_worker", "kill", "start")

    def __init__(self, worker: WorkerHandle, process: ModelledProcess) -> None:
        self._worker, self._process = worker, process
        self.start, self.kill = worker.start, worker.kill

    def collect(self, offer: Any, num_fragments: int) -> Any:
        self._process.submitted(num_fragments)
        return self._worker.collect(offer, num_fragments)


def _num_fragments(future: Future[Any]) -> int:
    """Returns the number of fragments that came with an ended call."""
    answers = None if future.exception() else future.result()
    return len(answers) if isinstance(answers, tuple) else 1
