# SPDX-License-Identifier: Apache-2.0
"""ModelledLearner: takes fragments from coordinators, learns from them and publishes weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rollouts.errors import RolloutsError
from rollouts.learner.fetching import Claim
from rollouts.learner.fragment import FragmentHandle
from rollouts.simulation.event_loop import EventLoop
from rollouts.simulation.job_model import JobModel
from rollouts.simulation.modelled_cluster import ModelledCluster, ModelledNode, transfer
from rollouts.simulation.modelled_driver import ModelledDriver
from rollouts.simulation.modelled_worker import ModelledPayload
from rollouts.simulation.run_record import RunRecord
from rollouts.workers.weights import WeightStore

# the arrays of a version; what travels is `LearnerModel.weight_bytes`
_WEIGHTS = {"w": np.zeros(1)}


class ModelledLearner:
    """All learners together, as they make one update after the other.

    A batch is wanted, fetched and learned from. With `prefetch` the next one is wanted as soon as
    this one is learned from, else when the weights that it led to are published.

    Attributes:
      num_updates: Updates so far.
      failure: What ended the run, if no worker is left.
    """

    def __init__(
        self,
        job: JobModel,
        loop: EventLoop,
        *,
        drivers: Sequence[ModelledDriver],
        cluster: ModelledCluster,
        weights: WeightStore,
        record: RunRecord,
        on_delivery: Callable[[int, Sequence[FragmentHandle]], None],
    ) -> None:
        """Takes what it works with; `begin` publishes first weights and wants a first batch."""
        self.num_updates = 0
        self.failure: RolloutsError | None = None
        self._job, self._loop, self._drivers, self._cluster = job, loop, drivers, cluster
        self._weights, self._record, self._on_delivery = weights, record, on_delivery
        self._claims: list[Claim] = []
        self._is_fetching = self._is_learning = False
        self._fetched: int | None = None  # env-steps of a batch that waits for the learners

    def begin(self) -> None:
        """Publishes the first weights and wants the first batch."""
        self._publish()
        self._want()

    def try_take(self) -> None:
        """Takes what it lacks, if it is there; the drivers call it when fragments came."""
        if not self._claims or self._is_fetching or self.failure is not None:
            return
        try:
            pairs = zip(self._drivers, self._claims, strict=True)
            # no shortcut: what one has not yet is no reason to leave that of others
            if all([driver.queue.try_take(claim) for driver, claim in pairs]):
                self._fetch()
        except RolloutsError as error:
            self.failure = error

    def _want(self) -> None:
        self._claims = [Claim(self._job.fragments_each) for _ in self._drivers]
        for driver, claim in zip(self._drivers, self._claims, strict=True):
            driver.queue.begin(claim)
        self.try_take()

    def _fetch(self) -> None:
        """Lets the arrays travel; those of a node that is gone are lost, and others wanted."""
        has_lost = False
        for driver, claim in zip(self._drivers, self._claims, strict=True):
            for handle in [one for one in claim.taken if not _node_of(one).is_alive]:
                driver.queue.lose(claim, handle)
                has_lost = True
        if has_lost:
            self.try_take()
            return
        self._is_fetching = True
        now, nodes, resolve_us = (
            self._loop.now,
            self._cluster.learner_nodes,
            self._job.driver.resolve_us,
        )
        end, index = now, 0
        for driver, claim in zip(self._drivers, self._claims, strict=True):
            for handle in claim.taken:
                target = nodes[index % len(nodes)]
                end = max(end, transfer(now, _node_of(handle), target, handle.info.nbytes))
                index += 1
            end = max(end, driver.use(len(claim.taken) * resolve_us))
        self._loop.at(end + self._job.nodes.latency_s, self._deliver)

    def _deliver(self) -> None:
        steps = 0
        for number, claim in enumerate(self._claims):
            handles = [*claim.taken]
            self._drivers[number].queue.deliver(claim)
            steps += self._record.delivered(handles, self._weights.version)
            self._on_delivery(number, handles)
        self._claims, self._is_fetching = [], False
        self._fetched = steps
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
        for driver in self._drivers:
            driver.use(self._job.driver.publish_us)
            driver.published()


def _node_of(handle: FragmentHandle) -> ModelledNode:
    assert isinstance(handle.fetch, ModelledPayload)
    return handle.fetch.node
