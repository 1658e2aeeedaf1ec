# SPDX-License-Identifier: Apache-2.0
"""ModelledCluster: nodes with links and places for workers, and the deaths of both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np

from rollouts.simulation.event_loop import EventLoop
from rollouts.simulation.job_model import JobModel

_HOUR_S = 3600.0
# versions of the weights that a node keeps, because calls that wait may need older ones
_KEPT_VERSIONS = 8


class Lane:
    """One direction of a link, which bytes pass in order."""

    def __init__(self, bytes_per_s: float) -> None:
        self.num_bytes = 0
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def passed(self, now: float, num_bytes: int) -> float:
        """Returns the time at which bytes that are sent now have passed."""
        self.num_bytes += num_bytes
        self._free_at = max(self._free_at, now) + num_bytes / self._bytes_per_s
        return self._free_at


class Resident(Protocol):
    """A worker, from its node's view; see `ModelledWorker`."""

    worker_id: int
    node: ModelledNode | None
    has_started: bool
    is_over: bool

    def placed(self, node: ModelledNode) -> None: ...

    def die(self, told_after_s: float) -> None: ...


class ModelledNode:
    """A machine.

    Attributes:
      out, into: The two directions of its link.
      workers: Workers on this machine.
      copies: Version of the weights -> time at which the node has it.
    """

    def __init__(self, bytes_per_s: float) -> None:
        self.is_alive = True
        self.out, self.into = Lane(bytes_per_s), Lane(bytes_per_s)
        self.workers: dict[int, Resident] = {}
        self.copies: dict[int, float] = {}


def transfer(now: float, source: ModelledNode, target: ModelledNode, num_bytes: int) -> float:
    """Returns when bytes that are sent now arrive; a node needs no link to itself."""
    if source is target:
        return now
    return max(source.out.passed(now, num_bytes), target.into.passed(now, num_bytes))


class ModelledCluster:
    """Nodes of workers and of learners.

    Attributes:
      brings: Whether arrays are sent to the learner as soon as they are made. So it is with one
        learner, in the driver's process; several learners fetch the arrays of fragments that they
        are given.
      learner_nodes: A node for each learner; these do not die.
      nodes: Nodes of workers.
      num_running: Running workers.
      lost_at: Times of deaths, by worker_id, of workers that are not replaced yet.
      recovery_s: Seconds from the death of each worker, alone or with its node, until its
        replacement runs.
      num_node_deaths, num_worker_deaths: Deaths so far.
      gone_bytes: Bytes that had been received by nodes which died.
    """

    def __init__(self, job: JobModel, loop: EventLoop, random: np.random.Generator) -> None:
        """Makes all nodes; deaths begin with `begin_deaths`."""
        self._job, self._loop, self._random = job, loop, random
        self._latency_s = job.nodes.latency_s
        num_nodes = -(-job.workers.num_workers // job.nodes.workers_per_node)
        rate = job.nodes.bytes_per_s
        self.learner_nodes = [ModelledNode(rate) for _ in range(job.learners.num_learners)]
        self.brings = len(self.learner_nodes) == 1
        self.nodes = [ModelledNode(rate) for _ in range(num_nodes + job.nodes.spare_nodes)]
        self._with_room = deque(self.nodes)
        self._waiting: deque[Resident] = deque()
        # nodes that have or will get the newest version, in the order of their requests
        self._chain: list[ModelledNode] = [self.learner_nodes[0]]
        self._chain_version = 0
        self.lost_at: dict[int, float] = {}
        self.num_running = self.num_node_deaths = self.num_worker_deaths = self.gone_bytes = 0
        self.recovery_s: list[float] = []

    def begin_deaths(self) -> None:
        """Makes nodes and workers die from now on."""
        nodes, workers = self._job.nodes, self._job.workers
        self._die_later(nodes.deaths_per_hour * len(self.nodes), self._kill_node)
        self._die_later(nodes.worker_deaths_per_hour * workers.num_workers, self._kill_worker)

    def place(self, worker: Resident) -> None:
        """Gives a worker a place, as soon as there is a free one."""
        self._waiting.append(worker)
        self._place_waiting()

    def leave(self, worker: Resident) -> None:
        """Frees the place of a worker that ended."""
        node = worker.node
        if node is None or node.workers.pop(id(worker), None) is None:
            return
        if worker.has_started:
            self.num_running -= 1
        if node.is_alive and len(node.workers) == self._job.nodes.workers_per_node - 1:
            self._with_room.append(node)
        self._place_waiting()

    def lose_workers_of(self, coordinator: int) -> None:
        """Records that a coordinator's workers are lost, for `recovery_s`; ends none of them."""
        for node in self.nodes:
            for worker in node.workers.values():
                is_its = worker.worker_id % self._job.num_coordinators == coordinator
                if worker.has_started and is_its:
                    self.lost_at.setdefault(worker.worker_id, self._loop.now)

    def started(self, worker: Resident) -> None:
        """Records that a worker runs."""
        self.num_running += 1
        lost_at = self.lost_at.pop(worker.worker_id, None)
        if lost_at is not None:
            self.recovery_s.append(self._loop.now - lost_at)

    def weights_ready(self, node: ModelledNode, version: int, now: float) -> float:
        """Returns the time at which a node has a version; the first request starts the transfer."""
        if version in node.copies:
            return node.copies[version]
        source = self._source(node, version)
        sent_at = max(now, source.copies.get(version, now))
        size = self._job.learners.weight_bytes
        ready = node.copies[version] = transfer(sent_at, source, node, size) + self._latency_s
        # a straggler may ask for a version that is older than all that are kept
        if len(node.copies) > _KEPT_VERSIONS:
            del node.copies[min(node.copies)]
        return ready

    def _source(self, node: ModelledNode, version: int) -> ModelledNode:
        if version > self._chain_version:
            self._chain, self._chain_version = [self.learner_nodes[0]], version
        if self._job.learners.weights_from == "learner" or version < self._chain_version:
            return self.learner_nodes[0]
        # each node passes them on to two others, unless it has died since
        parent = self._chain[(len(self._chain) - 1) // 2]
        self._chain.append(node)
        return parent if parent.is_alive else self.learner_nodes[0]

    def _place_waiting(self) -> None:
        while self._waiting and self._with_room:
            if self._waiting[0].is_over:
                self._waiting.popleft()
                continue
            node = self._with_room[0]
            if not node.is_alive or len(node.workers) >= self._job.nodes.workers_per_node:
                self._with_room.popleft()
                continue
            worker = self._waiting.popleft()
            node.workers[id(worker)] = worker
            worker.placed(node)

    def _die_later(self, per_hour: float, kill: Callable[[], None]) -> None:
        if per_hour > 0:
            wait_s = self._random.exponential(_HOUR_S / per_hour)
            self._loop.at(self._loop.now + wait_s, self._die, per_hour, kill)

    def _die(self, per_hour: float, kill: Callable[[], None]) -> None:
        kill()
        self._die_later(per_hour, kill)

    def _kill_node(self) -> None:
        if not self.nodes:
            return
        index = int(self._random.integers(len(self.nodes)))
        node = self.nodes[index]
        node.is_alive = False
        self.num_node_deaths += 1
        self.gone_bytes += node.into.num_bytes
        self._loop.at(self._loop.now + self._job.nodes.replace_s, self._add_node)
        self.nodes[index] = self.nodes[-1]
        self.nodes.pop()
        for worker in [*node.workers.values()]:
            self._lose(worker, self._job.nodes.detect_s)

    def _kill_worker(self) -> None:
        workers = [worker for node in self.nodes for worker in node.workers.values()]
        if workers:
            self.num_worker_deaths += 1
            self._lose(workers[int(self._random.integers(len(workers)))], self._latency_s)

    def _lose(self, worker: Resident, told_after_s: float) -> None:
        if worker.has_started:
            self.lost_at.setdefault(worker.worker_id, self._loop.now)
        self.leave(worker)
        worker.die(told_after_s)

    def _add_node(self) -> None:
        node = ModelledNode(self._job.nodes.bytes_per_s)
        self.nodes.append(node)
        self._with_room.append(node)
        self._place_waiting()
