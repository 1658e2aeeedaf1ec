# SPDX-License-Identifier: Apache-2.0
"""WorkerConfig: everything that makes a worker; CollectOptions and PolicySpec, parts of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np

from rollouts.checks import flag, whole_number
from rollouts.collecting.asked import CollectorOptions
from rollouts.errors import SpecError
from rollouts.features import asked_of
from rollouts.run_log.record_options import RunLog
from rollouts.support.keywords import explains_fields
from rollouts.workers.tensor_transport import (
    Device,
    TensorTransport,
    check_transport,
    chosen,
)

if TYPE_CHECKING:
    import gymnasium

    from rollouts.batch import MultiAgentRollout, RolloutBatch
    from rollouts.collecting.batched_env import BatchedEnv
    from rollouts.policies.protocol import Policy


@explains_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions(CollectorOptions):
    """Options of collecting in a worker: its environments, its collector, and its fragments.

    It has the keywords of a `Collector`, with the same meaning, except prefetch and record. Workers
    with `inference` have neither outputs nor mask_actions. Where num_torch_threads is None, torch
    has 1 thread in each worker, or more if the policy's network is large, up to
    num_threads_per_worker: its threads share the cores with those of the pool.

    Attributes:
      batch_size: See `make_vec`; None for synchronous pools.
      pack_frame_stacks: Send stacked observations (T, B, S, ...) as single frames and an index;
        `get` forms the same stacks from them, to the bit. None: where the environment has an option
        stack_num above 1, as Atari games have.
      make_env: Makes each worker's environments in place of `make_vec`, from its WorkerConfig, with
        its num_envs, env_id_offset and env_seed; must pickle. They autoreset in the same step, as
        `from_env_fns(..., autoreset_mode="same_step")` does. The coordinator's id is then a mere
        name. Not with `inference`.
      make_collector: Replaces `build_collector` in the workers; must pickle.
      policies: Group -> name of the policy that acts for it, with several agents.
        A group that is left out has a policy of its own name; groups with one name share a policy.
      device: "cuda" makes each worker step its environments on a GPU, beside the policy, as
        `make_vec` does; fragments are then of tensors. "cpu-emulation" runs the same
        kernels as loops, for tests. None for a pool of C++ threads.
      tensor_transport: The way of fragments to a learner's actor, with a `device`; see
        `RolloutCoordinator.hand_over`. "object_store": through the host's memory; completed
        fragments outlive their worker. With the others they go straight from worker to learner, and
        are lost with the worker: "cuda_ipc" within one GPU, "nixl" between GPUs and machines.
        "auto" is NIXL where device="cuda" and it is installed here, else the object store.
    """

    _prefix: ClassVar[str] = "collect."

    batch_size: int | None = None
    pack_frame_stacks: bool | None = None
    make_env: MakeEnv | None = None
    make_collector: MakeCollector | None = None
    policies: Mapping[str, str] | None = None
    device: Device | None = None
    tensor_transport: TensorTransport = "auto"

    @property
    def asked(self) -> list[str]:
        """Keys of `rollouts.features` for the values that are not the defaults."""
        asked = asked_of(self, self._prefix)
        # pack_frame_stacks=False is possible everywhere
        return [
            one for one in asked if self.pack_frame_stacks or one != "collect.pack_frame_stacks"
        ]

    @property
    def of_collector(self) -> dict[str, Any]:
        """Keyword arguments for the worker's `Collector`, which has options of the same names."""
        return {one.name: getattr(self, one.name) for one in fields(CollectorOptions)}

    def __post_init__(self) -> None:
        """Raises SpecError where a value is out of range or of another kind."""
        CollectorOptions.__post_init__(self)
        check_transport(self.device, self.tensor_transport)
        if self.batch_size is not None:
            whole_number("collect.batch_size", self.batch_size, 1)
        if self.pack_frame_stacks is not None:
            flag("collect.pack_frame_stacks", self.pack_frame_stacks)
        if self.policies is not None and not _is_names(self.policies):
            raise SpecError(
                f"collect.policies is {self.policies!r}, expected a dict of group -> policy's name"
            )
        _check_function("collect.make_env", self.make_env)
        _check_function("collect.make_collector", self.make_collector)

    def decided(self, num_workers: int) -> Self:
        """Returns these options with a value for each that was left open."""
        # without workers nothing is sent, and rollouts on a device are sent unpacked
        packs = self.pack_frame_stacks if num_workers and self.device is None else False
        transport = chosen(self.tensor_transport, self.device)
        return replace(self, pack_frame_stacks=packs, tensor_transport=transport)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Everything that makes one incarnation of one worker."""

    id: str
    num_envs: int
    rollout_length: int
    num_threads: int
    seed: int
    env_options: Mapping[str, Any]
    worker_id: int = 0
    incarnation: int = 0
    # the next two hold for all workers, see `Placement`
    pin_threads: bool | Sequence[bool | Sequence[int]] | None = None
    numa_nodes: int | None = None
    collect: CollectOptions = field(default_factory=CollectOptions)
    record: RunLog | None = None  # where all workers record; see `own_log`

    @property
    def env_id_offset(self) -> int:
        """The global env_id of this worker's first environment."""
        return self.worker_id * self.num_envs

    @property
    def own_pin_threads(self) -> bool | Sequence[int] | None:
        """The pin_threads of this worker's `make_vec`; None for its default."""
        if self.pin_threads is None or isinstance(self.pin_threads, bool):
            return self.pin_threads
        return self.pin_threads[self.worker_id % len(self.pin_threads)]

    @property
    def own_log(self) -> RunLog | None:
        """The log of this incarnation of this worker; None: nothing is recorded."""
        return self.record and self.record.of_worker(self.worker_id, self.incarnation)

    @property
    def env_seed(self) -> int:
        """The pool's seed: the run's own for incarnation 0, a fresh one for every later one.

        So unbroken workers together produce the data of one pool of all their environments, and a
        worker that was started again never repeats an episode.
        """
        return self.seed if self.incarnation == 0 else derive_seed(self.seed, self.incarnation)

    @property
    def policy_seed(self) -> int:
        """A seed of this incarnation's own, so that no two workers sample the same action noise."""
        return derive_seed(self.seed, self.incarnation, self.worker_id)

    @property
    def noise_seed(self) -> int:
        """The seed of native noise, the same for all workers: the noise differs by env_id."""
        return derive_seed(self.seed, self.incarnation)


class HasSpaces(Protocol):
    """Spaces of one environment, or of one agent."""

    @property
    def single_observation_space(self) -> gymnasium.Space[Any]: ...

    @property
    def single_action_space(self) -> gymnasium.Space[Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """Facts about the worker that `make_policy` makes a policy for.

    Its spaces are those of a single environment, under the names they have in `rollouts.EnvSpec`:
    a make_policy that reads nothing else can also make the learner's policy from an EnvSpec. With
    several agents they are the spaces of a group, and make_policy is called for each `policy`.
    """

    id: str
    single_observation_space: gymnasium.Space[Any]
    single_action_space: gymnasium.Space[Any]
    num_envs: int
    env_id_offset: int
    worker_id: int
    incarnation: int
    seed: int  # for sampling actions; no other worker, incarnation or policy has it
    policy: str | None = None  # its name, where there are several agents
    group: str | None = None  # the first group that it acts for

    @classmethod
    def here(cls, id: str, spaces: HasSpaces, *, num_envs: int, seed: int) -> Self:
        """Facts for a policy that acts in this process, without workers.

        Args:
          spaces: An `EnvSpec`, an `AgentGroup` or a pool, which has the policy's two spaces.
        """
        return cls(
            id=id,
            single_observation_space=spaces.single_observation_space,
            single_action_space=spaces.single_action_space,
            num_envs=num_envs,
            env_id_offset=0,
            worker_id=0,
            incarnation=0,
            seed=seed,
        )


class CollectorLike(Protocol):
    """The part of Collector that a worker uses; `env` is closed with the worker.

    `policy` gets the published weights; with several agents it is a dict of name -> policy.
    """

    env: Any
    policy: Any

    def collect(self) -> RolloutBatch | MultiAgentRollout: ...


MakePolicy = Callable[[PolicySpec], "Policy"]
MakeEnv = Callable[[WorkerConfig], "BatchedEnv"]
MakeCollector = Callable[[WorkerConfig, MakePolicy], CollectorLike]


def derive_seed(*parts: int) -> int:
    """Mixes the parts into 63 bits: equal parts give equal seeds, others practically never."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _is_names(given: object) -> bool:
    return isinstance(given, Mapping) and all(
        isinstance(name, str) for pair in given.items() for name in pair
    )


def _check_function(name: str, function: Callable[..., object] | None) -> None:
    if function is not None and not callable(function):
        raise SpecError(
            f"{name} must be a function that takes a WorkerConfig first, got {function!r}"
        )
