# SPDX-License-Identifier: Apache-2.0
"""The coordinator's work without workers: one RolloutWorker in this process, run by `get`."""

from __future__ import annotations

import sys
import time
from typing import Any

from rollouts.errors import ClosedError, ProtocolError, WorkerError
from rollouts.learner.fragment import Fragment, FragmentHandle
from rollouts.learner.queue import LearnerQueue
from rollouts.workers.fleet import FleetRules
from rollouts.workers.weight_store import TakeSnapshots, WeightStore
from rollouts.workers.worker import RolloutWorker
from rollouts.workers.worker_config import MakePolicy, WorkerConfig


class LocalRunner:
    """Collects on the caller's thread when fragments are asked for. One caller at a time."""

    def __init__(
        self,
        config: WorkerConfig,
        make_policy: MakePolicy,
        *,
        weights: WeightStore,
        rules: FleetRules,
    ) -> None:
        self.queue = LearnerQueue(
            rules.queue.max_queued_fragments or sys.maxsize,
            is_stale=rules.lag.is_stale(lambda: weights.version),
        )
        self._config = config
        self._weights = weights
        self._worker = RolloutWorker(config, make_policy)
        weights.learn_policies(self._worker.describe().policies)
        self._error: str | None = None
        self._is_drained = False
        self._num_collected = 0

    def published(self) -> None:
        """Does nothing: there is no thread to wake."""

    def weights_of(self, learner: Any, method: str, timeout_s: float | None) -> TakeSnapshots:
        """Raises ProtocolError: there are no workers that take weights from a learner's actor."""
        raise ProtocolError(
            "publish_from() with num_workers=0, expected at least 1 worker: fetch the learner's "
            "weights and call publish_weights()"
        )

    def scale_to(self, num_workers: int) -> None:
        """Raises ProtocolError: there are no workers."""
        raise ProtocolError("scale_to() with num_workers=0, expected at least 1 worker to add to")

    def drain(self, timeout_s: float | None) -> None:
        """Collects nothing more; the queue raises ClosedError where it has too little."""
        self.queue.fail(ClosedError("the coordinator was drained: nothing more will come"))
        self._is_drained = True

    def get(self, num_fragments: int, timeout_s: float | None) -> list[Fragment]:
        """Collects what is missing, then takes it from the queue.

        `timeout_s` is checked after each fragment, so that a call completes at least one that it
        lacks; after a TimeoutError the collected ones are kept for the next call.
        """
        self._fill(num_fragments, timeout_s)
        return self.queue.get(num_fragments, timeout_s=0)

    def get_pending(self, num_fragments: int, timeout_s: float | None) -> list[FragmentHandle]:
        """Returns what `get` returns; the arrays are in this process anyway."""
        self._fill(num_fragments, timeout_s)
        return self.queue.get_handles(num_fragments, timeout_s=0)

    def hand_over(
        self, learner: Any, num_fragments: int, timeout_s: float | None
    ) -> list[FragmentHandle]:
        """Raises ProtocolError: there is no Ray, so no learner in an actor."""
        raise ProtocolError(
            "hand_over() with num_workers=0, expected at least 1 worker: here the learner is in "
            "this process, and get() gives it what was collected"
        )

    def _fill(self, num_fragments: int, timeout_s: float | None) -> None:
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        num_needed = min(num_fragments, self.queue.capacity)
        # leftovers of a timed-out call may be too old by now
        self.queue.drop_stale()
        while not self._is_over and self.queue.depth < num_needed:
            if self.queue.closed:
                raise ClosedError("the coordinator is closed")
            self._collect()
            is_enough = self._is_over or self.queue.depth >= num_needed
            if not is_enough and time.monotonic() > deadline:
                raise TimeoutError(f"{num_fragments} fragments took longer than {timeout_s} s")

    def stats(self) -> dict[str, Any]:
        """Returns the runner's part of `RolloutCoordinator.stats`."""
        num_failed = int(self._error is not None)
        interrupted = {"worker_error": num_failed} if num_failed else {}
        stats, levels = self.queue.snapshot()
        stats["fragments"]["requested"] = self._num_collected + num_failed
        stats["fragments"]["in_flight"] = 0
        stats["fragments"]["interrupted"] = interrupted
        return {
            **stats,
            "outstanding_limit": levels.wanted + levels.held,
            "calls": self._num_collected + num_failed,
            "restarts": 0,
            "failures": interrupted,
            "workers_wait_s": 0.0,
            "weight_pulls": {},
            "workers": [],
        }

    def close(self) -> None:
        """Frees the pool and discards what is queued. Idempotent."""
        self.queue.close()
        self._worker.close()

    @property
    def _is_over(self) -> bool:
        return self._error is not None or self._is_drained

    def _collect(self) -> None:
        offer = self._weights.latest
        if offer is None:
            raise ProtocolError("no weights yet: call publish_weights() before get()")
        try:
            fragment = self._worker.collect(offer)
        except Exception as error:
            self._error = repr(error)
            failure = WorkerError(f"collecting failed in this process: {error!r}")
            failure.__cause__ = error
            self.queue.fail(failure)
            return
        self._num_collected += 1
        self.queue.put(FragmentHandle(fragment.info, lambda timeout_s: fragment.payload))
