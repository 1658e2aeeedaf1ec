# SPDX-License-Identifier: Apache-2.0
"""`FleetTurns`: hands events over to a fleet, some at a time. No threads, no Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from rollouts.workers.fleet import Fleet
from rollouts.workers.slot import Slot

# s between two searches for workers that hang or do not start
TICK_S = 0.5

# most events of a turn; a `get` may have to wait for the turn's end
MOST_EVENTS = 64


class FleetTurns:
    """Hands events over in turns, and checks deadlines once in `TICK_S`. Not thread-safe.

    The owner begins a turn when events came, or when `TICK_S` passed without any. A turn takes at
    most `MOST_EVENTS`, so that other threads that wait for the fleet's lock get it between two
    turns.
    """

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        """Begins a first tick; `clock` returns seconds."""
        self._fleet = fleet
        self._clock = clock
        self._next_look = clock() + TICK_S

    def take(
        self, ended: Sequence[tuple[Slot, Future[Any]]], *, has_room: bool, has_weights: bool
    ) -> None:
        """Makes one turn.

        Args:
          ended: Calls that ended, in this order.
          has_room: Whether a learner has wanted or taken fragments since the last turn.
          has_weights: Whether weights were published since then.
        """
        if ended:
            self._fleet.handle(*ended)
        # deadlines are also checked while events come without a pause
        if self._clock() > self._next_look or not (ended or has_room or has_weights):
            self._fleet.look()
            self._next_look = self._clock() + TICK_S
        elif has_weights:
            self._fleet.take_news()
        elif has_room:
            self._fleet.make_calls()
