# SPDX-License-Identifier: Apache-2.0
"""StateClients: the incarnations of workers to which a recurrent policy's states belong."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from rollouts.workers.policy_requests import Reply, RowsOf


class StateClients:
    """Tells requests that go on with an episode from those that cannot.

    A state belongs to one incarnation of a worker and to one of the server. A worker that was
    started again begins new episodes, and requests of its former incarnation are refused. A server
    that was started again refuses to go on with episodes whose states it never had, so that their
    worker is started again, too. No episode goes on across a crash. Not thread-safe, except that
    `begins_of` may run beside the other methods.
    """

    def __init__(self, incarnation: int) -> None:
        """Begins without workers; `incarnation` is this server's, above 0."""
        self.incarnation = incarnation
        self._incarnations: dict[int, int] = {}
        self._last: dict[int, tuple[int, Future[Reply]]] = {}
        # by row, the incarnation of the worker whose state it has; -1 for none
        self._owners = np.empty(0, np.int64)

    def problem_of(self, of: RowsOf | None) -> str | None:
        """Returns why a request cannot be answered; None if it can."""
        if of is None:
            return "the policy remembers episodes: ask with rows, as RemoteRecurrentPolicy does"
        newest = self._incarnations.get(of.worker_id, of.incarnation)
        if of.incarnation < newest:
            return (
                f"worker {of.worker_id} asks as incarnation {of.incarnation}, and incarnation "
                f"{newest} has taken its place"
            )
        if of.server_incarnation not in (0, self.incarnation):
            return (
                "the inference server was started again and lost the states of the episodes that "
                f"worker {of.worker_id} is in: the worker must begin new ones"
            )
        return None

    def enter(self, of: RowsOf, future: Future[Reply]) -> Future[Reply] | None:
        """Notes a request; returns its earlier future if it came before.

        A client asks again where it cannot know whether the request arrived, and the states must
        not move on twice.
        """
        if self._incarnations.get(of.worker_id) != of.incarnation:
            self._incarnations[of.worker_id] = of.incarnation
            self._last.pop(of.worker_id, None)
        number, known = self._last.get(of.worker_id, (-1, future))
        if number == of.number:
            return known
        self._last[of.worker_id] = (of.number, future)
        return None

    def begins_of(self, of: RowsOf, *, moves_on: bool) -> NDArray[np.bool_]:
        """Returns `of.begins`, with True where a row's state is that of another incarnation.

        Args:
          of: The rows, and the incarnation that asks.
          moves_on: Whether the request changes the states; they then belong to this incarnation.
        """
        missing = int(of.rows.max(initial=-1)) + 1 - len(self._owners)
        if missing > 0:
            self._owners = np.concatenate([self._owners, np.full(missing, -1)])
        begins: NDArray[np.bool_] = of.begins | (self._owners[of.rows] != of.incarnation)
        if moves_on:
            self._owners[of.rows] = of.incarnation
        return begins
