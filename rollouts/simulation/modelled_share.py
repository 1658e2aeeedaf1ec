# SPDX-License-Identifier: Apache-2.0
"""ModelledShare: a coordinator's actor with its share of the workers, in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from rollouts.simulation.event_loop import EventLoop
from rollouts.simulation.job_model import JobModel
from rollouts.simulation.modelled_cluster import ModelledCluster, ModelledNode, transfer
from rollouts.simulation.modelled_process import ModelledProcess
from rollouts.simulation.modelled_worker import Answer, ModelledPayload
from rollouts.workers.offers import OfferedWeights, WeightOffer
from rollouts.workers.share import share_config, share_rules, share_size
from rollouts.workers.share_calls import ShareAnswer, ShareCalls
from rollouts.workers.slot import Answers, CoordinatorDied, WorkerHandle
from rollouts.workers.worker import WorkerInfo
from rollouts.workers.worker_config import WorkerConfig
from rollouts.workers.worker_failure import WorkerFailure

if TYPE_CHECKING:
    from rollouts.collecting.frame_stacks import Payload


class ParcelEntry:
    """Arrays of a fragment in the answer of a coordinator, known once the call was answered."""

    __slots__ = ("payload",)

    def __init__(self) -> None:
        self.payload: ModelledPayload

    def __call__(self, timeout_s: float) -> Payload:
        """Raises, as `ModelledPayload` does."""
        return self.payload(timeout_s)


class ModelledShare:
    """One life of a coordinator, and the driver's handle for it in one object.

    Attributes:
      config: Its number, as worker_id, and its life, as incarnation.
      process: Its process, whose fleet has its workers.
      node: The machine that it runs on, which has no workers.
      is_over: Whether it has ended.
    """

    def __init__(
        self,
        config: WorkerConfig,
        job: JobModel,
        loop: EventLoop,
        cluster: ModelledCluster,
        *,
        launch: Callable[[WorkerConfig, ModelledNode], WorkerHandle],
        on_report: Callable[[ModelledShare, dict[str, Any]], None],
    ) -> None:
        """Makes a coordinator without workers.

        Args:
          config, job, loop, cluster: The parts that all coordinators share.
          launch: Starts a worker of a coordinator on a node.
          on_report: Called with the reports that come with answers.
        """
        self.config, self.is_over = config, False
        self.node = ModelledNode(job.nodes.bytes_per_s)
        self._job, self._loop, self._cluster, self._on_report = job, loop, cluster, on_report
        self._num_workers = share_size(
            job.workers.num_workers, job.num_coordinators, config.worker_id
        )
        self._offered, self._calls = OfferedWeights(), ShareCalls()
        self.process = ModelledProcess(
            job.driver,
            loop,
            config=share_config(config),
            num_slots=self._num_workers,
            rules=share_rules(job.rules, job.num_coordinators),
            weights=self._offered,
            launch=lambda config: launch(config, self.node),
            after_turn=lambda: self._calls.serve(self.process.queue),
        )
        self._starting = Answer()
        self._open: dict[int, Answer] = {}
        self._num_asked = self._num_reports = self._num_reported = 0

    def start(self) -> Future[WorkerInfo | WorkerFailure]:
        """Starts the process; the first coordinators are there when a run begins."""
        start_s = self._job.driver.restart_s if self.config.incarnation else 0.0
        self._loop.at(self._loop.now + start_s, self._start)
        return self._starting

    def collect(
        self, offer: WeightOffer, num_fragments: int
    ) -> tuple[Future[Answers], Sequence[ParcelEntry]]:
        """Asks for fragments of any of its workers, as `ShareHandle.collect`."""
        answer, entries = Answer(), [ParcelEntry() for _ in range(num_fragments)]
        at = self._loop.now + self._job.nodes.latency_s
        if self.is_over:
            self._loop.at(at, _fail, answer)
        else:
            number, self._num_asked = self._num_asked, self._num_asked + 1
            self._open[number] = answer
            self._loop.at(at, self._ask, number, offer, entries)
        return answer, entries

    def kill(self) -> None:
        """Ends the process; Ray then ends its workers."""
        if self.is_over:
            return
        self.is_over, self.node.is_alive = True, False
        self.process.die()
        told_at = self._loop.now + self._job.nodes.latency_s
        for answer in (self._starting, *self._open.values()):
            if not answer.done():
                self._loop.at(told_at, _fail, answer)

    def report(self) -> dict[str, Any]:
        """Returns the report that `ShareReports` keeps."""
        self._num_reports += 1
        self._num_reported = self.process.fleet.num_failures
        stats = self.process.fleet.stats()
        return {**stats, "number": self._num_reports, "policies": self._offered.policies}

    def _start(self) -> None:
        if not self.is_over:
            self.process.begin(self._num_workers)
            self._starting.set_result(WorkerInfo(pid=0, host="simulated", policies=()))

    def _ask(self, number: int, offer: WeightOffer, entries: Sequence[ParcelEntry]) -> None:
        if self.is_over:
            return
        if self._offered.take(offer):
            self.process.published()
        asked = self._calls.ask(self.process.queue, number, len(entries))
        asked.add_done_callback(lambda done: self._answer(number, done.result(), entries))

    def _answer(self, number: int, given: ShareAnswer, entries: Sequence[ParcelEntry]) -> None:
        """Sends an answer: small arrays with it, and large ones where the learner takes them."""
        if self.is_over:
            return
        payloads = []
        for handle, entry in zip(given.handles, entries, strict=False):
            assert isinstance(handle.fetch, ModelledPayload)
            entry.payload = handle.fetch
            payloads.append(handle.fetch)
        small = [one for one in payloads if one.node is self.node]
        has_news = self.process.fleet.num_failures != self._num_reported
        report = self.report() if has_news else None
        sent_at = self.process.use(len(small) * self._job.driver.resolve_us)
        self._loop.at(sent_at, self._send, number, given, payloads, small, report)

    def _send(
        self,
        number: int,
        given: ShareAnswer,
        payloads: Sequence[ModelledPayload],
        small: Sequence[ModelledPayload],
        report: dict[str, Any] | None,
    ) -> None:
        if self.is_over:
            return
        moved = payloads if self._cluster.brings else small
        now, size = self._loop.now, self._job.workers.fragment_bytes
        here = self._cluster.learner_nodes[0]
        end = max((transfer(now, one.node, here, size) for one in moved), default=now)
        arrives_at = end + self._job.nodes.latency_s
        self._loop.at(arrives_at, self._arrive, number, given, moved, report)

    def _arrive(
        self,
        number: int,
        given: ShareAnswer,
        moved: Sequence[ModelledPayload],
        report: dict[str, Any] | None,
    ) -> None:
        answer = self._open.pop(number)
        if answer.done():
            return
        if report is not None:
            self._on_report(self, report)
        for payload in moved:
            payload.move(self._cluster.learner_nodes[0])
        infos = (handle.info for handle in given.handles)
        answer.set_result((*infos, *([] if given.failure is None else [given.failure])))


def _fail(answer: Answer) -> None:
    if not answer.done():
        answer.set_exception(CoordinatorDied("the simulated coordinator died"))
