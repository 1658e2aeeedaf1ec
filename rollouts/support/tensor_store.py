# SPDX-License-Identifier: Apache-2.0
"""Ray's store of a process's tensors, which direct transports fill."""

from __future__ import annotations

import sys


def make_tensor_store() -> None:
    """Has Ray make its store in this process, unless there is one.

    To be called while Ray has one thread here. Ray (2.60) makes the store at the first use and
    without a lock: of two threads each may make one, and tensors that arrive in the first are
    waited for in the second, for 60 s. Does nothing where Ray is missing or has no such store.
    """
    worker = sys.modules.get("ray._private.worker")
    if worker is not None:
        getattr(worker.global_worker, "rdt_manager", None)
