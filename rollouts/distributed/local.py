# SPDX-License-Identifier: Apache-2.0
"""The coordinator's work without workers: one RolloutWorker in this process, run by `get`."""

from __future__ import annotations

import sys
import time
from typing import Any

from rollouts.distributed.fragment import Fragment, FragmentInfo, PendingFragment
from rollouts.distributed.weights import WeightStore
from rollouts.distributed.worker import MakeCollector, MakePolicy, RolloutWorker, WorkerConfig
from rollouts.errors import ClosedError, ProtocolError, WorkerError
from rollouts.learner_queue import LearnerQueue


class LocalRunner:
    """Collects on the caller's thread when fragments are asked for. One caller at a time."""

    def __init__(
        self,
        config: WorkerConfig,
        make_policy: MakePolicy,
        *,
        make_collector: MakeCollector | None,
        weights: WeightStore,
        capacity: int | None,
    ) -> None:
        self.queue: LearnerQueue[Fragment] = LearnerQueue(capacity or sys.maxsize)
        self._config = config
        self._weights = weights
        self._worker = RolloutWorker(config, make_policy, make_collector=make_collector)
        self._error: str | None = None

    def wake(self) -> None:
        """Does nothing: there is no thread to wake."""

    def get(self, num_fragments: int, timeout_s: float | None) -> list[Fragment]:
        """Collects what is missing, then takes it from the queue.

        `timeout_s` is looked at between fragments; what was collected in time is kept for the next
        call.
        """
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while self._error is None and self.queue.depth < min(num_fragments, self.queue.capacity):
            if self.queue.closed:
                raise ClosedError("the coordinator is closed")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{num_fragments} fragments took longer than {timeout_s} s")
            self._collect()
        return self.queue.get(num_fragments, timeout_s=0)

    def stats(self) -> dict[str, Any]:
        """Returns the runner's part of `RolloutCoordinator.stats`."""
        return {
            "in_flight": 0,
            "interrupted": {} if self._error is None else {"worker_error": 1},
            "restarts": 0,
            "workers": [],
        }

    def close(self) -> None:
        """Frees the pool and discards what is queued. Idempotent."""
        self.queue.close()
        self._worker.close()

    def _collect(self) -> None:
        offer = self._weights.latest
        if offer is None:
            raise ProtocolError("no weights yet: call publish_weights() before get()")
        try:
            info, batch = self._worker.collect(offer)
        except Exception as error:
            self._error = repr(error)
            failure = WorkerError(f"collecting failed in this process: {error!r}")
            failure.__cause__ = error
            self.queue.fail(failure)
            return
        self.queue.put(_in_process(info, batch))


def _in_process(info: FragmentInfo, batch: Any) -> PendingFragment:
    return PendingFragment(info, lambda timeout_s: batch)
