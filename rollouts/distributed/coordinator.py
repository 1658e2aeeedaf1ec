# SPDX-License-Identifier: Apache-2.0
"""RolloutCoordinator: many workers' rollouts as one stream of batches for a learner."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self

from rollouts.batch import RolloutBatch
from rollouts.distributed.fragment import Fragment
from rollouts.distributed.local import LocalRunner
from rollouts.distributed.supervisor import Supervisor
from rollouts.distributed.weights import Weights, WeightStore, local_offer, ray_offer
from rollouts.distributed.worker import MakeCollector, MakePolicy, WorkerConfig
from rollouts.errors import ClosedError, EngineError, ProtocolError, SpecError
from rollouts.learner_queue import LearnerQueue


class RolloutCoordinator:
    """Starts workers, keeps them busy, and merges their fragments in the order of arrival.

    Each worker hosts one native pool and one policy. Fragments stay where they were made until the
    learner takes them; a slow learner makes the workers wait. A completed fragment is delivered
    exactly once. A worker that dies is started again with new episodes and fresh seeds, and what it
    had not completed is dropped whole and counted.

    `publish_weights`, `get`, `stats` and `close` may be called from different threads; with
    `num_workers=0` only `close` and `stats` may run beside a `get`.

    Args:
      env_id: Any of `rollouts.env_ids()`.
      make_policy: Called with a `PolicySpec` in each worker; must pickle. If the policy has a
        method `seed`, it is then called with PolicySpec.seed.
      num_workers: Ray actors; 0 collects in this process, on demand, without Ray.
      num_envs_per_worker: Environment i of worker w has the env_id
        w * num_envs_per_worker + i, and produces the same data as in one pool of them all.
      rollout_length: Steps T per fragment.
      num_threads_per_worker: Threads of each pool, and of torch in each worker.
      batch_size_per_worker: See `make_vec`; None for synchronous pools.
      seed: Of the environments and, mixed with the worker's number, of the policies.
      env_options: Further keyword arguments of `make_vec`.
      max_queued_fragments: Most fragments in flight and queued together, so also the most that
        one `get` can take; None for num_workers * credits_per_worker.
      credits_per_worker: Most calls in flight per worker. With 2 a worker never waits for the
        driver, with 1 it starts each fragment with the newest weights.
      ray_address: Cluster to join. None uses the Ray this process is connected to, or
        RAY_ADDRESS, or starts one on this machine with just the CPUs the workers need.
      num_cpus_per_worker: What Ray reserves; None for num_threads_per_worker.
      max_restarts_per_worker: Failures in a row without a completed fragment after which a
        worker is not started again.
      worker_start_timeout_s: Seconds a worker may take to start before that is a failure.
      make_collector: Replaces `build_collector` in the workers; must pickle.
    Raises:
      SpecError: an argument is out of range, env_id or an option unknown.
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
        batch_size_per_worker: int | None = None,
        seed: int = 0,
        env_options: Mapping[str, Any] | None = None,
        max_queued_fragments: int | None = None,
        credits_per_worker: int = 2,
        ray_address: str | None = None,
        num_cpus_per_worker: float | None = None,
        max_restarts_per_worker: int = 3,
        worker_start_timeout_s: float = 120.0,
        make_collector: MakeCollector | None = None,
    ) -> None:
        """Starts the workers; does not wait for them. Arguments: see the class."""
        _check_counts(
            num_workers=(num_workers, 0),
            num_envs_per_worker=(num_envs_per_worker, 1),
            rollout_length=(rollout_length, 1),
            num_threads_per_worker=(num_threads_per_worker, 1),
            credits_per_worker=(credits_per_worker, 1),
            max_restarts_per_worker=(max_restarts_per_worker, 0),
            seed=(seed, 0),
        )
        if not callable(make_policy):
            raise SpecError(
                f"make_policy must be a function that takes a PolicySpec, got {make_policy!r}"
            )
        if make_collector is None:
            _check_env(env_id, env_options or {})
        self._session: _Closable | None = None
        self._policy_lag: dict[str, float] | None = None
        self._close_lock = threading.Lock()
        self._weights = WeightStore(ray_offer if num_workers else local_offer)
        first = WorkerConfig(
            env_id=env_id,
            worker_id=0,
            incarnation=0,
            num_envs=num_envs_per_worker,
            rollout_length=rollout_length,
            batch_size=batch_size_per_worker,
            num_threads=num_threads_per_worker,
            seed=seed,
            env_options=dict(env_options or {}),
        )
        if num_workers == 0:
            self._runner: _Runner = LocalRunner(
                first,
                make_policy,
                make_collector=make_collector,
                weights=self._weights,
                capacity=max_queued_fragments,
            )
            return
        self._start_workers(
            [replace(first, worker_id=worker_id) for worker_id in range(num_workers)],
            make_policy,
            make_collector,
            ray_address=ray_address,
            num_cpus=num_cpus_per_worker or num_threads_per_worker,
            capacity=max_queued_fragments or num_workers * credits_per_worker,
            credits_per_worker=credits_per_worker,
            max_restarts=max_restarts_per_worker,
            start_timeout_s=worker_start_timeout_s,
        )

    def publish_weights(self, weights: Weights) -> int:
        """Offers new weights, which workers take over before their next fragment.

        Args:
          weights: name -> numpy array, as from `Policy.weights`; copied.
        Returns:
          The version, counted 1, 2, 3, ...: what `policy_version` in the batches refers to.
        """
        version = self._weights.publish(weights)
        self._runner.wake()
        return version

    def get(self, num_fragments: int = 1, timeout_s: float | None = None) -> RolloutBatch:
        """Waits for fragments and joins them along B, in the order of their arrival.

        Args:
          num_fragments: How many; at most max_queued_fragments.
          timeout_s: Seconds to wait; None waits for ever.
        Returns:
          A RolloutBatch (T, B, ...). From a single worker's fragment its arrays are read-only.
        Raises:
          TimeoutError: too few arrived in time; they stay for the next call.
          WorkerError: no worker is left; the message has their last errors.
          ProtocolError: no weights were published yet, so nothing would ever arrive.
          ClosedError: the coordinator was closed.
        """
        fragments = self.get_fragments(num_fragments, timeout_s)
        return RolloutBatch.concatenate([fragment.batch for fragment in fragments])

    def get_fragments(
        self, num_fragments: int = 1, timeout_s: float | None = None
    ) -> list[Fragment]:
        """Does what `get` does, but returns the fragments as they came."""
        if self._runner.queue.closed:
            raise ClosedError("the coordinator is closed")
        if self._weights.latest is None:
            raise ProtocolError("no weights yet: call publish_weights() before get()")
        fragments = self._runner.get(num_fragments, timeout_s)
        self._policy_lag = _policy_lag(fragments, self._weights.version)
        return fragments

    def stats(self) -> dict[str, Any]:
        """Says what has happened so far.

        Returns:
          env_steps, fragments  {"produced", "delivered", "queued", "discarded": {reason: n}}, where
                          produced = delivered + queued + sum(discarded.values()). Fragments also
                          have "in_flight" (asked for) and "interrupted": {reason: n}, calls that
                          never became a fragment and so are not part of that sum
          queue_depth     fragments waiting for the learner
          restarts        incarnations started after a failure
          policy_version  the newest published
          policy_lag      {"min", "mean", "max"} in versions, of the last batch's steps when it was
                          taken; None before the first
          workers         one dict per worker: worker_id, incarnation, state, pid, host, in_flight,
                          fragments, last_error
        """
        stats = self._runner.queue.stats()
        running = self._runner.stats()
        stats["fragments"]["in_flight"] = running.pop("in_flight")
        stats["fragments"]["interrupted"] = running.pop("interrupted")
        return {
            **stats,
            **running,
            "policy_version": self._weights.version,
            "policy_lag": self._policy_lag,
        }

    def close(self) -> None:
        """Wakes whoever waits, ends the workers, and Ray if it was started here. Idempotent."""
        with self._close_lock:
            self._runner.close()
            if self._session is not None:
                self._session.close()
                self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start_workers(
        self,
        configs: Sequence[WorkerConfig],
        make_policy: MakePolicy,
        make_collector: MakeCollector | None,
        *,
        ray_address: str | None,
        num_cpus: float,
        capacity: int,
        credits_per_worker: int,
        max_restarts: int,
        start_timeout_s: float,
    ) -> None:
        # only here is Ray needed
        from rollouts.distributed.ray_session import RaySession, check_connected

        session = RaySession(ray_address, num_cpus * len(configs))
        try:
            launch = session.launcher(
                make_policy,
                make_collector,
                num_cpus=num_cpus,
                torch_threads=configs[0].num_threads,
            )
            self._runner = Supervisor(
                configs,
                launch,
                weights=self._weights,
                capacity=capacity,
                credits_per_worker=credits_per_worker,
                max_restarts=max_restarts,
                start_timeout_s=start_timeout_s,
                check=check_connected,
            )
        except BaseException:
            session.close()
            raise
        self._session = session


class _Closable(Protocol):
    def close(self) -> None: ...


class _Runner(_Closable, Protocol):
    """Where fragments come from: the Supervisor's workers or the LocalRunner."""

    queue: LearnerQueue[Fragment]

    def get(self, num_fragments: int, timeout_s: float | None) -> list[Fragment]: ...

    def wake(self) -> None: ...

    def stats(self) -> dict[str, Any]: ...


def _check_counts(**bounds: tuple[int, int]) -> None:
    """Raises SpecError where a value is below its minimum."""
    for name, (value, minimum) in bounds.items():
        if value < minimum:
            raise SpecError(f"{name} is {value}, expected at least {minimum}")


def _check_env(env_id: str, env_options: Mapping[str, Any]) -> None:
    """Raises SpecError at once, instead of from every worker, where id or options are wrong."""
    import rollouts

    # the engine may be missing here and present where the workers are
    with contextlib.suppress(EngineError):
        rollouts.env_spec(env_id, **env_options)


def _policy_lag(fragments: Sequence[Fragment], version: int) -> dict[str, float]:
    """How many versions the steps of a batch are behind `version`."""
    steps = sum(fragment.num_steps for fragment in fragments)
    total = sum(int(fragment.batch.policy_version.sum()) for fragment in fragments)
    return {
        "min": version - max(fragment.max_policy_version for fragment in fragments),
        "mean": version - total / steps,
        "max": version - min(fragment.min_policy_version for fragment in fragments),
    }
