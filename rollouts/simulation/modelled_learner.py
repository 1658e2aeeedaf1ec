# SPDX-License-Identifier: Apache-2.0
"""ModelledLearner: takes fragments from coordinators, learns from them and publishes weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rollouts.errors import RolloutsError
from rollouts.learner.fetching import Claim
from rollouts.learner.fragment import FragmentHandle
from rollouts.simulation.event_loop import EventLoop
from rollouts.simulation.job_model import JobModel
from rollouts.simulation.modelled_cluster import ModelledCluster, transfer
from rollouts.simulation.modelled_driver import ModelledDriver
from rollouts.simulation.modelled_worker import ModelledPayload
from rollouts.simulation.run_record import RunRecord
from rollouts.workers.weights import WeightStore

# stand-in for a version's arrays; `LearnerModel.weight_bytes` is the size that is sent
_WEIGHTS = {"w": np.zeros(1)}


@dataclass(slots=True, eq=False)
class _Share:
    """The part of a batch that one coordinator delivers."""

    driver: ModelledDriver
    claim: Claim
    is_fetched: bool = False


class ModelledLearner:
    """All learners together, which make one update after the other.

    A batch is requested, fetched and learned from. With `prefetch` the next batch is requested when
    learning from this one begins, else when the resulting weights are published. If a coordinator
    dies, others deliver its share.

    Attributes:
      num_updates: Updates so far.
      failure: The error that ended the run, if no worker is left.
    """

    def __init__(
        self,
        job: JobModel,
        loop: EventLoop,
        *,
        drivers: list[ModelledDriver],
        cluster: ModelledCluster,
        weights: WeightStore,
        record: RunRecord,
        on_delivery: Callable[[ModelledDriver, Sequence[FragmentHandle]], None],
    ) -> None:
        """Takes the other parts; `begin` publishes the first weights and requests the first batch.

        `drivers` has the present coordinators, which new ones may replace.
        """
        self.num_updates = 0
        self.failure: RolloutsError | None = None
        self._job, self._loop, self._drivers, self._cluster = job, loop, drivers, cluster
        self._weights, self._record, self._on_delivery = weights, record, on_delivery
        self._shares: list[_Share] = []
        self._num_unasked = 0  # fragments of a batch not requested, for lack of coordinators
        self._num_steps = 0  # env-steps of a batch that were delivered
        self._is_fetching = self._is_learning = False
        self._fetched: int | None = None  # env-steps of a batch that waits for the learners

    def begin(self) -> None:
        """Publishes the first weights and requests the first batch."""
        self._publish()
        self._want()

    def try_take(self) -> None:
        """Takes missing fragments, if they have come; the drivers call it when fragments come."""
        if self._num_unasked:
            self._ask(0)
        if not self._shares or self._is_fetching or self.failure is not None:
            return
        try:
            # a list, so that all coordinators are tried even if one has too few
            if all([one.driver.queue.try_take(one.claim) for one in self._shares]):
                self._fetch()
        except RolloutsError as error:
            self.failure = error

    def lost(self, driver: ModelledDriver) -> None:
        """Requests undelivered fragments of a dead coordinator, which are lost, from others."""
        num_lost = 0
        for share in [one for one in self._shares if one.driver is driver]:
            num_lost += share.claim.num_lacking + len(share.claim.taken)
            driver.queue.put_back(share.claim)
            self._shares.remove(share)
        self._ask(num_lost)
        self.try_take()

    def _want(self) -> None:
        self._ask(self._job.learners.fragments_per_update)
        self.try_take()

    def _ask(self, num_fragments: int) -> None:
        """Requests more fragments, in equal parts from the coordinators that have some."""
        self._num_unasked += num_fragments
        serving = [one for one in self._drivers if one.is_serving and not one.is_dead]
        if not serving:
            return
        num_fragments, self._num_unasked = self._num_unasked, 0
        for index, driver in enumerate(serving):
            part = (num_fragments + index) // len(serving)
            if part:
                share = _Share(driver, Claim(part))
                self._shares.append(share)
                driver.queue.begin(share.claim)

    def _fetch(self) -> None:
        """Sends the arrays to the learners; those of a dead node are lost, and others requested."""
        wanted = [one for one in self._shares if not one.is_fetched]
        has_lost = False
        for share in wanted:
            for handle in [one for one in share.claim.taken if _is_lost(one)]:
                share.driver.queue.lose(share.claim, handle)
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
        for share in wanted:
            for handle in share.claim.taken:
                target = nodes[index % len(nodes)]
                payload = _payload_of(handle)
                if not payload.is_here:
                    end = max(end, transfer(now, payload.node, target, handle.info.nbytes))
                index += 1
            end = max(end, share.driver.use(len(share.claim.taken) * resolve_us))
            share.is_fetched = True
        self._loop.at(end + self._job.nodes.latency_s, self._deliver)

    def _deliver(self) -> None:
        self._is_fetching = False
        for share in [one for one in self._shares if one.is_fetched]:
            handles = [*share.claim.taken]
            share.driver.queue.deliver(share.claim)
            self._num_steps += self._record.delivered(handles, self._weights.version)
            self._on_delivery(share.driver, handles)
            self._shares.remove(share)
        if self._shares or self._num_unasked:
            # a coordinator died meanwhile, so others deliver its share
            self.try_take()
            return
        self._fetched, self._num_steps = self._num_steps, 0
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
        for driver in [one for one in self._drivers if not one.is_dead]:
            driver.use(self._job.driver.publish_us)
            driver.published()


def _payload_of(handle: FragmentHandle) -> ModelledPayload:
    assert isinstance(handle.fetch, ModelledPayload)
    return handle.fetch


def _is_lost(handle: FragmentHandle) -> bool:
    payload = _payload_of(handle)
    return not (payload.is_here or payload.node.is_alive)
