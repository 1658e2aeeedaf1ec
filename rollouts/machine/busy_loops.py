# SPDX-License-Identifier: Apache-2.0
"""Busy loops: processes that use CPUs, as other programs on a machine do."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from rollouts.errors import EngineError

# Ctrl-C reaches every process of the terminal. The loop ignores it, because the process that
# started it ends it. If that process is killed, the loop gets another parent and ends by itself.
_LOOP = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
parent = int(sys.argv[1])
sys.stdout.write("r"); sys.stdout.flush()
while os.getppid() == parent:
    for _ in range(100_000): pass
"""


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[tuple[int, ...]]:
    """Keeps a number of processes busy, all of them from the first statement of the block on.

    They are children of this process with its priority and its session, so that the scheduler gives
    all the same share of the CPUs. None is left behind, however this process ends.

    Yields:
      Their process ids.

    Raises:
      EngineError: A process cannot be started, or has ended before the block.
    """
    with contextlib.ExitStack() as stack:
        loops = [stack.enter_context(_started()) for _ in range(count)]
        for loop in loops:
            assert loop.stdout is not None
            if loop.stdout.read(1) != b"r":
                raise EngineError("a busy loop ended before it began: see the message above")
        yield tuple(loop.pid for loop in loops)
        ended = [loop.pid for loop in loops if loop.poll() is not None]
        if ended:
            raise EngineError(
                f"{len(ended)} of {count} busy loops ended while it was measured: measure again, "
                "and let nothing kill Python processes meanwhile"
            )


@contextlib.contextmanager
def _started() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-S", "-c", _LOOP, str(os.getpid())]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
    except OSError as error:
        raise EngineError(
            f"a busy loop cannot be started ({error}): ask for fewer, or raise the limit of "
            "processes (ulimit -u)"
        ) from error
    # the `with` waits for the process to end
    with process:
        try:
            yield process
        finally:
            process.kill()
