# SPDX-License-Identifier: Apache-2.0
"""ModelledLearner: takes fragments from the driver, learns from them and publishes weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rollouts.errors import RolloutsError
from rollouts.learner.fetching import Claim
from rollouts.learner.fragment import FragmentHandle
from rollouts.simulation.event_loop import EventLoop
from rollouts.simulation.job_model import JobModel
from rollouts.simulation.modelled_cluster import ModelledCluster, transfer
from rollouts.simulation.modelled_process import ModelledProcess
from rollouts.simulation.modelled_share import ParcelEntry
from rollouts.simulation.modelled_worker import ModelledPayload
from rollouts.simulation.run_record import RunRecord
from rollouts.workers.weight_store import WeightStore

# stand-in for a version's arrays; `LearnerModel.weight_bytes` is the size that is sent
_WEIGHTS = {"w": np.zeros(1)}


class ModelledLearner:
    """All learners together, which make one update after the other.

    A batch is requested, fetched and learned from. With `prefetch` the next batch is requested when
    learning from this one begins, else when the resulting weights are published.

    Attributes:
      num_updates: Updates so far.
      failure: The error that ended the run, if no worker is left.
    """

    def __init__(
        self,
        job: JobModel,
        loop: EventLoop,
        *,
        driver: ModelledProcess,
        cluster: ModelledCluster,
        weights: WeightStore,
        record: RunRecord,
        on_delivery: Callable[[Sequence[FragmentHandle]], None],
    ) -> None:
        """Takes the other parts; `begin` starts it."""
        self.num_updates = 0
        self.failure: RolloutsError | None = None
        self._job, self._loop, self._driver, self._cluster = job, loop, driver, cluster
        self._weights, self._record, self._on_delivery = weights, record, on_delivery
        self._claim: Claim | None = None
        self._is_fetching = self._is_learning = False
        self._fetched: int | None = None  # env-steps of a batch that waits for the learners

    def begin(self) -> None:
        """Publishes the first weights and requests the first batch."""
        self._publish()
        self._want()

    def try_take(self) -> None:
        """Takes missing fragments, if they have come; the driver calls it after each turn."""
        if self._claim is None or self._is_fetching or self.failure is not None:
            return
        try:
            if self._driver.queue.try_take(self._claim):
                self._fetch(self._claim)
        except RolloutsError as error:
            self.failure = error

    def _want(self) -> None:
        self._claim = Claim(self._job.learners.fragments_per_update)
        self._driver.queue.begin(self._claim)
        self.try_take()

    def _fetch(self, claim: Claim) -> None:
        """Sends the arrays to the learners; others are requested in place of lost ones."""
        lost = [one for one in claim.taken if _payload_of(one).is_lost]
        if lost:
            for handle in lost:
                self._driver.queue.lose(claim, handle)
            self.try_take()
            return
        self._is_fetching = True
        now, nodes = self._loop.now, self._cluster.learner_nodes
        end = self._driver.use(len(claim.taken) * self._job.driver.resolve_us)
        for index, handle in enumerate(claim.taken):
            node, target = _payload_of(handle).node, nodes[index % len(nodes)]
            end = max(end, transfer(now, node, target, handle.info.nbytes))
        self._loop.at(end + self._job.nodes.latency_s, self._deliver, claim)

    def _deliver(self, claim: Claim) -> None:
        self._is_fetching, self._claim = False, None
        handles = [*claim.taken]
        self._driver.queue.deliver(claim)
        self._fetched = self._record.delivered(handles, self._weights.version)
        self._on_delivery(handles)
        if not self._is_learning:
            self._learn()

    def _learn(self) -> None:
        steps, self._fetched = self._fetched, None
        assert steps is not None
        self._is_learning = True
        learners = self._job.learners
        seconds = steps / (learners.num_learners * learners.steps_per_s)
        self._record.learned(seconds)
        self._loop.at(self._loop.now + seconds, self._end_update)
        if learners.prefetch:
            self._want()

    def _end_update(self) -> None:
        self._is_learning = False
        self.num_updates += 1
        if self.num_updates % self._job.learners.updates_per_version == 0:
            self._publish()
        if not self._job.learners.prefetch:
            self._want()
        elif self._fetched is not None:
            self._learn()

    def _publish(self) -> None:
        self._weights.publish(_WEIGHTS)
        self._driver.use(self._job.driver.publish_us)
        self._driver.published()


def _payload_of(handle: FragmentHandle) -> ModelledPayload:
    fetch = handle.fetch
    payload = fetch.payload if isinstance(fetch, ParcelEntry) else fetch
    assert isinstance(payload, ModelledPayload)
    return payload
