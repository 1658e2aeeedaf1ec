# SPDX-License-Identifier: Apache-2.0
"""Checks whether another thread of this process could end a wait that has no timeout."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

# threads that sample ahead for others, with a function that returns whether their queue is full
_samplers: dict[int, Callable[[], bool]] = {}


def is_only_adder(besides: Collection[int] = ()) -> bool:
    """Returns whether no other Python thread could add; `besides`: threads that only wait."""
    return not _others() - _samplers.keys() - set(besides)


def is_only_sampler() -> bool:
    """Returns whether no other thread that runs Python could sample."""
    samplers = dict(_samplers)
    return all(thread in samplers and samplers[thread]() for thread in _others())


@contextmanager
def sampling_ahead(is_full: Callable[[], bool]) -> Iterator[None]:
    """Marks this thread as one that only samples for others, within a block."""
    thread = threading.get_ident()
    _samplers[thread] = is_full
    try:
        yield
    finally:
        del _samplers[thread]


def _others() -> set[int]:
    """All threads that run Python, including foreign ones, except this one."""
    return {*sys._current_frames()} - {threading.get_ident()}
