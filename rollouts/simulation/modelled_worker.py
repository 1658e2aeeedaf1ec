# SPDX-License-Identifier: Apache-2.0
"""ModelledWorker: an actor whose fragments take simulated time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rollouts.errors import WorkerError
from rollouts.learner.fragment import FragmentInfo
from rollouts.simulation.event_loop import EventLoop
from rollouts.simulation.job_model import WorkerModel
from rollouts.simulation.modelled_cluster import ModelledCluster, ModelledNode, transfer
from rollouts.workers.call_size import WORTH_S
from rollouts.workers.offers import WeightOffer
from rollouts.workers.slot import Answers
from rollouts.workers.worker import WorkerInfo
from rollouts.workers.worker_config import WorkerConfig
from rollouts.workers.worker_failure import WorkerFailure

if TYPE_CHECKING:
    from rollouts.collecting.frame_stacks import Payload

_DRAWN_AT_ONCE = 65_536


class FragmentTimes:
    """Draws the seconds that fragments take, many at once."""

    def __init__(self, model: WorkerModel, random: np.random.Generator) -> None:
        self._model, self._random = model, random
        self._times = np.array(model.times)
        self._drawn: list[float] = []

    def draw(self) -> float:
        """Returns the next time."""
        if not self._drawn:
            self._drawn = self._draw_many().tolist()
        return self._drawn.pop()

    def _draw_many(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        if len(self._times) > 1:
            return self._random.choice(self._times, _DRAWN_AT_ONCE)
        median, spread = self._model.times[0], self._model.spread
        return median * np.exp(spread * self._random.standard_normal(_DRAWN_AT_ONCE))


class Answer(Future[Any]):
    """A Future for a single thread, without a lock and without waiting."""

    def __init__(self) -> None:
        """Makes one without a result; it shares only the interface of the usual Future."""
        self._answer: Any = None
        self._death: BaseException | None = None
        self._is_done = False
        self._tell: Callable[[Future[Any]], object] | None = None

    def done(self) -> bool:
        return self._is_done

    def result(self, timeout: float | None = None) -> Any:
        return self._answer

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._death

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        self._tell = fn

    def set_result(self, result: Any) -> None:
        self._answer = result
        self._end()

    def set_exception(self, exception: BaseException | None) -> None:
        self._death = exception
        self._end()

    def _end(self) -> None:
        self._is_done = True
        if self._tell is not None:
            self._tell(self)


class ModelledPayload:
    """Arrays of a call.

    Attributes:
      node: The node that has the arrays.
    """

    __slots__ = ("_owner", "node")

    def __init__(self, node: ModelledNode, owner: ModelledNode) -> None:
        """Takes the node of the worker, and that of the process that made the call."""
        self.node, self._owner = node, owner

    @property
    def is_lost(self) -> bool:
        """Tells whether the node that had the arrays, or the node of their owner, has died."""
        return not (self.node.is_alive and self._owner.is_alive)

    def move(self, node: ModelledNode) -> None:
        """Moves the arrays to a process on another node, if they are not lost."""
        if not self.is_lost:
            self.node = self._owner = node

    def __call__(self, timeout_s: float) -> Payload:
        """Raises, because there are no arrays, only their sizes."""
        raise WorkerError("a simulated fragment has no arrays")


class _Call(NamedTuple):
    """A call, which reaches the worker at `asked_at`."""

    answer: Answer
    payload: ModelledPayload
    version: int
    asked_at: float  # s
    num_fragments: int


class ModelledWorker:
    """One incarnation of a worker, and the driver's handle for it, in one object.

    Attributes:
      worker_id, incarnation: The worker's number, which its replacements share, and the number of
        this incarnation.
      node: Its node; None before it has a place.
      has_started, is_over: Whether it can collect, and whether it has ended.
      num_completed: Fragments that it completed.
    """

    def __init__(
        self,
        config: WorkerConfig,
        *,
        owner: ModelledNode,
        target: ModelledNode | None,
        is_slow: bool,
        model: WorkerModel,
        cluster: ModelledCluster,
        loop: EventLoop,
        times: FragmentTimes,
        latency_s: float,
    ) -> None:
        """Makes a worker that has no place yet.

        Args:
          config: Its number and its incarnation.
          owner: The node of the process that leads it.
          target: The node to which arrays come before a call is over; None: they stay.
          is_slow: Whether it is a straggler.
          model, cluster, loop, times, latency_s: The parts that all workers share.
        """
        self.worker_id, self.incarnation = config.worker_id, config.incarnation
        self._owner, self._target = owner, target
        self.node: ModelledNode | None = None
        self.has_started = self.is_over = False
        self.num_completed = 0
        self._model = model
        self._cluster, self._loop, self._times = cluster, loop, times
        self._latency_s = latency_s
        self._factor = model.straggler_factor if is_slow else 1.0
        self._starting = Answer()
        self._calls: deque[_Call] = deque()
        self._loaded = 0
        self._told_at = 0.0  # s, time at which the driver notices the end

    def start(self) -> Future[WorkerInfo | WorkerFailure]:
        """Requests a place; the future ends when the worker runs or has died."""
        self._cluster.place(self)
        return self._starting

    def placed(self, node: ModelledNode) -> None:
        """Begins to start on a node."""
        self.node = node
        self._loop.at(self._loop.now + self._model.start_s, self._start)

    def collect(
        self, offer: WeightOffer, num_fragments: int
    ) -> tuple[Future[Answers], Sequence[ModelledPayload]]:
        """Requests fragments; calls run one after the other."""
        answer, arrives_at = Answer(), self._loop.now + self._latency_s
        assert self.node is not None
        payload = ModelledPayload(self.node, self._owner)
        if self.is_over:
            self._loop.at(max(arrives_at, self._told_at), self._fail, answer)
        else:
            self._calls.append(_Call(answer, payload, offer.version, arrives_at, num_fragments))
            if len(self._calls) == 1:
                self._begin(arrives_at)
        return answer, [payload] * num_fragments

    def kill(self) -> None:
        """Ends the worker; calls that were not completed fail."""
        if not self.is_over:
            self._cluster.leave(self)
            self.die(self._latency_s)

    def die(self, told_after_s: float) -> None:
        """Ends the worker; the driver notices it later."""
        self.is_over, self._told_at = True, self._loop.now + told_after_s
        for answer in (self._starting, *(call.answer for call in self._calls)):
            if not answer.done():
                self._loop.at(self._told_at, self._fail, answer)

    def _start(self) -> None:
        if self.is_over:
            return
        self.has_started = True
        self._cluster.started(self)
        self._starting.set_result(WorkerInfo(pid=0, host="simulated", policies=("",)))

    def _begin(self, free_at: float) -> None:
        """Begins the oldest call when the worker is free and the call and its weights have come."""
        assert self.node is not None
        call = self._calls[0]
        begin = max(free_at, call.asked_at)
        if call.version > self._loaded:
            begin = max(begin, self._cluster.weights_ready(self.node, call.version, begin))
            self._loaded = call.version
        # the same rule as in RolloutWorker.collect_several
        times = [self._times.draw() * self._factor]
        while len(times) < call.num_fragments and sum(times) < WORTH_S:
            times.append(self._times.draw() * self._factor)
        end = begin + sum(times) + self._model.call_s
        self._loop.at(end + self._latency_s, self._complete, times, end)

    def _complete(self, times: Sequence[float], end: float) -> None:
        if self.is_over:
            return
        call = self._calls.popleft()
        infos = tuple(self._make_info(call.version, seconds) for seconds in times)
        if self._calls:
            self._begin(end)
        arrives_at = self._loop.now
        if self._target is not None:
            size = sum(info.nbytes for info in infos)
            arrives_at = transfer(arrives_at, call.payload.node, self._target, size)
            arrives_at += self._latency_s
        # as in `arrivals.py`, a call is over once its arrays are on the node that takes them
        self._loop.at(arrives_at, self._arrived, call, infos)

    def _arrived(self, call: _Call, infos: tuple[FragmentInfo, ...]) -> None:
        if self._target is not None:
            call.payload.move(self._target)
        if not call.answer.done():
            call.answer.set_result(infos)

    def _make_info(self, version: int, seconds: float) -> FragmentInfo:
        """Describes the next fragment."""
        seq_no, self.num_completed = self.num_completed, self.num_completed + 1
        return FragmentInfo(
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            seq_no=seq_no,
            num_steps=self._model.fragment_steps,
            min_policy_version=version,
            max_policy_version=version,
            collect_s=seconds,
            nbytes=self._model.fragment_bytes,
        )

    def _fail(self, answer: Answer) -> None:
        if not answer.done():
            answer.set_exception(OSError("the simulated actor died"))
