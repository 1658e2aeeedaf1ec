# SPDX-License-Identifier: Apache-2.0
"""RolloutCoordinator: many workers' rollouts as one stream of batches for a learner."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Self, cast

from rollouts.batch import MultiAgentRollout
from rollouts.collecting.frame_stacks import join
from rollouts.envs.make import make_vec
from rollouts.envs.statistics import RunningStatistics
from rollouts.errors import ClosedError, ProtocolError, SpecError
from rollouts.learner.fragment import Fragment, FragmentHandle, FragmentInfo
from rollouts.own_env.registrations import travelling
from rollouts.run_log.record_options import RunLog
from rollouts.support import at_exit
from rollouts.support.extras import needs
from rollouts.support.keywords import explains_keywords
from rollouts.workers import argument_checks as checks
from rollouts.workers.coordinator_options import (
    CoordinatorOptions,
    FaultPolicy,
    Inference,
    Placement,
    QueueLimits,
)
from rollouts.workers.fleet import FleetRules
from rollouts.workers.lag import LagRule, SyncMode
from rollouts.workers.local import LocalRunner
from rollouts.workers.offers import WeightPart, Weights, local_part
from rollouts.workers.on_ray.bundles import Bundles
from rollouts.workers.policy_trial import try_policy
from rollouts.workers.runner import Runner
from rollouts.workers.shared_statistics import SharedStatistics
from rollouts.workers.taking import Rollout, Taken, Taking
from rollouts.workers.tensor_transport import stays_in_its_process
from rollouts.workers.weight_store import WeightStore
from rollouts.workers.weight_transport import WeightTransport
from rollouts.workers.worker_config import CollectOptions, MakePolicy, WorkerConfig


class RolloutCoordinator(Generic[Rollout]):
    """Starts workers, keeps them busy, and merges their fragments into one stream.

    Each worker hosts one native pool and one policy. Fragments stay where they were made until the
    learner takes them; a slow learner makes the workers wait. A fragment that came is delivered
    exactly once. A worker that dies is started again with new episodes and fresh seeds; the
    fragments of its open calls are dropped whole and counted.

    `close` or the end of a `with` block ends the workers and waits for their end. A coordinator
    without references also ends them, soon after Python has freed it.

    All methods may be called from different threads; with `num_workers=0` only `close` and `stats`
    may run beside a `get`.

    A worker that raises, dies, hangs or does not start is killed and started again as its next
    incarnation. So is one that raises EnvError: its pool may be damaged, so it is not used again.

    Environments may have several agents. Each group then has a policy of its own name, unless
    `collect=CollectOptions(policies=...)` gives several groups one: `make_policy` is called once
    for each policy, weights are published by policy, and a rollout has a batch for each group.
    Write `RolloutCoordinator[MultiAgentRollout](...)` for type checkers.

    Args:
      id: Any of `rollouts.env_ids()`.
      make_policy: Called with a `PolicySpec` in each worker; must pickle. If the policy has a
        method `seed`, it is then called with PolicySpec.seed. Where workers use `make_vec` and no
        GPU, it is first called once in this process, and the policy tried on empty observations.
        This trial is left out if there is a GPU here that this process has not used yet.
      num_workers: Ray actors; 0 collects in this process, on demand, without Ray.
      num_envs_per_worker: Environment i of worker w has the env_id
        w * num_envs_per_worker + i, and produces the same data as in one pool of them all.
      rollout_length: Steps T per fragment.
      num_coordinators: Processes that lead the workers. With 1 this process leads them. With more,
        that many Ray actors lead an equal share each: actor w % num_coordinators leads worker w.
        This process takes many fragments at a time from them, and keeps the one queue, account and
        limit on lag: worth it where many small fragments keep this process busy. An actor that dies
        is started again with other workers and new episodes; the fragments of its open calls count
        as interrupted, and arrays of 100 kB or more that have not come here yet are lost. `faults`
        holds for these actors as it does for workers. Not with inference, tensor_transport or
        queue.merge="ordered".
      num_threads_per_worker: Threads of each pool.
      seed: Seed of the environments and, mixed with the worker's number, of the policies.
      env_options: Further keyword arguments of `make_vec`, an environment's options among them.
      sync_mode: "synchronous": workers collect only while a `get` waits, with the newest weights;
        every step has lag 0. "one_step_lag": they collect the next batch while the learner learns
        from the last one, with the weights it began with; lag 1 at most. "free_running": they
        wait only where there is no room for more fragments.
      ray_address: Cluster to join. None uses the Ray this process is connected to, or
        RAY_ADDRESS, or starts one on this machine with just the CPUs the workers need.
      placement: See `Placement`: what Ray reserves for each worker, on which nodes, how many there
        may ever be, and the CPUs of their threads.
      faults: See `FaultPolicy`: how often a worker is started again, and how long it may take.
      queue: See `QueueLimits`: how many fragments may be on their way, how old they may be, and in
        which order they come.
      weights: See `WeightTransport`: how they are stored and sent, and the first version's number.
      collect: See `CollectOptions`: environments or a collector of your own, and what a fragment
        contains.
      inference: See `Inference`: the actor in which one policy acts for all workers; None for a
        policy in each.
      record: Folder in which each worker writes its log, or a `RunLog`, see `Collector`. All
        machines may share the folder, or each have its own at this path.
    Raises:
      SpecError: an argument is out of range, id or an option unknown, the policy's network
        does not fit or it returns a wrong shape, no Ray is at ray_address, or it has fewer GPUs
        than the inference server and one worker need.
    Example:
      with RolloutCoordinator("CartPole-v1", make_policy, num_workers=2, num_envs_per_worker=64,
                              rollout_length=128) as coordinator:
          coordinator.publish_weights(policy.weights())
          batch = coordinator.get(num_fragments=2)
    """

    @explains_keywords("RolloutCoordinator")
    def __init__(
        self,
        id: str,
        make_policy: MakePolicy,
        *,
        num_workers: int,
        num_envs_per_worker: int,
        rollout_length: int,
        num_coordinators: int = 1,
        num_threads_per_worker: int = 1,
        seed: int = 0,
        env_options: Mapping[str, Any] | None = None,
        sync_mode: SyncMode = "free_running",
        ray_address: str | None = None,
        placement: Placement = Placement(),
        faults: FaultPolicy = FaultPolicy(),
        queue: QueueLimits = QueueLimits(),
        weights: WeightTransport = WeightTransport(),
        collect: CollectOptions = CollectOptions(),
        inference: Inference | None = None,
        record: str | os.PathLike[str] | RunLog | None = None,
    ) -> None:
        """Starts the workers; does not wait for them. Arguments: see the class."""
        self.num_workers, self.num_envs_per_worker = num_workers, num_envs_per_worker
        checks.check_counts(
            num_workers=num_workers,
            num_envs_per_worker=num_envs_per_worker,
            rollout_length=rollout_length,
            num_coordinators=num_coordinators,
            num_threads_per_worker=num_threads_per_worker,
            seed=seed,
        )
        checks.check_policy(make_policy)
        options = CoordinatorOptions(placement, faults, queue, weights, collect, inference)
        checks.check_options(num_workers, options)
        checks.check_coordinators(num_coordinators, num_workers, options)
        self._num_coordinators = num_coordinators
        checks.check_env_options(env_options)
        self._config = WorkerConfig(
            id=travelling(id),
            num_envs=num_envs_per_worker,
            rollout_length=rollout_length,
            num_threads=num_threads_per_worker,
            seed=seed,
            env_options=dict(env_options or {}),
            pin_threads=placement.pin_threads,
            numa_nodes=placement.numa_nodes,
            collect=collect.decided(num_workers),
            record=checks.log_of(record, collect),
        )
        # a ReplayService checks these two
        self.collect, self.cell = collect, checks.check_cell(self._config, num_workers, options)
        policies = checks.check_env(self._config)
        self._weights = WeightStore(part_by_ray if num_workers else local_part, weights, policies)
        lag = LagRule.of(sync_mode, queue.max_policy_lag, queue.lag_policy)
        self._bundles = Bundles.of_workers(
            placement, num_workers=num_workers, num_threads=num_threads_per_worker
        )
        self._taking, self._statistics = Taking(lag), SharedStatistics()
        self._close_lock = threading.Lock()
        self._runner = self._start(make_policy, options, lag, ray_address)

    def _start(
        self,
        make_policy: MakePolicy,
        options: CoordinatorOptions,
        lag: LagRule,
        ray_address: str | None,
    ) -> Runner:
        """Starts the workers, or nothing where this process collects."""
        config, collect = self._config, self._config.collect
        stay = stays_in_its_process(collect.tensor_transport)
        rules = FleetRules(
            faults=options.faults, queue=options.queue, lag=lag, payloads_in_workers=stay
        )
        if self.num_workers == 0:
            return LocalRunner(config, make_policy, weights=self._weights, rules=rules)
        # only here is Ray needed
        with needs("ray", "a RolloutCoordinator with num_workers above 0"):
            from rollouts.workers.on_ray.ray_runner import RayRunner
        inference = options.inference
        # in other cases the policy may need a GPU that is not here, or its spaces are unknown
        needs_gpu = self._bundles.num_gpus or (inference is not None and inference.num_gpus)
        if collect.make_collector is None and collect.make_env is None and not needs_gpu:
            self._weights.shapes = try_policy(make_policy, config)
        runner = RayRunner(
            config,
            self.num_workers,
            make_policy,
            num_coordinators=self._num_coordinators,
            ray_address=ray_address,
            bundles=self._bundles,
            inference=inference,
            weights=self._weights,
            rules=rules,
            weight_transport=options.weights,
        )
        weakref.finalize(self, runner.abandon).atexit = False
        return runner

    def publish_weights(self, weights: Mapping[str, Any]) -> int:
        """Offers new weights, which workers take over before their next fragment.

        Args:
          weights: name -> numpy array or torch tensor, as from `Policy.weights`; copied. With
            several agents policy -> such weights, for some policies or all: the others keep theirs,
            which are not sent again and are at first those that `make_policy` made.
        Returns:
          The version, counted from weights.first_version: one number for all policies, called
          `policy_version` in the batches.
        Raises:
          SpecError: Values are not numeric, names or shapes not those of the policy, if known, or
            there is no such policy.
        """
        version = self._weights.publish(weights, self._statistics.common)
        self._runner.published()
        return version

    def publish_from(
        self, learner: Any, method: str = "weights", *, timeout_s: float | None = 60.0
    ) -> int:
        """Publishes weights as `publish_weights` does, from a learner's actor, without passing them
        through this process.

        Each policy's weights are stored and sent separately, so that a frozen policy's are not sent
        again. The learner copies them after the calls that it was given before. They are kept in
        the object store of its node, and outlive the learner's process there; with
        `weights.tensor_transport` they also go directly from its process to each worker.

        Args:
          learner: Handle of an actor. With several agents also policy -> handle of the actor whose
            `method` returns that policy's weights: all are asked at once, for one version.
          method: The learner's method that returns what `publish_weights` takes; no arguments.
          timeout_s: Seconds to wait for the learner or learners; None waits for ever.
        Returns:
          The version, as `publish_weights`.
        Raises:
          TimeoutError: The learner was busy. LearnerError: It died, or `method` raised.
          SpecError: It is no actor, has no such method, or the method returned no such weights.
          After any error the version before stays the newest.
        """
        take = self._runner.weights_of(learner, method, timeout_s)
        version = self._weights.publish_from(take, self._statistics.common)
        self._runner.published()
        return version

    def get(self, num_fragments: int = 1, timeout_s: float | None = None) -> Rollout:
        """Waits for fragments and joins them along B, in the order of `queue.merge`.

        Args:
          num_fragments: The number of fragments; at most queue.max_queued_fragments.
          timeout_s: Seconds to wait; None waits for ever.
        Returns:
          A RolloutBatch (T, B, ...), or with several agents a MultiAgentRollout. With one fragment
          the arrays are read-only, except stacks of frames.
        Raises:
          TimeoutError: too few arrived in time; they stay for the next call.
          WorkerError: no worker is left; the message has their last errors.
          ProtocolError: no weights were published yet, so nothing would ever arrive.
          ClosedError: the coordinator was closed, or drained and has fewer left.
        """
        checks.check_joined(self._config.collect)
        fragments = self.get_fragments(num_fragments, timeout_s)
        payloads: list[Any] = [fragment.payload for fragment in fragments]
        has_agents = isinstance(payloads[0], MultiAgentRollout)
        joined: Any = (MultiAgentRollout.concatenate if has_agents else join)(payloads)
        return cast("Rollout", joined)

    def get_fragments(
        self, num_fragments: int = 1, timeout_s: float | None = None
    ) -> list[Fragment]:
        """Waits as `get` does, and returns the fragments one by one as they came."""
        return self._take(self._runner.get, num_fragments, timeout_s)

    def get_pending(
        self, num_fragments: int = 1, timeout_s: float | None = None
    ) -> list[FragmentHandle]:
        """Waits as `get_fragments` does, and leaves the arrays where they are; see `fetch`."""
        return self._take(self._runner.get_pending, num_fragments, timeout_s)

    def hand_over(self, learner: Any, timeout_s: float | None = None) -> FragmentInfo:
        """Brings one fragment into a learner's actor without passing it through this process;
        otherwise as `get`.

        The learner has the arrays when this returns, and takes them with `FragmentInbox.take`. A
        fragment that died with its worker is counted as lost, and the next one is handed over.
        After an error the fragment is still here, and not in the learner.

        Args:
          learner: Handle of an actor whose class inherits from `FragmentInbox`.
        Raises:
          LearnerError: The learner's actor died, or cannot keep the fragment.
          SpecError: The learner is no such actor.
        """
        return self._take(partial(self._runner.hand_over, learner), 1, timeout_s)[0].info

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
            taken = self._taking.take(get, num_fragments, timeout_s, lambda: self._weights.version)
            self._statistics.add(fragment.info for fragment in taken)
            return taken

    def env_seed(self, incarnation: int) -> int | None:
        """The seed of the workers' pools in an incarnation; None where `make_vec` makes none."""
        collect = self._config.collect
        if collect.make_env is not None or collect.make_collector is not None:
            return None
        return replace(self._config, incarnation=incarnation).env_seed

    def make_env(self) -> Any:
        """Makes one environment in this process as the workers have them, to see its spaces.

        Raises:
          SpecError: `collect.make_env` or `make_collector` make the workers' environments.
        """
        collect, config = self._config.collect, self._config
        if collect.make_env is not None or collect.make_collector is not None:
            raise SpecError(
                "the workers' environments are made by collect.make_env or make_collector, and are "
                "not known in this process: record in a process of your own, with a Collector"
            )
        return make_vec(config.id, 1, autoreset_mode="same_step", **config.env_options)

    @property
    def statistics(self) -> dict[str, RunningStatistics]:
        """Statistics of all taken fragments by "observation" and "reward", if workers normalise.

        They travel with each new version of the weights; set them to go on from a checkpoint.
        """
        return self._statistics.common

    @statistics.setter
    def statistics(self, statistics: Mapping[str, RunningStatistics]) -> None:
        self._statistics.set(statistics)

    def scale_to(self, num_workers: int) -> None:
        """Makes workers 0 to num_workers - 1 those that collect; returns at once.

        Further workers complete and deliver what they were asked for and then stop. A worker that
        was stopped or benched before comes back as its next incarnation, with its own env_ids and
        new episodes. Unless queue.max_queued_fragments was given, that bound changes accordingly.
        Of several coordinators each has an equal share of the new number. `Autoscaler` chooses the
        number from who waits for whom.

        Args:
          num_workers: num_coordinators, of which each needs a worker, to placement.max_workers.
        Raises:
          SpecError: num_workers is out of range.
          ProtocolError: after `drain`, or there were no workers to begin with.
          ClosedError: the coordinator was closed.
          WorkerError: there are several coordinators, and Ray has ended.
        """
        least, most = self._num_coordinators, max(1, self._bundles.count)
        if not least <= num_workers <= most:
            few = "each coordinator needs a worker"
            many = (
                "give RolloutCoordinator as large a placement.max_workers as it may need some day"
            )
            why = few if 0 < num_workers < least else many
            raise SpecError(f"num_workers is {num_workers}, expected {least} to {most}: {why}")
        self._runner.scale_to(num_workers)

    def drain(self, timeout_s: float | None = None) -> None:
        """Asks for nothing more and waits until what was asked for is complete.

        `get` then delivers what is left, and raises ClosedError when that is too little. A worker
        that fails is not started again, one that hangs is given up after faults.hang_timeout_s.

        Args:
          timeout_s: Seconds to wait; None waits as long as it takes.
        Raises:
          TimeoutError: fragments were still in flight; they arrive later.
        """
        self._runner.drain(timeout_s)

    def stats(self) -> dict[str, Any]:
        """Counts what has happened so far; all numbers but the lag's are from one moment.

        Returns:
          env_steps, fragments  {"produced", "delivered", "queued", "discarded": {reason: n}}, where
                          produced = delivered + queued + sum(discarded.values())
          fragments       also has "requested", "in_flight" and "interrupted": {reason: n}, those
                          that were asked for and never came, where
                          requested = produced + in_flight + sum(interrupted.values())
          calls           calls of workers, each for a fragment or several, see `CallSize`
          queue_depth     fragments waiting for the learner: those "queued", of which a `get` may be
                          fetching some
          queued_bytes    bytes of the arrays of these, as they are in the object store
          outstanding_limit  fragments that may be in flight and queued together at present, with
                          those that a `get` is fetching on top. It falls when a `get` gives up,
                          `scale_to` takes workers away or the learner takes fewer per version; what
                          was asked for before then is not taken back
          restarts        incarnations started after a failure
          failures        {reason: n}, the incarnations that failed
          learner_wait_s  seconds that `get` took, in all
          workers_wait_s  seconds that running workers waited for the learner, all together
          policy_version  the newest published
          weights_bytes   bytes of all published weights, as they were stored
          weight_pulls    {way: n}: how workers got weights, "object_store" or "direct", in the
                          fragments that were produced
          policy_lag      {"min", "mean", "max"} in versions, of the last batch's steps when it was
                          taken; None before the first
          policy_lag_histogram  {lag: env-steps delivered}; 256 stands for any lag above, too
          over_max_policy_lag   {"env_steps", "fragments"} delivered although above the limit
          workers         one dict per worker: worker_id, incarnation, state, pid, host, in_flight,
                          fragments, env_steps, recent_failures, last_error
          coordinators    with several, one dict per coordinator, as for workers, with "coordinator"
                          and "life" in place of the first two keys. Each coordinator is asked for
                          its numbers; if one does not answer within 2 s, its last answer counts

        Reasons of `discarded`:
          closed          queued when the coordinator was closed
          stale           above max_policy_lag
          lost            what held the arrays died: a node, with `tensor_transport` a worker, or
                          one of several coordinators, if the fragment has 100 kB or more
          duplicate, out_of_order   a worker broke its numbering; never seen yet
        Reasons of `interrupted` and `failures`:
          worker_died     the process or its node ended
          worker_error    the policy or anything else raised
          env_error       an environment raised EnvError
          coordinator_died, no_worker_left   one of several coordinators ended, or was left without
                          workers; fragments that failed in its share and were asked for again there
                          also count under the workers' reasons, and once more as requested
          hung            faults.hang_timeout_s was over
          start_timeout   faults.start_timeout_s was over
          protocol        a worker broke its numbering
          closed, removed   ended by `close`, by `scale_to`
        """
        stats = self._runner.stats()
        return {
            **stats,
            **self._taking.stats(),
            "policy_version": self._weights.version,
            "weights_bytes": self._weights.published_bytes,
        }

    def close(self) -> None:
        """Wakes all that wait, ends the workers, and Ray if it was started here. Idempotent."""
        with self._close_lock:
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def part_by_ray(version: int, weights: Weights) -> WeightPart:
    # a coordinator without workers does without Ray
    from rollouts.workers.on_ray.ray_weights import ray_part

    return ray_part(version, weights)
