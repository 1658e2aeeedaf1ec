# SPDX-License-Identifier: Apache-2.0
"""Chooses the number of torch's threads where a pool's threads step environments.

torch shares an operation among threads that go on spinning after it, on the cores that the pool's
threads need next: 16 Ants with a policy of 2x64 on 2 cores made 3.5 k env-steps/s with two threads
for each, 6.6 k with two for the pool and one for torch. Only where one call is long, a second
thread gains more than it costs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from rollouts.errors import SpecError

# Multiply-adds that are worth a thread, about 2 ms of one core. Measured on 2 cores of an AMD EPYC
# (Zen 4) with torch 2.13: below, two threads took up to 57 times the CPU time of one and were
# slower on the clock, too, wherever another thread wanted the core.
WORK_PER_THREAD = 64_000_000

# Places of an image at which a convolution uses each of its weights, roughly: 400, 81 and 49 in the
# three layers of the usual network for 84 x 84 pixels.
_PLACES_PER_KERNEL = 100

# Blocks of `torch_threads` that are open, (thread, number) each, and what torch had before the
# first of them; both under the lock, as is the change of torch's number.
_lock = threading.Lock()
_open_blocks: list[tuple[int, int]] = []
_before_all = 1


def threads_for(policy: Any, num_rows: int, most: int) -> int:
    """Returns how many threads torch should have for a policy: 1, unless its network is large.

    One thread per WORK_PER_THREAD multiply-adds of a call: parameters times rows, a convolution's
    weights counted 100 times. So a policy of 2x64 always has 1; one of 2x256 has 2 from some 2 000
    rows on; the usual network for Atari has 2 from 14 rows and 4 from 28.

    Args:
      policy: A torch module, or an object with modules among its attributes; of any other nothing
        is known, so that it has 1. Parameters that are not on the CPU do not count.
      num_rows: Observations B of one call.
      most: Threads that it may have.
    """
    work = num_rows * _multiply_adds(policy)
    return max(1, min(most, work // WORK_PER_THREAD))


def one_thread_after_fork() -> None:
    """Leaves torch one thread in a forked process whose parent has imported it.

    The parent's OpenMP threads do not exist here, and an operation that shares its work would wait
    for them for ever. Where torch was not imported before, it starts threads of its own.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def check_threads(name: str, num_threads: int | None) -> int | None:
    """Returns num_threads; raises SpecError where it is no number of at least 1."""
    is_number = not isinstance(num_threads, bool) and hasattr(num_threads, "__index__")
    if num_threads is not None and not (is_number and num_threads >= 1):
        raise SpecError(
            f"{name} is {num_threads!r}, expected at least 1 thread, or None for 1 unless the "
            "policy's network is large"
        )
    return num_threads


@contextlib.contextmanager
def torch_threads(num_threads: int | None) -> Iterator[None]:
    """Lets torch compute with `num_threads` in this block, and then with as many as before.

    That is so in the calling thread: torch keeps a number per thread, and one of the process that
    a thread takes over when it first uses torch, which is also set here. Blocks may be nested, and
    those of several threads may overlap: with the last of them the process has its number back.
    A thread that has no block and first uses torch while one is open keeps that block's number.
    Does nothing with None, or where torch is not imported.
    """
    torch = sys.modules.get("torch")
    if torch is None or num_threads is None:
        yield
        return
    global _before_all
    block = (threading.get_ident(), num_threads)
    with _lock:
        before = torch.get_num_threads()
        if _open_blocks:
            before = _own_number(before, block[0])
        else:
            _before_all = before
        _open_blocks.append(block)
        torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        with _lock:
            _open_blocks.remove(block)
            torch.set_num_threads(before)


@contextlib.contextmanager
def beside_a_pool(policy: Any, num_rows: int, num_threads: int | None = None) -> Iterator[None]:
    """As `torch_threads`, with the number that suits `policy`.

    Args:
      policy: See `threads_for`.
      num_rows: Observations B of one call.
      num_threads: What the caller wants; None for `threads_for`, at most as many as torch has.
    """
    torch = sys.modules.get("torch")
    if torch is not None and num_threads is None:
        most = torch.get_num_threads()
        num_threads = 1 if most == 1 else threads_for(policy, num_rows, most)
    with torch_threads(num_threads):
        yield


def _own_number(now: int, thread: int) -> int:
    """Returns the process's own number: `now`, unless an open block of another thread set that."""
    if any(other == thread for other, _ in _open_blocks):
        return now
    # a thread that uses torch for the first time begins with the number of an open block
    return _before_all if any(number == now for _, number in _open_blocks) else now


def _multiply_adds(policy: Any) -> int:
    """Counts those of one row, about."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    parts = [policy, *getattr(policy, "__dict__", {}).values()]
    modules = [part for part in parts if isinstance(part, torch.nn.Module)]
    # a module's own parameters() has those of all modules inside
    parameters = {id(p): p for module in modules for p in module.parameters()}.values()
    return sum(
        p.numel() * (_PLACES_PER_KERNEL if p.dim() > 2 else 1)
        for p in parameters
        if p.device.type == "cpu"
    )
