# SPDX-License-Identifier: Apache-2.0
"""One worker: a Collector over one native pool. A plain class, which Ray actors host."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rollouts.batch import RolloutBatch
from rollouts.collecting.batched_env import cell_of, device_pool
from rollouts.collecting.frame_stacks import pack
from rollouts.errors import ProtocolError, SpecError
from rollouts.features import check
from rollouts.learner.fragment import Fragment, FragmentInfo
from rollouts.machine.numa import keep_on_node
from rollouts.machine.torch_threads import threads_for
from rollouts.workers.agent_policies import make_policies
from rollouts.workers.call_size import WORTH_S
from rollouts.workers.offers import Loader, WeightOffer
from rollouts.workers.shared_statistics import go_on_from, take_new
from rollouts.workers.tensor_transport import TensorTransport, lends_memory
from rollouts.workers.weight_transport import ONLY, pulls
from rollouts.workers.worker_config import CollectorLike, MakePolicy, WorkerConfig
from rollouts.workers.worker_failure import WorkerFailure, guarded

if TYPE_CHECKING:
    from rollouts.batch import MultiAgentRollout
    from rollouts.collecting.batched_env import BatchedEnv
    from rollouts.collecting.frame_stacks import Payload

Collect = Callable[[], "RolloutBatch | MultiAgentRollout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """The node and process of a worker, and the names of its policies, see `WeightStore`.

    A coordinator with a share of the workers names no policies: its reports do.
    """

    pid: int
    host: str
    policies: tuple[str, ...]
    node_id: str | None = None  # Ray's


class RolloutWorker:
    """Collects fragment after fragment, pulling newer weights between them. Not thread-safe."""

    def __init__(
        self,
        config: WorkerConfig,
        make_policy: MakePolicy,
        *,
        owns_process: bool = False,
    ) -> None:
        """Builds the pool, the policy and the collector.

        Args:
          config: The worker's number, its environments, and how it collects.
          make_policy: Makes the policy from a PolicySpec.
          owns_process: Whether torch's number of threads may be set for good: to
            collect.num_torch_threads or, by `threads_for`, to config.num_threads at most.
        """
        self._config = config
        collect = config.collect
        self._collector = (collect.make_collector or build_collector)(config, make_policy)
        if collect.make_collector is not None and device_pool(self._collector.env) is not None:
            self._collector.env.close()
            raise SpecError(
                "collect.make_collector made environments on a device: give collect.device and "
                "leave it out, so that fragments are known to be tensors"
            )
        policy = self._collector.policy
        self._policies = policy if isinstance(policy, Mapping) else {ONLY: policy}
        self._loader = Loader(self._policies)
        self._packs = collect.pack_frame_stacks
        if self._packs is None:
            is_ours = collect.make_collector is None and collect.make_env is None
            self._packs = is_ours and _stacks_frames(config)
        self._version = 0
        self._seq_no = 0
        self._is_broken = False
        if owns_process:
            self._set_torch_threads()

    def describe(self) -> WorkerInfo:
        """Returns this worker's process and host, and the names of its policies."""
        return WorkerInfo(
            pid=os.getpid(), host=socket.gethostname(), policies=tuple(self._policies)
        )

    def collect(self, offer: WeightOffer | None) -> Fragment:
        """Collects one fragment with the offered weights, or with its own if those are not newer.

        None stands for the offer of an earlier call.

        Raises:
          ProtocolError: an earlier fragment failed: its steps are gone, so nothing may follow it.
          Exception: whatever the environment or the policy raised.
        """
        if self._is_broken:
            raise ProtocolError(
                f"worker {self._config.worker_id} failed before, its trajectories are broken: "
                "start a new one"
            )
        # only a completed fragment clears the flag
        self._is_broken = True
        if offer is not None and offer.version > self._version:
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

    def collect_several(
        self, offer: WeightOffer | None, num_fragments: int
    ) -> tuple[tuple[FragmentInfo | WorkerFailure, ...], list[Payload]]:
        """Collects fragments with the same weights, see `collect`, for `WORTH_S`.

        Args:
          offer: See `collect`.
          num_fragments: The most; none begins once `WORTH_S` have passed.
        Returns:
          answers   one for each fragment that was begun; only the last may be a failure
          payloads  one for each fragment that was completed
        """
        answers: list[FragmentInfo | WorkerFailure] = []
        payloads: list[Payload] = []
        end_s = time.perf_counter() + WORTH_S
        while not answers or (len(answers) < num_fragments and time.perf_counter() < end_s):
            fragment = guarded(lambda: self.collect(offer))
            if isinstance(fragment, WorkerFailure):
                answers.append(fragment)
                break
            answers.append(fragment.info)
            payloads.append(fragment.payload)
        return tuple(answers), payloads

    def close(self) -> None:
        """Frees the pool's threads and memory, and completes what is recorded. Idempotent."""
        close = getattr(self._collector, "close", self._collector.env.close)
        close()

    def _set_torch_threads(self) -> None:
        # torch is not imported for a policy without it
        torch = sys.modules.get("torch")
        if torch is None:
            return
        config, collect = self._config, self._config.collect
        rows = collect.batch_size or config.num_envs
        torch.set_num_threads(
            collect.num_torch_threads
            or max(threads_for(each, rows, config.num_threads) for each in self._policies.values())
        )


@dataclass(slots=True)
class _Collecting:
    """Environments, the policies that get weights, and functions that collect and close."""

    env: Any
    policy: Any
    collect: Collect
    close: Callable[[], None]


def build_collector(config: WorkerConfig, make_policy: MakePolicy) -> CollectorLike:
    """Makes the usual collector: the worker's environments, its policies and a Collector.

    Raises:
      EngineError: The device is not here, or there is no compiler for its emulation.
      SpecError: The policies do not fit the environments, or cannot act on the device.
    """
    env: Any = _build_env(config)
    try:
        if config.collect.make_env is not None:
            # the coordinator has checked environments that it makes from an id
            check("RolloutCoordinator", config.collect.asked, cell_of(env))
        policies, acting = make_policies(env, config, make_policy)
        collector = _collector_of(env, acting.get(ONLY, acting), config)
        collect, options = collector.collect, config.collect
        if options.device is not None:
            collect = partial(collect_on_device, collector, options.tensor_transport)
        elif config.record is not None:
            collect = partial(collect_logged, collector)
        return _Collecting(env, policies.get(ONLY, policies), collect, collector.close)
    except BaseException:
        env.close()
        raise


def _collector_of(env: Any, acting: Any, config: WorkerConfig) -> Any:
    """Returns the Collector whose policies act in the environments."""
    from rollouts.collecting.collector import Collector

    options, log = config.collect.of_collector, config.own_log
    return Collector(env, acting, config.rollout_length, **options, record=log)


def collect_logged(collector: Any) -> RolloutBatch | MultiAgentRollout:
    """Collects and waits for the log, so that it has each delivered fragment even if the worker
    dies.

    Raises:
      FileError: The log cannot be written, and its on_error is "stop". As `Collector.collect`.
    """
    rollout: RolloutBatch | MultiAgentRollout = collector.collect()
    collector.synchronize()
    return rollout


def collect_on_device(
    collector: Any, tensor_transport: TensorTransport
) -> RolloutBatch | MultiAgentRollout:
    """Collects and waits for the device, so that an error is raised for this rollout; returns it in
    a form that can be sent.

    Raises:
      EnvError: Something went wrong on the device; it names the env_id.
    """
    rollout: RolloutBatch | MultiAgentRollout = collector.collect()
    collector.synchronize()
    if tensor_transport == "object_store":
        return rollout.on_host()
    rollout = rollout.contiguous()
    # copied: torch keeps a counter for each time that memory is shared, until the memory is freed
    return rollout.copied() if lends_memory(tensor_transport) else rollout


def _build_env(config: WorkerConfig) -> BatchedEnv:
    """Makes a pool, on a device or not, or the environments of the user's `make_env`."""
    collect = config.collect
    if collect.make_env is None:
        import rollouts

        options = dict(config.env_options)
        if collect.device is not None:
            options["device"] = collect.device
        else:
            options |= {"batch_size": collect.batch_size, "num_threads": config.num_threads}
            if config.own_pin_threads is not None:
                options["pin_threads"] = config.own_pin_threads
        pool: Any = rollouts.make_vec(
            config.id,
            config.num_envs,
            seed=config.env_seed,
            autoreset_mode="same_step",
            env_id_offset=config.env_id_offset,
            **options,
        )
        return cast("BatchedEnv", pool)
    env = collect.make_env(config)
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
    # this comes first, before anything starts threads or writes to memory
    if settings.numa_nodes is not None:
        keep_on_node(settings.worker_id % settings.numa_nodes, settings.numa_nodes)
    return RolloutWorker(settings, **pickle.loads(recipe))


def _stacks_frames(config: WorkerConfig) -> bool:
    import rollouts

    options = rollouts.env_spec(config.id, **config.env_options).options
    stack_num = options.get("stack_num", 1)
    return isinstance(stack_num, int) and stack_num > 1
