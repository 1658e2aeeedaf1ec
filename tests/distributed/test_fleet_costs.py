# SPDX-License-Identifier: Apache-2.0
"""Costs of an event in the fleet: the same however many workers there are."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from fleet_world import World

import rollouts
from rollouts.workers.lag import LagRule

OWN = str(Path(rollouts.__file__).parent)


class LineCount:
    """Counts how often each of the library's lines runs inside a `with` block.

    Finalizers that the garbage collector finds time for are not the block's: it waits.
    """

    def __init__(self) -> None:
        self.lines: Counter[str] = Counter()

    def __enter__(self) -> LineCount:
        gc.collect()
        gc.disable()
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        gc.enable()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OWN):
            return None
        if event == "line":
            self.lines[f"{frame.f_code.co_qualname}:{frame.f_lineno}"] += 1
        return self._trace


def lines_of_an_event(num_workers: int) -> dict[str, Counter[str]]:
    """Lines that run when a fragment ends, when one is taken, and at a tick, all workers busy."""
    world = World(num_workers, credits_per_worker=2, lag=LagRule(4, "drop"))
    world.appear_all()
    world.publish()
    # half of the fragments are queued, and each worker has another to make
    for worker in world.living:
        worker.complete()
    world.tell_all()
    found = {}
    world.living[0].complete()
    with LineCount() as count:
        world.tell()
    found["a fragment ends"] = count.lines
    with LineCount() as count:
        world.get(1)
    found["one is taken"] = count.lines
    world.fleet.look()
    with LineCount() as count:
        world.fleet.look()
    found["a tick"] = count.lines
    return found


def test_an_event_costs_the_same_with_ten_times_the_workers() -> None:
    # what a heap adds is inside heapq, whose lines are not counted
    with_4, with_40 = lines_of_an_event(4), lines_of_an_event(40)
    assert all(lines.total() > 20 for lines in with_4.values())
    assert with_40 == with_4
