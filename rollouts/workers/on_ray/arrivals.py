# SPDX-License-Identifier: Apache-2.0
"""Arrays of fragments on their way from other nodes to a learner in this process.

A fragment of another node comes over the network. Its call counts as in flight until it is here, so
that the queue holds what a `get` returns at once, a slow link holds up no other call, and the
learner computes while arrays travel. Arrays that a learner takes elsewhere are left where they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
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


def with_arrays(answers: Future[Any], bring: Callable[[Any], Iterable[Future[Any]]]) -> Future[Any]:
    """Returns a future of the same answers, done once all of their arrays are here, or lost.

    Args:
      answers: The answers of a call, or an object that has references to arrays.
      bring: Begins to bring the arrays of such answers, and returns a future for each. It is called
        once the answers are there, on the thread that has them, and must not wait.
    """
    result: Future[Any] = Future()

    def begin(_: Future[Any]) -> None:
        try:
            found = answers.result()
            arrays = [*bring(found)]
        except Exception as error:
            result.set_exception(error)
            return
        lock, num_missing = threading.Lock(), len(arrays) + 1

        def count(_: Future[Any]) -> None:
            nonlocal num_missing
            with lock:
                num_missing -= 1
                is_last = not num_missing
            if is_last:
                result.set_result(found)

        for part in (answers, *arrays):
            part.add_done_callback(count)

    answers.add_done_callback(begin)
    return result
