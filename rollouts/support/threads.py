# SPDX-License-Identifier: Apache-2.0
"""Threads of the library's own, where the system may start no more."""

from __future__ import annotations

import threading

from rollouts.errors import SpecError


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread.

    Raises:
      SpecError: The process, its user or its container has as many as it may.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise SpecError(
            f"could not start the thread {thread.name!r} ({error}): raise the limit of processes "
            "and threads (ulimit -u, or pids.max of the container), or start fewer"
        ) from None
