# SPDX-License-Identifier: Apache-2.0
"""RolloutCoordinator: many workers' rollouts as one stream of batches for a learner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rollouts.batch import RolloutBatch
from rollouts.cluster.placement import Placement, Strategy
from rollouts.collecting.frame_stacks import join
from rollouts.distributed import checks
from rollouts.distributed.fleet import FleetRules
from rollouts.distributed.fragment import Fragment, PendingFragment
from rollouts.distributed.lag import LagPolicy, LagRule, SyncMode
from rollouts.distributed.local import LocalRunner
from rollouts.distributed.merge import MergeOrder
from rollouts.distributed.policy_requests import BatchRule
from rollouts.distributed.runner import Runner
from rollouts.distributed.taking import Taken, Taking
from rollouts.distributed.trial import try_policy
from rollouts.distributed.weight_transport import Array
from rollouts.distributed.weights import WeightOffer, Weights, WeightStore, local_offer
from rollouts.distributed.worker import MakeCollector, MakeEnv, MakePolicy, WorkerConfig
from rollouts.errors import ClosedError, ProtocolError, SpecError
from rollouts.machine.torch_threads import check_threads
from rollouts.support import at_exit
from rollouts.support.extras import needs

if TYPE_CHECKING:
    from torch import Tensor


class RolloutCoordinator:
    """Starts workers, keeps them busy, and merges their fragments into one stream.

    Each worker hosts one native pool and one policy. Fragments stay where they were made until the
    learner takes them; a slow learner makes the workers wait. A completed fragment is delivered
    exactly once. A worker that dies is started again with new episodes and fresh seeds, and what it
    had not completed is dropped whole and counted.

    All methods may be called from different threads; with `num_workers=0` only `close` and `stats`
    may run beside a `get`.

    A worker that raises, dies, hangs or does not start is killed and started again as its next
    incarnation. An EnvError is no exception: its pool may be damaged, so it is not used again.

    Args:
      env_id: Any of `rollouts.env_ids()`.
      make_policy: Called with a `PolicySpec` in each worker; must pickle. If the policy has a
        method `seed`, it is then called with PolicySpec.seed. Where workers use `make_vec` and no
        GPU, it is first called once in this process, and the policy tried on empty observations;
        not if there is a GPU here that this process has not used yet.
      num_workers: Ray actors; 0 collects in this process, on demand, without Ray.
      num_envs_per_worker: Environment i of worker w has the env_id
        w * num_envs_per_worker + i, and produces the same data as in one pool of them all.
      rollout_length: Steps T per fragment.
      num_threads_per_worker: Threads of each pool.
      num_torch_threads_per_worker: Threads of torch in each worker. None for 1 unless the policy's
        network is large, see `rollouts.machine.torch_threads.threads_for`, and at most
        num_threads_per_worker: torch's threads take the cores from those of the pool.
      batch_size_per_worker: See `make_vec`; None for synchronous pools.
      seed: Of the environments and, mixed with the worker's number, of the policies.
      env_options: Further keyword arguments of `make_vec`, an environment's options among them.
      max_queued_fragments: Most fragments in flight and queued together, so also the most that
        one `get` can take; None for num_workers * credits_per_worker.
      credits_per_worker: Most calls in flight per worker. With 2 a worker never waits for the
        driver, with 1 it starts each fragment with the newest weights.
      sync_mode: "synchronous": workers collect only while a `get` waits, with the newest weights;
        every step has lag 0. "one_step_lag": they collect the next batch while the learner learns
        from the last one, with the weights it began with; lag 1 at most. "free_running": they
        never wait for the learner but for room.
      max_policy_lag: Most versions that a delivered fragment's oldest step may be behind the
        newest; None sets no limit. The two other modes set it.
      lag_policy: "drop", "block" or "pass": what happens above max_policy_lag, see `LagRule`;
        None for "drop" if there is a max_policy_lag.
      merge: "arrival", or "ordered": round robin by worker_id, for debugging. Unless a worker
        fails, a `get` times out or a fragment grows stale, the fragments and their weights are
        then the same in every run.
      ray_address: Cluster to join. None uses the Ray this process is connected to, or
        RAY_ADDRESS, or starts one on this machine with just the CPUs the workers need.
      pack_frame_stacks: Send stacked observations (T, B, S, ...) as single frames and an index;
        `get` forms the same stacks from them, to the bit. None: where the environment has an option
        stack_num above 1, as Atari games have.
      keep_final_obs: See `Collector`; a replay needs it.
      num_cpus_per_worker: What Ray reserves; None for num_threads_per_worker.
      num_gpus_per_worker: What Ray reserves; may be a fraction.
      max_workers: Most that `scale_to` can ask for; None for num_workers. A Ray started here, and
        a placement group, have room for so many.
      placement: "PACK", "SPREAD" or their STRICT_ forms, see `Placement`; None leaves it to Ray.
      node_labels: Labels that a worker's node must have.
      pin_threads: Passed on to `make_vec`; a sequence has one entry per worker, used again from
        the start by further workers. True is for one worker per machine or NUMA node, as each
        takes the first CPUs that it may use. None leaves it to make_vec.
      numa_nodes: NUMA nodes of each machine, to have one worker on each: all threads of worker w
        stay on the CPUs of node w % numa_nodes of its machine, those of torch too. A worker on a
        machine with fewer nodes fails. None leaves the threads where the kernel puts them. On
        several machines use placement="PACK", so that workers of one machine follow each other.
      max_restarts_per_worker: A worker is benched, not started again, when it has failed more
        often than this, either in a row without a completed fragment or within restart_window_s.
      restart_window_s: Seconds after which a failure no longer counts.
      worker_start_timeout_s: Seconds a worker may take to start before that is a failure.
      worker_hang_timeout_s: Seconds one fragment may take before its worker is killed as hung;
        None waits for ever.
      make_env: Makes each worker's environments in place of `make_vec`, from its WorkerConfig, of
        which they take num_envs, env_id_offset and env_seed; must pickle. They autoreset in the
        same step, as `from_env_fns(..., autoreset_mode="same_step")` does. env_id is then a mere
        name. Not with `inference`.
      make_collector: Replaces `build_collector` in the workers; must pickle.
      first_policy_version: Number of the first published weights; a resumed run goes on counting.
      weights_dtype: "float16" or "bfloat16" sends weights in 16 bits, see `WeightStore`.
      weights_delta: Send only the arrays that changed, see `WeightStore`.
      inference: When the observations of several workers become a batch of one policy in an actor
        of its own, see `InferenceServer`; make_policy is then called there, with a PolicySpec of
        max_workers workers' environments together. None for a policy in each worker.
      inference_num_cpus: What Ray reserves for that actor, and most threads of torch in it: it has
        1 unless the network is large, see `rollouts.machine.torch_threads.threads_for`.
      inference_num_gpus: What Ray reserves for that actor; may be a fraction.
    Raises:
      SpecError: an argument is out of range, env_id or an option unknown, the policy's network
        does not fit or it returns a wrong shape, ray_address is not that of a Ray, or has fewer
        GPUs than the inference server and one worker need.
    Example:
      with RolloutCoordinator("CartPole-v1", make_policy, num_workers=2, num_envs_per_worker=64,
                              rollout_length=128) as coordinator:
          coordinator.publish_weights(policy.weights())
          batch = coordinator.get(num_fragments=2)
    """

    def __init__(
        self,
        env_id: str,
        make_policy: MakePolicy,
        *,
        num_workers: int,
        num_envs_per_worker: int,
        rollout_length: int,
        num_threads_per_worker: int = 1,
        num_torch_threads_per_worker: int | None = None,
        batch_size_per_worker: int | None = None,
        seed: int = 0,
        env_options: Mapping[str, Any] | None = None,
        max_queued_fragments: int | None = None,
        credits_per_worker: int = 2,
        sync_mode: SyncMode = "free_running",
        max_policy_lag: int | None = None,
        lag_policy: LagPolicy | None = None,
        merge: MergeOrder = "arrival",
        pack_frame_stacks: bool | None = None,
        keep_final_obs: bool = False,
        ray_address: str | None = None,
        num_cpus_per_worker: float | None = None,
        num_gpus_per_worker: float = 0.0,
        max_workers: int | None = None,
        placement: Strategy | None = None,
        node_labels: Mapping[str, str] | None = None,
        pin_threads: bool | Sequence[bool | Sequence[int]] | None = None,
        numa_nodes: int | None = None,
        max_restarts_per_worker: int = 3,
        restart_window_s: float = 600.0,
        worker_start_timeout_s: float = 300.0,
        worker_hang_timeout_s: float | None = 300.0,
        make_env: MakeEnv | None = None,
        make_collector: MakeCollector | None = None,
        first_policy_version: int = 1,
        weights_dtype: str | None = None,
        weights_delta: bool = False,
        inference: BatchRule | None = None,
        inference_num_cpus: float = 1.0,
        inference_num_gpus: float = 0.0,
    ) -> None:
        """Starts the workers; does not wait for them. Arguments: see the class."""
        checks.check_counts(
            num_workers=(num_workers, 0),
            num_envs_per_worker=(num_envs_per_worker, 1),
            rollout_length=(rollout_length, 1),
            num_threads_per_worker=(num_threads_per_worker, 1),
            credits_per_worker=(credits_per_worker, 1),
            max_restarts_per_worker=(max_restarts_per_worker, 0),
            max_workers=(num_workers if max_workers is None else max_workers, num_workers),
            seed=(seed, 0),
            first_policy_version=(first_policy_version, 1),
            inference_num_cpus=(inference_num_cpus, 0),
            inference_num_gpus=(inference_num_gpus, 0),
        )
        checks.check_inference(inference, num_workers)
        checks.check_policy(make_policy)
        if make_env is not None:
            checks.check_make_env(make_env, has_inference=inference is not None)
        elif make_collector is None:
            checks.check_env(
                env_id, env_options or {}, packs=bool(pack_frame_stacks and num_workers)
            )
        checks.check_pinning(pin_threads, numa_nodes, placement, max_workers or num_workers)
        lag = LagRule.of(sync_mode, max_policy_lag, lag_policy)
        rules = FleetRules(
            max_queued=max_queued_fragments,
            credits_per_worker=credits_per_worker,
            max_restarts=max_restarts_per_worker,
            restart_window_s=restart_window_s,
            start_timeout_s=worker_start_timeout_s,
            hang_timeout_s=worker_hang_timeout_s,
            merge=merge,
            lag=lag,
        )
        self._taking = Taking(lag)
        self._close_lock = threading.Lock()
        self._weights = WeightStore(
            _ray_offer if num_workers else local_offer,
            dtype=weights_dtype,
            delta=weights_delta,
            first_version=first_policy_version,
        )
        config = WorkerConfig(
            env_id=env_id,
            worker_id=0,
            incarnation=0,
            num_envs=num_envs_per_worker,
            rollout_length=rollout_length,
            batch_size=batch_size_per_worker,
            num_threads=num_threads_per_worker,
            seed=seed,
            env_options=dict(env_options or {}),
            pin_threads=pin_threads,
            numa_nodes=checks.check_numa(numa_nodes, num_workers, placement),
            # in this process nothing travels
            pack_frame_stacks=pack_frame_stacks if num_workers else False,
            keep_final_obs=keep_final_obs,
            make_env=make_env,
            num_torch_threads=check_threads(
                "num_torch_threads_per_worker", num_torch_threads_per_worker
            ),
        )
        self.num_workers = num_workers
        self.num_envs_per_worker = num_envs_per_worker
        self._max_workers = max_workers or num_workers
        if num_workers == 0:
            self._runner: Runner = LocalRunner(
                config,
                make_policy,
                make_collector=make_collector,
                weights=self._weights,
                capacity=max_queued_fragments,
                lag=lag,
            )
            return
        # only here is Ray needed
        with needs("ray", "a RolloutCoordinator with num_workers above 0"):
            from rollouts.cluster.ray_runner import InferenceOptions, RayRunner
        # elsewhere it may need a GPU that this process has not, or spaces that are not known here
        if (
            make_collector is None
            and make_env is None
            and not (num_gpus_per_worker or inference_num_gpus)
        ):
            try_policy(make_policy, config)
        self._runner = RayRunner(
            config,
            num_workers,
            make_policy,
            make_collector,
            ray_address=ray_address,
            placement=Placement(
                num_cpus=(
                    num_threads_per_worker if num_cpus_per_worker is None else num_cpus_per_worker
                ),
                num_gpus=num_gpus_per_worker,
                max_workers=self._max_workers,
                strategy=placement,
                node_labels=dict(node_labels or {}),
            ),
            inference=InferenceOptions(
                rule=inference, num_cpus=inference_num_cpus, num_gpus=inference_num_gpus
            ),
            weights=self._weights,
            rules=rules,
        )

    def publish_weights(self, weights: Mapping[str, Array | Tensor]) -> int:
        """Offers new weights, which workers take over before their next fragment.

        Args:
          weights: name -> numpy array or torch tensor, as from `Policy.weights`; copied.
        Returns:
          The version, counted from first_policy_version: `policy_version` in the batches.
        """
        version = self._weights.publish(weights)
        self._runner.published()
        return version

    def get(self, num_fragments: int = 1, timeout_s: float | None = None) -> RolloutBatch:
        """Waits for fragments and joins them along B, in the order of `merge`.

        Args:
          num_fragments: How many; at most max_queued_fragments.
          timeout_s: Seconds to wait; None waits for ever.
        Returns:
          A RolloutBatch (T, B, ...). From a single worker's fragment its arrays are read-only,
          but for stacks of frames, which are formed here.
        Raises:
          TimeoutError: too few arrived in time; they stay for the next call.
          WorkerError: no worker is left; the message has their last errors.
          ProtocolError: no weights were published yet, so nothing would ever arrive.
          ClosedError: the coordinator was closed, or drained and has fewer left.
        """
        fragments = self.get_fragments(num_fragments, timeout_s)
        return join([fragment.payload for fragment in fragments])

    def get_fragments(
        self, num_fragments: int = 1, timeout_s: float | None = None
    ) -> list[Fragment]:
        """Does what `get` does, but returns the fragments as they came."""
        return self._take(self._runner.get, num_fragments, timeout_s)

    def get_pending(
        self, num_fragments: int = 1, timeout_s: float | None = None
    ) -> list[PendingFragment]:
        """Does what `get_fragments` does, but leaves the arrays where they are; see `fetch`."""
        return self._take(self._runner.get_pending, num_fragments, timeout_s)

    def _take(
        self,
        get: Callable[[int, float | None], list[Taken]],
        num_fragments: int,
        timeout_s: float | None,
    ) -> list[Taken]:
        with at_exit.silent_at_exit():
            if self._runner.queue.closed:
                raise ClosedError("the coordinator is closed")
            if self._weights.latest is None:
                raise ProtocolError("no weights yet: call publish_weights() before get()")
            return self._taking.take(get, num_fragments, timeout_s, lambda: self._weights.version)

    def scale_to(self, num_workers: int) -> None:
        """Makes workers 0 to num_workers - 1 those that collect; returns at once.

        Further workers complete and deliver what they were asked for and then stop. A worker that
        was stopped or benched before comes back as its next incarnation, with its own env_ids and
        new episodes. Unless max_queued_fragments was given, that bound follows.

        Args:
          num_workers: 1 to max_workers.
        Raises:
          SpecError: num_workers is out of range.
          ProtocolError: after `drain`, or there were no workers to begin with.
          ClosedError: the coordinator was closed.
        """
        if not 1 <= num_workers <= max(1, self._max_workers):
            raise SpecError(
                f"num_workers is {num_workers}, expected 1 to {self._max_workers}: give "
                "RolloutCoordinator as many max_workers as it may have some day"
            )
        self._runner.scale_to(num_workers)

    def drain(self, timeout_s: float | None = None) -> None:
        """Asks for nothing more and waits until what was asked for is complete.

        `get` then delivers what is left, and raises ClosedError when that is too little. A failing
        worker is not started again, and a hanging one is given up after worker_hang_timeout_s, so
        this ends.

        Args:
          timeout_s: Seconds to wait; None waits as long as it takes.
        Raises:
          TimeoutError: fragments were still in flight; they arrive later.
        """
        self._runner.drain(timeout_s)

    def stats(self) -> dict[str, Any]:
        """Says what has happened so far; all numbers but the lag's are from one moment.

        Returns:
          env_steps, fragments  {"produced", "delivered", "queued", "discarded": {reason: n}}, where
                          produced = delivered + queued + sum(discarded.values())
          fragments       also has "requested", "in_flight" and "interrupted": {reason: n}, calls
                          that never became a fragment, where
                          requested = produced + in_flight + sum(interrupted.values())
          queue_depth     fragments waiting for the learner: those "queued", of which a `get` may be
                          fetching some
          queued_bytes    of their arrays as they are in the object store
          outstanding_limit  fragments that may be in flight and queued together at present, with
                          those that a `get` is fetching on top. It falls when a `get` gives up,
                          `scale_to` takes workers away or the learner takes fewer per version; what
                          was asked for before then is not taken back
          restarts        incarnations started after a failure
          failures        {reason: n}, of incarnations
          learner_wait_s  seconds that `get` took, in all
          workers_wait_s  seconds that running workers waited for the learner, all together
          policy_version  the newest published
          weights_bytes   of all published weights, as they were stored
          policy_lag      {"min", "mean", "max"} in versions, of the last batch's steps when it was
                          taken; None before the first
          policy_lag_histogram  {lag: env-steps delivered}; 256 stands for any lag above, too
          over_max_policy_lag   {"env_steps", "fragments"} delivered although above the limit
          workers         one dict per worker: worker_id, incarnation, state, pid, host, in_flight,
                          fragments, env_steps, recent_failures, last_error

        Reasons of `discarded`:
          closed          queued when the coordinator was closed
          stale           above max_policy_lag
          lost            the node that held the arrays died
          duplicate, out_of_order   a worker broke its numbering; never seen yet
        Reasons of `interrupted` and `failures`:
          worker_died     the process or its node ended
          worker_error    the policy or anything else raised
          env_error       an environment raised EnvError
          hung            worker_hang_timeout_s was over
          start_timeout   worker_start_timeout_s was over
          protocol        a worker broke its numbering
          closed, removed by `close`, by `scale_to`
        """
        stats = self._runner.stats()
        return {
            **stats,
            **self._taking.stats(),
            "policy_version": self._weights.version,
            "weights_bytes": self._weights.published_bytes,
        }

    def close(self) -> None:
        """Wakes whoever waits, ends the workers, and Ray if it was started here. Idempotent."""
        with self._close_lock:
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _ray_offer(version: int, weights: Weights) -> WeightOffer:
    # a coordinator without workers does without Ray
    from rollouts.cluster.ray_weights import ray_offer

    return ray_offer(version, weights)
