# SPDX-License-Identifier: Apache-2.0
"""Options of RolloutCoordinator that are no plain keywords: one frozen dataclass per subject.

Each checks its own values, and its errors name the field as it is written: `placement.num_gpus`.
`CollectOptions` is in `worker_config`, `WeightTransport` in `weight_transport`, `BatchRule` in
`policy_requests`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from rollouts.checks import whole_number
from rollouts.errors import SpecError
from rollouts.support.field_checks import (
    Strategy,
    check_cpus,
    check_gpus,
    check_nodes,
    check_one_of,
    check_seconds,
    check_type,
)
from rollouts.support.keywords import explains_fields
from rollouts.workers.lag import LagPolicy
from rollouts.workers.merge import MergeOrder
from rollouts.workers.policy_requests import BatchRule
from rollouts.workers.weight_transport import WeightTransport
from rollouts.workers.worker_config import CollectOptions


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Resources and place of every worker: nodes in Ray's terms, and CPUs of a node.

    With a `strategy` the workers get a placement group, which reserves the resources of
    `max_workers` at once. If a worker's node is lost, Ray moves the worker's bundle to another.

    Attributes:
      num_cpus: CPUs that Ray reserves for each worker; None for num_threads_per_worker.
      num_gpus: GPUs that Ray reserves for each worker; may be a fraction.
      max_workers: Most workers that `scale_to` can ask for; None for num_workers. A Ray started
        here, and a placement group, have room for that many.
      strategy: "PACK" for few nodes, "SPREAD" for many; "STRICT_PACK" for one node alone,
        "STRICT_SPREAD" for a node each. None leaves it to Ray, without a placement group.
      node_labels: Labels that a worker's node must have.
      pin_threads: Passed on to `make_vec`; a sequence has one entry per worker, used again from
        the start by further workers. True is for one worker per machine or NUMA node, as each
        takes the first CPUs that it may use. None leaves it to make_vec.
      numa_nodes: NUMA nodes of each machine, to have one worker on each: all threads of worker w
        stay on the CPUs of node w % numa_nodes of its machine, those of torch too. A worker on a
        machine with fewer nodes fails. None leaves the threads where the kernel puts them. On
        several machines use strategy="PACK", so that workers of one machine follow each other.
    """

    num_cpus: float | None = None
    num_gpus: float = 0.0
    max_workers: int | None = None
    strategy: Strategy | None = None
    node_labels: Mapping[str, str] = field(default_factory=dict)
    pin_threads: bool | Sequence[bool | Sequence[int]] | None = None
    numa_nodes: int | None = None

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range, or two contradict each other."""
        if self.num_cpus is not None:
            check_cpus("placement.num_cpus", self.num_cpus)
        check_gpus("placement.num_gpus", self.num_gpus)
        if self.max_workers is not None:
            whole_number("placement.max_workers", self.max_workers, 0)
        check_nodes("placement", self.strategy, self.node_labels)
        if self.numa_nodes is None:
            return
        whole_number("placement.numa_nodes", self.numa_nodes, 1)
        if self.numa_nodes > 1 and self.strategy in ("SPREAD", "STRICT_SPREAD"):
            raise SpecError(
                f"placement.numa_nodes is {self.numa_nodes} with strategy={self.strategy!r}: "
                "workers 0, 1, ... would go to one machine after the other, and those on the same "
                'machine would share a NUMA node; expected strategy="PACK", or leave one of them '
                "out"
            )


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPolicy:
    """The rule for workers that raise, die, hang or do not start.

    Attributes:
      max_restarts: A worker is benched, not started again, when it has failed more often than
        this, either in a row without a completed fragment or within restart_window_s.
      restart_window_s: Seconds after which a failure no longer counts.
      start_timeout_s: Seconds a worker may take to start before that is a failure.
      hang_timeout_s: Seconds one fragment may take, including the transfer of its arrays from
        another node, before its worker is killed as hung; None waits for ever.
    """

    max_restarts: int = 3
    restart_window_s: float = 600.0
    start_timeout_s: float = 300.0
    hang_timeout_s: float | None = 300.0

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range."""
        whole_number("faults.max_restarts", self.max_restarts, 0)
        check_seconds("faults.restart_window_s", self.restart_window_s, 0.0)
        check_seconds("faults.start_timeout_s", self.start_timeout_s, 1e-3)
        if self.hang_timeout_s is not None:
            check_seconds("faults.hang_timeout_s", self.hang_timeout_s, 1e-3)


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Limits on the number and the age of fragments on their way, and the order in which they come.

    Attributes:
      max_queued_fragments: Most fragments in flight and queued together, so also the most that one
        `get` can take; None for num_workers * credits_per_worker, and more in flight where small
        fragments share calls, see max_fragments_per_call.
      credits_per_worker: Most calls in flight per worker. With 2 a worker never waits for the
        driver, with 1 it starts each fragment with the newest weights.
      max_fragments_per_call: Most fragments that one call makes. A call costs the driver the same
        whatever it brings, so fragments that take less than 20 ms share calls: as many as last 20
        ms together, but all calls in flight bring no more than the learner takes between two
        versions of the weights. Where that is too little for num_workers * credits_per_worker
        calls, fewer workers are asked at a time, in turn, as long as they are faster than the
        driver, whose time for making calls is measured. With max_queued_fragments=None, that many
        may be in flight and queued together. Fragments of a call have the same weights and arrive
        together; if the worker's process dies before that, all of them count as interrupted. With a
        limit on the lag, credits_per_worker=1, merge="ordered" or a direct tensor_transport each
        fragment has its own call, as with 1 here.
      max_policy_lag: Most versions that a delivered fragment's oldest step may be behind the
        newest; None sets no limit. Every sync_mode but "free_running" sets it.
      lag_policy: "drop", "block" or "pass": what happens above max_policy_lag, see `LagRule`;
        None for "drop" if there is a max_policy_lag.
      merge: "arrival", or "ordered": round robin by worker_id, for debugging. Unless a worker
        fails, a `get` times out or a fragment grows stale, the fragments and their weights are
        then the same in every run.
    """

    max_queued_fragments: int | None = None
    credits_per_worker: int = 2
    max_fragments_per_call: int = 16
    max_policy_lag: int | None = None
    lag_policy: LagPolicy | None = None
    merge: MergeOrder = "arrival"

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range."""
        if self.max_queued_fragments is not None:
            whole_number("queue.max_queued_fragments", self.max_queued_fragments, 1)
        whole_number("queue.credits_per_worker", self.credits_per_worker, 1)
        whole_number("queue.max_fragments_per_call", self.max_fragments_per_call, 1)
        if self.max_policy_lag is not None:
            whole_number("queue.max_policy_lag", self.max_policy_lag, 0)
        if self.lag_policy is not None:
            check_one_of("queue.lag_policy", self.lag_policy, get_args(LagPolicy))
        check_one_of("queue.merge", self.merge, get_args(MergeOrder))


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """A policy in an actor of its own, asked by all workers; see `InferenceServer`.

    make_policy is then called in that actor, with a PolicySpec of the environments of all workers,
    placement.max_workers of them.

    Attributes:
      rule: When the observations of several workers become a batch.
      num_cpus: CPUs that Ray reserves for the actor, and the most threads of torch in it: it has 1
        unless the network is large, see `rollouts.machine.torch_threads.threads_for`.
      num_gpus: GPUs that Ray reserves for the actor; may be a fraction.
    """

    rule: BatchRule = BatchRule()
    num_cpus: float = 1.0
    num_gpus: float = 0.0

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range."""
        check_type("inference.rule", self.rule, BatchRule, "BatchRule()")
        check_cpus("inference.num_cpus", self.num_cpus)
        check_gpus("inference.num_gpus", self.num_gpus)


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """All options of a RolloutCoordinator, as it was given them.

    Raises:
      SpecError: An option is not of its dataclass, such as placement="PACK".
    """

    placement: Placement
    faults: FaultPolicy
    queue: QueueLimits
    weights: WeightTransport
    collect: CollectOptions
    inference: Inference | None

    def __post_init__(self) -> None:
        """See the class."""
        check_type("placement", self.placement, Placement, 'Placement(strategy="PACK")')
        check_type("faults", self.faults, FaultPolicy, "FaultPolicy(max_restarts=3)")
        check_type("queue", self.queue, QueueLimits, "QueueLimits(credits_per_worker=1)")
        example = 'WeightTransport(dtype="bfloat16")'
        check_type("weights", self.weights, WeightTransport, example)
        check_type("collect", self.collect, CollectOptions, "CollectOptions(keep_final_obs=True)")
        if self.inference is not None:
            check_type("inference", self.inference, Inference, "Inference(rule=BatchRule())")
