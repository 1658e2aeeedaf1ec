# SPDX-License-Identifier: Apache-2.0
"""`FleetTurns`: what becomes of events that came for a fleet. No threads, no Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from rollouts.workers.fleet import Fleet
from rollouts.workers.slot import Slot

# s between looks for workers that hang or do not start, whatever else happens
TICK_S = 0.5

# events of one turn, for which `get` may wait
MOST_EVENTS = 64


class FleetTurns:
    """Takes events over in turns, and looks at the clock when that is due. Not thread-safe.

    The owner begins a turn when events came, or when `TICK_S` passed without any; it takes at most
    `MOST_EVENTS` of them, so that others who wait for the fleet come in between.
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
        # under a stream of events too, somebody has to look at the clock
        if self._clock() > self._next_look or not (ended or has_room or has_weights):
            self._fleet.look()
            self._next_look = self._clock() + TICK_S
        elif has_weights:
            self._fleet.take_news()
        elif has_room:
            self._fleet.make_calls()
