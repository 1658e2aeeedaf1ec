# SPDX-License-Identifier: Apache-2.0
"""One worker: a Collector over one native pool. A plain class, which Ray actors host."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from rollouts.batch import RolloutBatch
from rollouts.collecting.engine import Engine
from rollouts.collecting.frame_stacks import pack
from rollouts.distributed.offers import Loader, WeightOffer
from rollouts.distributed.statistics import go_on_from, take_new
from rollouts.distributed.weight_transport import ONLY, pulls
from rollouts.errors import ProtocolError, SpecError
from rollouts.learner.fragment import Fragment, FragmentInfo
from rollouts.machine.numa import keep_on_node
from rollouts.machine.torch_threads import threads_for
from rollouts.returns import Gae, Nstep

if TYPE_CHECKING:
    import gymnasium

    from rollouts.batch import MultiAgentRollout
    from rollouts.collecting.batched_env import BatchedEnv
    from rollouts.collecting.frame_stacks import Payload
    from rollouts.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Everything that makes one incarnation of one worker."""

    env_id: str
    worker_id: int
    incarnation: int
    num_envs: int
    rollout_length: int
    batch_size: int | None
    num_threads: int
    seed: int
    env_options: Mapping[str, Any]
    # of all workers, see `RolloutCoordinator`
    pin_threads: bool | Sequence[bool | Sequence[int]] | None = None
    numa_nodes: int | None = None  # of each machine; None: wherever the kernel likes
    # None: where the environment has an option stack_num above 1
    pack_frame_stacks: bool | None = False
    keep_final_obs: bool = False  # see `Collector`, as are the next
    mask_actions: bool = False
    make_env: MakeEnv | None = None  # in place of `make_vec`
    num_torch_threads: int | None = None  # None: see `rollouts.machine.torch_threads.threads_for`
    engine: Engine = "auto"  # see `Collector`
    outputs: Sequence[str] = ()  # see `Collector`
    returns: Gae | Nstep | None = None  # see `Collector`
    policies: Mapping[str, str] | None = None  # see `CollectOptions`
    device: str | None = None  # see `CollectOptions`
    travels_on_host: bool = False  # whether a device's rollouts are copied to the host
    travels_as_copy: bool = False  # or on the device

    @property
    def env_id_offset(self) -> int:
        """The global env_id of this worker's first environment."""
        return self.worker_id * self.num_envs

    @property
    def own_pin_threads(self) -> bool | Sequence[int] | None:
        """What this worker's `make_vec` gets as pin_threads; None for its default."""
        if self.pin_threads is None or isinstance(self.pin_threads, bool):
            return self.pin_threads
        return self.pin_threads[self.worker_id % len(self.pin_threads)]

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
        """The seed of native noise, the same for all workers: that differs by env_id alone."""
        return derive_seed(self.seed, self.incarnation)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """What `make_policy` is told of the worker that it makes a policy for.

    Its spaces are those of a single environment, under the names they have in `rollouts.EnvSpec`:
    a function that looks at nothing else makes the learner's policy as well. Of environments with
    several agents they are those of a group, and it is called for each `policy`.
    """

    env_id: str
    single_observation_space: gymnasium.Space[Any]
    single_action_space: gymnasium.Space[Any]
    num_envs: int
    env_id_offset: int
    worker_id: int
    incarnation: int
    seed: int  # for sampling actions; no other worker, incarnation or policy has it
    policy: str | None = None  # of several agents: the name of this one
    group: str | None = None  # the first group that it acts for


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """Where a worker lives, and the names of its policies, see `WeightStore`."""

    pid: int
    host: str
    policies: tuple[str, ...]


class CollectorLike(Protocol):
    """The part of Collector that a worker uses; `env` is closed with the worker.

    `policy` gets the published weights; of several agents it is a dict of policy -> such an object.
    """

    env: Any
    policy: Any

    def collect(self) -> RolloutBatch | MultiAgentRollout: ...


MakePolicy = Callable[[PolicySpec], "Policy"]
MakeEnv = Callable[[WorkerConfig], "BatchedEnv"]
MakeCollector = Callable[[WorkerConfig, MakePolicy], CollectorLike]


class RolloutWorker:
    """Collects fragment after fragment, pulling newer weights between them. Not thread-safe."""

    def __init__(
        self,
        config: WorkerConfig,
        make_policy: MakePolicy,
        *,
        make_collector: MakeCollector | None = None,
        owns_process: bool = False,
    ) -> None:
        """Builds the pool, the policy and the collector.

        Args:
          config: Which worker this is and what its pool looks like.
          make_policy: Makes the policy from a PolicySpec.
          make_collector: Makes the collector; None for `build_collector`.
          owns_process: Whether torch's number of threads may be set for good: to
            config.num_torch_threads or, by `threads_for`, to config.num_threads at most.
        """
        self._config = config
        self._collector = (make_collector or build_collector)(config, make_policy)
        policy = self._collector.policy
        self._policies = policy if isinstance(policy, Mapping) else {ONLY: policy}
        self._loader = Loader(self._policies)
        self._packs = config.pack_frame_stacks
        if self._packs is None:
            is_ours = make_collector is None and config.make_env is None
            self._packs = is_ours and _stacks_frames(config)
        self._version = 0
        self._seq_no = 0
        self._is_broken = False
        if owns_process:
            self._set_torch_threads()

    def describe(self) -> WorkerInfo:
        """Says where this worker lives, and which policies it has."""
        return WorkerInfo(
            pid=os.getpid(), host=socket.gethostname(), policies=tuple(self._policies)
        )

    def collect(self, offer: WeightOffer) -> Fragment:
        """Collects one fragment with the offered weights, or with its own if those are not newer.

        Raises:
          ProtocolError: an earlier fragment failed: its steps are gone, so nothing may follow it.
          Exception: whatever the environment or the policy raised.
        """
        if self._is_broken:
            raise ProtocolError(
                f"worker {self._config.worker_id} failed before, its trajectories are broken: "
                "start a new one"
            )
        # only a fragment that comes through clears the mark
        self._is_broken = True
        if offer.version > self._version:
            go_on_from(self._collector.env, offer.statistics)
            self._loader.load(offer)
            self._version = offer.version
        start_s = time.perf_counter()
        batch = self._collector.collect()
        payload: Payload = batch
        if self._packs and isinstance(batch, RolloutBatch) and isinstance(batch.obs, np.ndarray):
            payload = pack(batch)
        versions = batch.policy_version
        info = FragmentInfo(
            worker_id=self._config.worker_id,
            incarnation=self._config.incarnation,
            seq_no=self._seq_no,
            num_steps=batch.num_steps,
            min_policy_version=int(versions.min()),
            max_policy_version=int(versions.max()),
            collect_s=time.perf_counter() - start_s,
            nbytes=payload.nbytes,
            statistics=take_new(self._collector.env),
            weight_pulls=pulls.take(),
        )
        self._seq_no += 1
        self._is_broken = False
        return Fragment(info, payload)

    def close(self) -> None:
        """Frees the pool's threads and memory. Idempotent."""
        self._collector.env.close()

    def _set_torch_threads(self) -> None:
        # a policy without torch is not made to import it
        torch = sys.modules.get("torch")
        if torch is None:
            return
        config = self._config
        rows = config.batch_size or config.num_envs
        torch.set_num_threads(
            config.num_torch_threads
            or max(threads_for(each, rows, config.num_threads) for each in self._policies.values())
        )


@dataclass(slots=True)
class _Collecting:
    """Environments, the policies that get weights, and a function that collects with them."""

    env: Any
    policy: Any
    collect: Callable[[], RolloutBatch | MultiAgentRollout]


def build_collector(config: WorkerConfig, make_policy: MakePolicy) -> CollectorLike:
    """Makes the usual collector: the worker's environments, its policies, and who collects.

    Raises:
      EngineError: config.device is not here, or no compiler for the emulation.
      SpecError: The policies do not fit the environments, or cannot act on the device.
    """
    env: Any = _build_env(config)
    try:
        policy: Any
        acting: Any
        if hasattr(env, "groups"):
            from rollouts.distributed.agent_policies import make_agent_policies

            policy, acting = make_agent_policies(env, config, make_policy)
        else:
            policy = acting = make_worker_policy(env, config, make_policy)
        return _Collecting(env, policy, _collector(env, acting, config).collect)
    except BaseException:
        env.close()
        raise


def _collector(env: Any, acting: Any, config: WorkerConfig) -> Any:
    """Makes a DeviceFragments on a device, else a Collector."""
    if config.device is not None:
        from rollouts.distributed.device_worker import DeviceFragments

        return DeviceFragments(env, acting, config)
    from rollouts.collecting.collector import Collector

    return Collector(
        env,
        acting,
        config.rollout_length,
        keep_final_obs=config.keep_final_obs,
        num_torch_threads=config.num_torch_threads,
        engine=config.engine,
        outputs=config.outputs,
        returns=config.returns,
        mask_actions=config.mask_actions,
    )


def make_worker_policy(env: Any, config: WorkerConfig, make_policy: MakePolicy) -> Policy:
    """Makes the policy of a worker's environments, with seeds of its own."""
    policy = make_policy(
        PolicySpec(
            env_id=config.env_id,
            single_observation_space=env.single_observation_space,
            single_action_space=env.single_action_space,
            num_envs=config.num_envs,
            env_id_offset=config.env_id_offset,
            worker_id=config.worker_id,
            incarnation=config.incarnation,
            seed=config.policy_seed,
        )
    )
    # a policy that everybody makes with the same seed would sample the same noise everywhere
    reseed = getattr(policy, "seed", None)
    if callable(reseed):
        reseed(config.policy_seed)
    share_noise(policy, config.noise_seed)
    return policy


def share_noise(policy: Any, seed: int) -> None:
    """Has native code draw a torch policy's actions from `seed`, whatever its own `act` draws from.

    Native noise is a function of the environment, too, so that environments draw the same ones in
    whichever worker they are.
    """
    if hasattr(policy, "noise_seed"):
        policy.noise_seed = seed


def _build_env(config: WorkerConfig) -> BatchedEnv:
    """Makes a pool, on a device or not, or what the user wants in its place."""
    if config.make_env is None:
        import rollouts

        options = dict(config.env_options)
        if config.device is not None:
            options["device"] = config.device
        else:
            options |= {"batch_size": config.batch_size, "num_threads": config.num_threads}
            if config.own_pin_threads is not None:
                options["pin_threads"] = config.own_pin_threads
        pool: Any = rollouts.make_vec(
            config.env_id,
            config.num_envs,
            seed=config.env_seed,
            autoreset_mode="same_step",
            env_id_offset=config.env_id_offset,
            **options,
        )
        return cast("BatchedEnv", pool)
    env = config.make_env(config)
    expected = (config.num_envs, config.env_id_offset)
    if (env.num_envs, env.env_id_offset) != expected:
        given = (env.num_envs, env.env_id_offset)
        env.close()
        raise SpecError(
            f"make_env made an environment with (num_envs, env_id_offset) {given}, expected "
            f"{expected} as its WorkerConfig says"
        )
    return env


def build_worker(recipe: bytes, config: bytes) -> RolloutWorker:
    """Makes a worker from pickled arguments of RolloutWorker: a dict of keywords, a WorkerConfig.

    They come pickled because they may need the sys.path that the host sets up first.
    """
    settings: WorkerConfig = pickle.loads(config)
    # before anything starts threads or writes to memory
    if settings.numa_nodes is not None:
        keep_on_node(settings.worker_id % settings.numa_nodes, settings.numa_nodes)
    return RolloutWorker(settings, **pickle.loads(recipe))


def _stacks_frames(config: WorkerConfig) -> bool:
    import rollouts

    options = rollouts.env_spec(config.env_id, **config.env_options).options
    stack_num = options.get("stack_num", 1)
    return isinstance(stack_num, int) and stack_num > 1


def derive_seed(*parts: int) -> int:
    """Mixes the parts into 63 bits: equal parts give equal seeds, others practically never do."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
