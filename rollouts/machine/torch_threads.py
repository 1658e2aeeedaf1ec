# SPDX-License-Identifier: Apache-2.0
"""Chooses the number of torch's threads while a pool's threads step environments.

torch divides an operation among threads that go on spinning after it, on cores that the pool's
threads need next: 16 Ants with a policy of 2x64 on 2 cores made 3.5 k env-steps/s with two threads
each for pool and torch, and 6.6 k with two for the pool and one for torch. Only if a call is long
does a second thread gain more than it costs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from rollouts.errors import SpecError

# Multiply-adds for which another thread is worth it, about 2 ms of one core. Measured on 2 cores of
# an AMD EPYC (Zen 4) with torch 2.13: with less work, two threads took up to 57 times the CPU time
# of one, and more real time, too, if another thread wanted the core.
WORK_PER_THREAD = 64_000_000

# A convolution uses each weight at roughly this many places of an image: at 400, 81 and 49 in the
# three layers of the usual network for 84 x 84 pixels.
_PLACES_PER_KERNEL = 100

# Open blocks of `torch_threads` as (thread, number), and torch's number before the first of them.
# The lock guards both, and the change of torch's number.
_lock = threading.Lock()
_open_blocks: list[tuple[int, int]] = []
_before_all = 1


def threads_for(policy: Any, num_rows: int, most: int) -> int:
    """Returns the number of torch's threads for a policy: 1, unless its network is large.

    There is one thread per WORK_PER_THREAD multiply-adds of a call: parameters times rows, with a
    convolution's weights counted 100 times. So a policy of 2x64 always gets 1; one of 2x256 gets 2
    from about 2 000 rows on; the usual network for Atari gets 2 from 14 rows and 4 from 28.

    Args:
      policy: A torch module, or an object with modules among its attributes; any other object gets
        1. Parameters that are not on the CPU do not count.
      num_rows: Observations B of one call.
      most: Largest number of threads.
    """
    work = num_rows * _multiply_adds(policy)
    return max(1, min(most, work // WORK_PER_THREAD))


def one_thread_after_fork() -> None:
    """Limits torch to one thread in a forked process whose parent has imported it.

    The parent's OpenMP threads do not exist here, and an operation for several threads would wait
    for them for ever. If torch was not imported before the fork, it starts its own threads.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def check_threads(name: str, num_threads: int | None) -> int | None:
    """Returns num_threads; raises SpecError unless it is a number of at least 1."""
    is_number = not isinstance(num_threads, bool) and hasattr(num_threads, "__index__")
    if num_threads is not None and not (is_number and num_threads >= 1):
        raise SpecError(
            f"{name} is {num_threads!r}, expected at least 1 thread, or None for 1 unless the "
            "policy's network is large"
        )
    return num_threads


@contextlib.contextmanager
def torch_threads(num_threads: int | None) -> Iterator[None]:
    """Makes torch compute with `num_threads` in this block, and afterwards with as many as before.

    This holds in the calling thread. torch has a number per thread, and a number for the process
    that a thread takes over at its first use of torch; both are set here. Blocks may be nested, and
    blocks of several threads may overlap: after the last of them the process has its number back.
    If a thread outside all blocks uses torch for the first time while a block is open, it keeps
    that block's number. Does nothing with None, or if torch is not imported.
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
      num_threads: The caller's number; None: `threads_for`, at most as many as torch has.
    """
    torch = sys.modules.get("torch")
    if torch is not None and num_threads is None:
        most = torch.get_num_threads()
        num_threads = 1 if most == 1 else threads_for(policy, num_rows, most)
    with torch_threads(num_threads):
        yield


def _own_number(now: int, thread: int) -> int:
    """Returns the process's own number: `now`, unless it comes from another thread's open block."""
    if any(other == thread for other, _ in _open_blocks):
        return now
    # a thread that first uses torch begins with the number of an open block
    return _before_all if any(number == now for _, number in _open_blocks) else now


def _multiply_adds(policy: Any) -> int:
    """Counts the multiply-adds of one row, approximately."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    parts = [policy, *getattr(policy, "__dict__", {}).values()]
    modules = [part for part in parts if isinstance(part, torch.nn.Module)]
    # a module's own parameters() include those of all modules inside
    parameters = {id(p): p for module in modules for p in module.parameters()}.values()
    return sum(
        p.numel() * (_PLACES_PER_KERNEL if p.dim() > 2 else 1)
        for p in parameters
        if p.device.type == "cpu"
    )
