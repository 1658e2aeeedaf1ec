# SPDX-License-Identifier: Apache-2.0
"""Processes of their own, and waiting for what the kernel does a moment later."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HANG_S = 600.0


def environ_with_path() -> dict[str, str]:
    """Environment variables of a process that imports what this one can, helpers of tests too."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return os.environ | {"PYTHONPATH": path}


def run_in_child(body: Callable[..., None], *arguments: object) -> None:
    """Runs `body`, a function of a module, in a process of its own.

    There are no threads, files and pages but its own: Ray's, which other tests leave in this
    process, come and go.
    """
    child = multiprocessing.get_context("spawn").Process(target=body, args=arguments)
    child.start()
    child.join(HANG_S)
    if child.exitcode is None:
        child.kill()
    assert child.exitcode == 0


def run_drawing(code: str, **variables: str) -> tuple[str, str]:
    """The output of code, and its errors, in a process whose OpenGL `variables` alone choose."""
    kept = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=240,
        env=kept | variables,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout, result.stderr


def wait_until(is_true: Callable[[], bool]) -> bool:
    """Looks again and again until `is_true`, at most HANG_S; tells whether it came to be.

    A thread that was joined is in the kernel's list for a moment longer.
    """
    deadline = time.monotonic() + HANG_S
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def plain_threads() -> set[int]:
    """The threads of this process that have the main thread's name, as those of pools have.

    Ray's and torch's have names of their own, and come and go.
    """
    names = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            names[int(task.name)] = (task / "comm").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended since
    return {task for task, name in names.items() if name == names[os.getpid()]}
