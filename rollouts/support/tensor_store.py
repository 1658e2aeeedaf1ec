# SPDX-License-Identifier: Apache-2.0
"""What a process has to do before tensors come to it by Ray's direct transports."""

from __future__ import annotations

import sys


def make_tensor_store() -> None:
    """Has Ray make what keeps the tensors of this process, if it was not made yet.

    Ray (2.60) makes it at its first use, and twice where two threads are the first: tensors then
    arrive in the one and are waited for in the other, for 60 s. So whoever has no other thread of
    Ray's beside it calls this before. Nothing happens without Ray, or with one of before.
    """
    worker = sys.modules.get("ray._private.worker")
    if worker is not None:
        getattr(worker.global_worker, "rdt_manager", None)
