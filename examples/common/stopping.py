# SPDX-License-Identifier: Apache-2.0
"""A training's end by a signal: Ctrl-C, or the one that Slurm and Kubernetes send first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any, TypeVar

import rollouts

B = TypeVar("B", rollouts.RolloutBatch, rollouts.MultiAgentRollout)

# longest time that a signal waits while no batch arrives
STOP_S = 1.0


@contextmanager
def stop_on_interrupt() -> Iterator[Event]:
    """Yields an event that the first Ctrl-C or SIGTERM sets; the second Ctrl-C raises as usual."""
    stop = Event()

    def on_signal(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop.set()

    previous = {one: signal.signal(one, on_signal) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for one, handler in previous.items():
            signal.signal(one, handler)


def next_batch(
    coordinator: rollouts.RolloutCoordinator[B], stop: Event, num_fragments: int
) -> B | None:
    """Waits for the next batch; None where `stop` is set first, even if the workers end, too."""
    while not stop.is_set():
        try:
            return coordinator.get(num_fragments, timeout_s=STOP_S)
        except TimeoutError:
            continue
    return None
