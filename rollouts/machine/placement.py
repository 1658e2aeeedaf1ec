# SPDX-License-Identifier: Apache-2.0
"""Chooses the CPUs of a pool's threads."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence

from rollouts.errors import SpecError


def worker_cpus(
    pin_threads: bool | Sequence[int], num_threads: int, synchronous: bool
) -> tuple[int, ...]:
    """Chooses a CPU for each worker thread.

    The caller of `step` is one of a synchronous pool's threads and is never pinned, so such a pool
    has one worker fewer than it has threads.

    Args:
      pin_threads: True: the CPUs of this process' affinity mask in order, in synchronous mode
        without the first, which is left to the caller. A sequence: these CPUs, one per worker.
        False: no CPUs.
      num_threads: Threads of the pool, at least 1.
      synchronous: Whether the caller of `step` is one of them.

    Returns:
      One CPU per worker; empty if no thread is pinned.

    Raises:
      SpecError: The system is not Linux; fewer CPUs than threads; a CPU outside the mask
        or named twice; a sequence of another length than there are workers.
    """
    if pin_threads is False:
        return ()
    if not hasattr(os, "sched_getaffinity"):
        raise SpecError("pin_threads needs Linux; leave it out on this system")
    usable = sorted(os.sched_getaffinity(0))
    workers = num_threads - 1 if synchronous else num_threads
    if pin_threads is True:
        if num_threads > len(usable):
            raise SpecError(
                f"pin_threads=True with num_threads={num_threads} needs as many CPUs and this "
                f"process may use {len(usable)} ({_listed(usable)}); pass "
                f"num_threads={len(usable)} or less, or name the CPUs of the {workers} workers"
            )
        return tuple(usable[num_threads - workers : num_threads])
    return _named(pin_threads, workers, usable, synchronous)


def _named(
    pin_threads: object, workers: int, usable: list[int], synchronous: bool
) -> tuple[int, ...]:
    if isinstance(pin_threads, (str, bytes)) or not hasattr(pin_threads, "__iter__"):
        raise SpecError(f"pin_threads must be a bool or a sequence of CPUs, got {pin_threads!r}")
    try:
        cpus = tuple(operator.index(cpu) for cpu in pin_threads)
    except TypeError:
        raise SpecError(f"pin_threads must name CPUs by int, got {pin_threads!r}") from None
    for position, cpu in enumerate(cpus):
        if cpu not in usable:
            raise SpecError(
                f"pin_threads[{position}] is CPU {cpu}, which this process may not use; its "
                f"affinity mask has {_listed(usable)}"
            )
        if cpu in cpus[:position]:
            raise SpecError(f"pin_threads names CPU {cpu} twice; name another for each worker")
    if len(cpus) != workers:
        caller = "; the caller of step is the pool's other thread and is not pinned"
        raise SpecError(
            f"pin_threads names {len(cpus)} CPUs, expected {workers}, one for each worker thread"
            f"{caller if synchronous else ''}; name as many or change num_threads"
        )
    return cpus


def _listed(cpus: list[int]) -> str:
    return "CPUs " + ", ".join(map(str, cpus))
