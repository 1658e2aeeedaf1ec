# SPDX-License-Identifier: Apache-2.0
"""What RolloutCoordinator takes beside its plain keywords: one frozen dataclass per subject.

Each checks its own values, and its errors name the field as it is written: `placement.num_gpus`.
`WeightTransport` is in `weight_transport`, `BatchRule` in `policy_requests`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from rollouts.checks import flag, whole_number
from rollouts.collecting.engine import Engine
from rollouts.distributed.device_options import Device, TensorTransport, check_transport
from rollouts.distributed.lag import LagPolicy
from rollouts.distributed.merge import MergeOrder
from rollouts.distributed.policy_requests import BatchRule
from rollouts.distributed.worker import MakeCollector, MakeEnv
from rollouts.errors import SpecError
from rollouts.machine.torch_threads import check_threads
from rollouts.returns import Gae, Nstep
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


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Resources and place of every worker: nodes in Ray's terms, and CPUs of a node.

    With a `strategy` the workers get a placement group, which reserves the resources of
    `max_workers` at once. Where its node is lost, Ray moves a worker's bundle to another.

    Attributes:
      num_cpus: What Ray reserves for each worker; None for num_threads_per_worker.
      num_gpus: What Ray reserves for each worker; may be a fraction.
      max_workers: Most that `scale_to` can ask for; None for num_workers. A Ray started here, and
        a placement group, have room for so many.
      strategy: "PACK" for few nodes, "SPREAD" for many, or their STRICT_ forms for that and
        nothing else; None leaves it to Ray, without a placement group.
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
    """What happens to workers that raise, die, hang or do not start.

    Attributes:
      max_restarts: A worker is benched, not started again, when it has failed more often than
        this, either in a row without a completed fragment or within restart_window_s.
      restart_window_s: Seconds after which a failure no longer counts.
      start_timeout_s: Seconds a worker may take to start before that is a failure.
      hang_timeout_s: Seconds one fragment may take before its worker is killed as hung; None
        waits for ever.
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
    """How many fragments may be on their way, how old they may be, and in which order they come.

    Attributes:
      max_queued_fragments: Most fragments in flight and queued together, so also the most that one
        `get` can take; None for num_workers * credits_per_worker.
      credits_per_worker: Most calls in flight per worker. With 2 a worker never waits for the
        driver, with 1 it starts each fragment with the newest weights.
      max_policy_lag: Most versions that a delivered fragment's oldest step may be behind the
        newest; None sets no limit. sync_modes but "free_running" set it.
      lag_policy: "drop", "block" or "pass": what happens above max_policy_lag, see `LagRule`;
        None for "drop" if there is a max_policy_lag.
      merge: "arrival", or "ordered": round robin by worker_id, for debugging. Unless a worker
        fails, a `get` times out or a fragment grows stale, the fragments and their weights are
        then the same in every run.
    """

    max_queued_fragments: int | None = None
    credits_per_worker: int = 2
    max_policy_lag: int | None = None
    lag_policy: LagPolicy | None = None
    merge: MergeOrder = "arrival"

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range."""
        if self.max_queued_fragments is not None:
            whole_number("queue.max_queued_fragments", self.max_queued_fragments, 1)
        whole_number("queue.credits_per_worker", self.credits_per_worker, 1)
        if self.max_policy_lag is not None:
            whole_number("queue.max_policy_lag", self.max_policy_lag, 0)
        if self.lag_policy is not None:
            check_one_of("queue.lag_policy", self.lag_policy, get_args(LagPolicy))
        check_one_of("queue.merge", self.merge, get_args(MergeOrder))


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions:
    """How each worker collects: its environments, its collector, what a fragment has.

    Attributes:
      batch_size: See `make_vec`; None for synchronous pools.
      num_torch_threads: Threads of torch in each worker. None for 1 unless the policy's network is
        large, see `rollouts.machine.torch_threads.threads_for`, and at most num_threads_per_worker:
        torch's threads take the cores from those of the pool.
      pack_frame_stacks: Send stacked observations (T, B, S, ...) as single frames and an index;
        `get` forms the same stacks from them, to the bit. None: where the environment has an option
        stack_num above 1, as Atari games have.
      keep_final_obs: See `Collector`; a replay needs it.
      make_env: Makes each worker's environments in place of `make_vec`, from its WorkerConfig, of
        which they take num_envs, env_id_offset and env_seed; must pickle. They autoreset in the
        same step, as `from_env_fns(..., autoreset_mode="same_step")` does. env_id is then a mere
        name. Not with `inference`.
      make_collector: Replaces `build_collector` in the workers; must pickle.
      engine: Who computes the policy, see `Collector`: "auto", "native" or "torch".
      outputs: Names of what `extras` have of each step, see `Collector`; not with `inference`.
      returns: Has fragments come with advantages and targets of the values that their policy had;
        see `Collector`.
      mask_actions: Has policies choose among what info["action_mask"] allows, see `Collector`; not
        with `inference`.
      policies: Of environments with several agents: group -> name of the policy that acts for it.
        A group that is not there has a policy of its own name; groups with one name share it.
      device: "cuda" has each worker step its environments on a GPU, beside the policy, as
        `make_vec` does; fragments are then of tensors. "cpu-emulation" runs the same
        kernels as loops, for tests. None for a pool of C++ threads.
      tensor_transport: Of a `device`: how fragments go to a learner's actor, see
        `RolloutCoordinator.hand_over`. "object_store": through the host's memory; what a worker
        completed outlives it. The others go from worker to learner and are lost with the worker:
        "cuda_ipc" within one GPU, "nixl" between GPUs and machines. "auto" for NIXL where
        device="cuda" and it is installed here, else the object store.
    """

    batch_size: int | None = None
    num_torch_threads: int | None = None
    pack_frame_stacks: bool | None = None
    keep_final_obs: bool = False
    make_env: MakeEnv | None = None
    make_collector: MakeCollector | None = None
    engine: Engine = "auto"
    outputs: Sequence[str] = ()
    returns: Gae | Nstep | None = None
    mask_actions: bool = False
    policies: Mapping[str, str] | None = None
    device: Device | None = None
    tensor_transport: TensorTransport = "auto"

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range or of another kind."""
        check_one_of("collect.engine", self.engine, get_args(Engine))
        check_transport(self.device, self.tensor_transport)
        if not _are_names(self.outputs):
            raise SpecError(
                f"collect.outputs is {self.outputs!r}, expected names such as ('entropy',)"
            )
        if not isinstance(self.returns, Gae | Nstep | None):
            raise SpecError(
                f"collect.returns is {self.returns!r}, expected rollouts.returns.Gae or Nstep"
            )
        if self.batch_size is not None:
            whole_number("collect.batch_size", self.batch_size, 1)
        check_threads("collect.num_torch_threads", self.num_torch_threads)
        if self.pack_frame_stacks is not None:
            flag("collect.pack_frame_stacks", self.pack_frame_stacks)
        flag("collect.keep_final_obs", self.keep_final_obs)
        flag("collect.mask_actions", self.mask_actions)
        if self.policies is not None and not _is_names(self.policies):
            raise SpecError(
                f"collect.policies is {self.policies!r}, expected a dict of group -> policy's name"
            )
        _check_function("collect.make_env", self.make_env)
        _check_function("collect.make_collector", self.make_collector)


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """A policy in an actor of its own, asked by all workers; see `InferenceServer`.

    make_policy is then called there, with a PolicySpec of placement.max_workers workers'
    environments together.

    Attributes:
      rule: When the observations of several workers become a batch.
      num_cpus: What Ray reserves for the actor, and most threads of torch in it: it has 1 unless
        the network is large, see `rollouts.machine.torch_threads.threads_for`.
      num_gpus: What Ray reserves for the actor; may be a fraction.
    """

    rule: BatchRule = BatchRule()
    num_cpus: float = 1.0
    num_gpus: float = 0.0

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range."""
        check_type("inference.rule", self.rule, BatchRule, "BatchRule()")
        check_cpus("inference.num_cpus", self.num_cpus)
        check_gpus("inference.num_gpus", self.num_gpus)


def _is_names(given: object) -> bool:
    return isinstance(given, Mapping) and all(
        isinstance(name, str) for pair in given.items() for name in pair
    )


def _are_names(given: object) -> bool:
    return isinstance(given, Sequence) and all(isinstance(name, str) for name in given)


def _check_function(name: str, function: Callable[..., object] | None) -> None:
    if function is not None and not callable(function):
        raise SpecError(
            f"{name} must be a function that takes a WorkerConfig first, got {function!r}"
        )
