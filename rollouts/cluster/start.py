# SPDX-License-Identifier: Apache-2.0
"""Starts what collects for a coordinator: workers in Ray, or this process."""

from __future__ import annotations

from rollouts.cluster.bundles import Bundles
from rollouts.distributed.device_options import transport_of
from rollouts.distributed.fleet import FleetRules
from rollouts.distributed.local import LocalRunner
from rollouts.distributed.options import CollectOptions, Inference
from rollouts.distributed.runner import Runner
from rollouts.distributed.trial import try_policy
from rollouts.distributed.weight_transport import WeightTransport
from rollouts.distributed.weights import WeightStore
from rollouts.distributed.worker import MakePolicy, WorkerConfig
from rollouts.support.extras import needs


def start_runner(
    config: WorkerConfig,
    make_policy: MakePolicy,
    *,
    num_workers: int,
    rules: FleetRules,
    bundles: Bundles,
    collect: CollectOptions,
    inference: Inference | None,
    store: WeightStore,
    weights: WeightTransport,
    ray_address: str | None,
) -> Runner:
    """Starts the workers, or nothing where this process collects; see `RolloutCoordinator`."""
    if num_workers == 0:
        return LocalRunner(
            config,
            make_policy,
            make_collector=collect.make_collector,
            weights=store,
            capacity=rules.queue.max_queued_fragments,
            lag=rules.lag,
        )
    # only here is Ray needed
    with needs("ray", "a RolloutCoordinator with num_workers above 0"):
        from rollouts.cluster.ray_runner import RayRunner
    # elsewhere it may need a GPU that is not here, or unknown spaces
    needs_gpu = bundles.num_gpus or (inference is not None and inference.num_gpus)
    if collect.make_collector is None and collect.make_env is None and not needs_gpu:
        store.shapes = try_policy(make_policy, config)
    return RayRunner(
        config,
        num_workers,
        make_policy,
        collect.make_collector,
        ray_address=ray_address,
        bundles=bundles,
        inference=inference,
        weights=store,
        rules=rules,
        tensor_transport=transport_of(collect),
        weight_transport=weights,
    )
