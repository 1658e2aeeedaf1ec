# SPDX-License-Identifier: Apache-2.0
"""Whether anybody else is there who could end a wait without a timeout."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

# threads that sample ahead for others: whether such a one has all that it may hold
_samplers: dict[int, Callable[[], bool]] = {}


def is_only_adder(besides: Collection[int] = ()) -> bool:
    """Tells whether no other thread runs Python that could add; `besides`: some that only wait."""
    return not _others() - _samplers.keys() - set(besides)


def is_only_sampler() -> bool:
    """Tells whether no other thread runs Python that could sample."""
    samplers = dict(_samplers)
    return all(thread in samplers and samplers[thread]() for thread in _others())


@contextmanager
def sampling_ahead(is_full: Callable[[], bool]) -> Iterator[None]:
    """Says that this thread samples for others, and does nothing else."""
    thread = threading.get_ident()
    _samplers[thread] = is_full
    try:
        yield
    finally:
        del _samplers[thread]


def _others() -> set[int]:
    """All threads that run Python, foreign ones too, except this one."""
    return {*sys._current_frames()} - {threading.get_ident()}
