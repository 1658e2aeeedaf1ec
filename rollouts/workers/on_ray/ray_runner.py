# SPDX-License-Identifier: Apache-2.0
"""The coordinator's work with Ray: a session, workers in it, and an inference server if wanted.

Imported only when there are workers to start, so that `num_workers=0` needs no Ray.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any, cast

from rollouts.learner.fragment import Fragment, FragmentHandle
from rollouts.workers.coordinator_options import Inference
from rollouts.workers.fleet import FleetRules
from rollouts.workers.fleet_thread import ABANDONED_TIMEOUT_S, FleetThread
from rollouts.workers.on_ray.bundles import Bundles
from rollouts.workers.on_ray.direct_transports import ray_transport
from rollouts.workers.on_ray.hand_over import HandOver, check_learner, check_release
from rollouts.workers.on_ray.inference import InferenceServer
from rollouts.workers.on_ray.learner_weights import LearnerWeights, read_learners
from rollouts.workers.on_ray.ray_session import RaySession, check_connected
from rollouts.workers.on_ray.shares import Shares
from rollouts.workers.share import driver_rules
from rollouts.workers.slot import Launch
from rollouts.workers.tensor_transport import lends_memory
from rollouts.workers.weight_store import TakeSnapshots, WeightStore
from rollouts.workers.weight_transport import WeightTransport
from rollouts.workers.worker_config import MakePolicy, PolicySpec, WorkerConfig

# merge threads of abandoned coordinators, which are still ending them
_ending: list[threading.Thread] = []


class RayRunner(FleetThread):
    """A FleetThread whose workers are actors of Ray; it also owns Ray and the inference server."""

    def __init__(
        self,
        config: WorkerConfig,
        num_workers: int,
        make_policy: MakePolicy,
        *,
        num_coordinators: int = 1,
        ray_address: str | None,
        bundles: Bundles,
        inference: Inference | None,
        weights: WeightStore,
        rules: FleetRules,
        weight_transport: WeightTransport,
    ) -> None:
        """Starts Ray or joins it, then everything else; waits for none of the actors.

        Args:
          config: The config of every worker, but for worker_id and incarnation.
          num_workers: The number of workers to begin with.
          make_policy: Called in the inference server if there is one, else in each worker.
          num_coordinators: If above 1, that many actors lead a share of the workers each; see
            `share.py`.
          ray_address: See `RaySession`.
          bundles: Resources of all workers that there may ever be.
          inference: Settings of the server that acts for all workers; None for none.
          weights: The store of the newest weights.
          rules: See FleetRules.
          weight_transport: Transport of weights that come from a learner's actor.
        """
        self._tensor_transport = config.collect.tensor_transport
        transport = ray_transport(self._tensor_transport)
        self._store = weights
        way = weight_transport.tensor_transport
        if way == "auto" or inference is not None:
            # the inference server fetches weights itself
            way = self._tensor_transport
        self._learner_weights = LearnerWeights(weight_transport, way, weights)
        self._server: InferenceServer | None = None
        self._shares: Shares | None = None
        _wait_for_ending()
        self._session = RaySession(
            ray_address,
            bundles,
            extra_cpus=0.0 if inference is None else inference.num_cpus,
            inference_num_gpus=0.0 if inference is None else inference.num_gpus,
            timeout_s=rules.faults.start_timeout_s,
        )
        try:
            if inference is not None:
                self._server = InferenceServer(
                    make_policy,
                    _shared_spec(config, bundles.count),
                    rule=inference.rule,
                    num_cpus=inference.num_cpus,
                    num_gpus=inference.num_gpus,
                )
                make_policy = self._server.make_remote_policy
            launch = self._session.launcher(make_policy, transport, self._learner_weights.transport)
            num_slots, start = num_workers, cast(Launch, launch)
            if num_coordinators > 1:
                self._shares = Shares(launch, rules, num_workers, num_coordinators, weights)
                num_slots, start = num_coordinators, self._shares.launch
                rules = driver_rules(rules, num_workers)
            super().__init__(
                config, num_slots, start, weights=weights, rules=rules, check=check_connected
            )
        except BaseException:
            self._close_ray()
            raise

    def get(self, num_fragments: int, timeout_s: float | None) -> list[Fragment]:
        """See `FleetThread.get`; from then on arrays come here as soon as they are made."""
        self._session.destination.takes_here = True
        return super().get(num_fragments, timeout_s)

    def get_pending(self, num_fragments: int, timeout_s: float | None) -> list[FragmentHandle]:
        """See `FleetThread.get_pending`."""
        self._session.destination.takes_here = False
        return super().get_pending(num_fragments, timeout_s)

    def published(self) -> None:
        """Notes that there are new weights, and offers them to the inference server."""
        if self._server is not None and self._store.latest is not None:
            self._server.offer(self._store.latest)
        super().published()

    def weights_of(self, learner: Any, method: str, timeout_s: float | None) -> TakeSnapshots:
        """See `RolloutCoordinator.publish_from`."""
        learners = read_learners(learner, method, self._store.policies)
        return partial(self._learner_weights.take, learners, method, timeout_s)

    def hand_over(
        self, learner: Any, num_fragments: int, timeout_s: float | None
    ) -> list[FragmentHandle]:
        """See `RolloutCoordinator.hand_over`: hands over one fragment, whatever `num_fragments`."""
        check_learner(learner, self._tensor_transport)
        self._session.destination.takes_here = False
        end = None if timeout_s is None else time.monotonic() + timeout_s
        check_release(learner, timeout_s)
        if end is not None:
            timeout_s = max(0.0, end - time.monotonic())
        # tensors on a GPU may be in the worker process's memory, and are then copied
        copies = lends_memory(self._tensor_transport)
        with self.told_of_workers(timeout_s):
            handle = self.queue.hand_over(
                lambda handle: HandOver(handle, learner, copies=copies), timeout_s
            )
        return [handle]

    def stats(self) -> dict[str, Any]:
        """Returns this part of `RolloutCoordinator.stats`; asks each coordinator for a report."""
        if self._shares is None:
            return super().stats()
        self._shares.ask_all()
        return self._shares.reports.stats(super().stats())

    def _scale(self, num_workers: int) -> None:
        if self._shares is None:
            super()._scale(num_workers)
            return
        # a coordinator that was benched starts here with its former share, and is told below
        self._fleet.scale_to(self._shares.num_coordinators, num_shared=num_workers)
        self._shares.scale_to(num_workers)

    def close(self) -> None:
        """Ends the workers and the inference server, and Ray if it was started here. Idempotent."""
        self._learner_weights.close()
        super().close()
        self._close_ray()

    def abandon(self) -> None:
        """Ends everything as `FleetThread.abandon` does; the next coordinator waits for the end."""
        _ending.append(self._thread)  # takes no lock either
        super().abandon()

    def release(self) -> None:
        """Ends the inference server, and Ray if it was started here."""
        self._learner_weights.close()
        self._close_ray()

    def _close_ray(self) -> None:
        if self._server is not None:
            self._server.close()
        self._session.close()


def _wait_for_ending() -> None:
    while _ending:
        _ending.pop().join(ABANDONED_TIMEOUT_S)


def _shared_spec(config: WorkerConfig, max_workers: int) -> PolicySpec:
    """Describes the environments of all workers that there may ever be, together."""
    import rollouts

    env = rollouts.env_spec(config.id, **config.env_options)
    # no worker ever has this number, so none has its seed
    nobody = replace(config, worker_id=max_workers)
    return PolicySpec(
        id=config.id,
        single_observation_space=env.single_observation_space,
        single_action_space=env.single_action_space,
        num_envs=config.num_envs * max_workers,
        env_id_offset=0,
        worker_id=nobody.worker_id,
        incarnation=0,
        seed=nobody.policy_seed,
    )
