# SPDX-License-Identifier: Apache-2.0
"""Measures a learner's waits for fragments, and the lag of the fragments that it takes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rollouts.learner.fragment import Fragment, FragmentHandle
from rollouts.workers.lag import LagMeter, LagRule
from rollouts.workers.waits import WaitClock

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from rollouts.batch import MultiAgentRollout, RolloutBatch

    Rollout = TypeVarWithDefault("Rollout", RolloutBatch, MultiAgentRollout, default=RolloutBatch)
else:
    Rollout = TypeVar("Rollout")

Taken = TypeVar("Taken", Fragment, FragmentHandle)


class Taking:
    """Meters what learners take. Thread-safe; the lock is not held while learners wait."""

    def __init__(self, lag: LagRule) -> None:
        """Begins with nothing taken."""
        self._meter = LagMeter(lag)
        self._learner_waits = WaitClock()
        self._meter_lock = threading.Lock()

    def take(
        self,
        get: Callable[[int, float | None], list[Taken]],
        num_fragments: int,
        timeout_s: float | None,
        version: Callable[[], int],
    ) -> list[Taken]:
        """Takes fragments with `get`; `version` returns the newest version after that."""
        with self._meter_lock:
            self._learner_waits.num_waiting += 1
        try:
            fragments = get(num_fragments, timeout_s)
        finally:
            with self._meter_lock:
                self._learner_waits.num_waiting -= 1
        with self._meter_lock:
            self._meter.add(fragments, version())
        return fragments

    def stats(self) -> dict[str, Any]:
        """Returns this part of RolloutCoordinator.stats."""
        with self._meter_lock:
            lag = self._meter.as_dict()
            return {"learner_wait_s": self._learner_waits.seconds, **lag}
