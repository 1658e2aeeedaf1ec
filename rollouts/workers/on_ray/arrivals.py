# SPDX-License-Identifier: Apache-2.0
"""Arrays of fragments on their way from other nodes to a learner in this process.

A fragment of another node comes over the network. Its call counts as in flight until it is here, so
that the queue holds what a `get` returns at once, a slow link holds up no other worker, and the
learner computes while arrays travel. Arrays that a learner takes elsewhere are left where they are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Destination:
    """Place where arrays are taken.

    Attributes:
      node_id: Ray's id of this process's node; None where it does not matter.
      takes_here: The last fragments were taken with their arrays, in this process.
    """

    node_id: str | None = None
    takes_here: bool = False

    def is_apart(self, node_id: str | None) -> bool:
        """Tells if arrays of a node are brought here over a network."""
        return self.takes_here and None not in (node_id, self.node_id) and node_id != self.node_id


def with_arrays(answers: Future[Any], arrays: Iterable[Future[Any]]) -> Future[Any]:
    """Returns a future of the same answers, done once all arrays are here, or lost."""
    result: Future[Any] = Future()
    parts = [answers, *arrays]
    lock, num_missing = threading.Lock(), len(parts)

    def count(_: Future[Any]) -> None:
        nonlocal num_missing
        with lock:
            num_missing -= 1
            is_last = not num_missing
        if not is_last:
            return
        if (error := answers.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(answers.result())

    for part in parts:
        part.add_done_callback(count)
    return result
