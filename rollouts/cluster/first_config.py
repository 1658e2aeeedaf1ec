# SPDX-License-Identifier: Apache-2.0
"""The WorkerConfig of a coordinator's arguments, from which those of all workers are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollouts.distributed.device_options import transport_of
from rollouts.distributed.options import CollectOptions, Placement
from rollouts.distributed.worker import WorkerConfig
from rollouts.errors import SpecError
from rollouts.own_env.registrations import travelling


def first_config(
    env_id: str,
    *,
    num_workers: int,
    num_envs_per_worker: int,
    rollout_length: int,
    num_threads_per_worker: int,
    seed: int,
    env_options: Mapping[str, Any] | None,
    placement: Placement,
    collect: CollectOptions,
) -> WorkerConfig:
    """Makes that of worker 0; arguments as of `RolloutCoordinator`, which has checked them."""
    if not isinstance(env_options, Mapping | None):
        raise SpecError(
            f"env_options is {env_options!r}, expected a dict of make_vec's keyword arguments"
        )
    return WorkerConfig(
        env_id=travelling(env_id),
        worker_id=0,
        incarnation=0,
        num_envs=num_envs_per_worker,
        rollout_length=rollout_length,
        batch_size=collect.batch_size,
        num_threads=num_threads_per_worker,
        seed=seed,
        env_options=dict(env_options or {}),
        pin_threads=placement.pin_threads,
        numa_nodes=placement.numa_nodes,
        # in this process nothing travels, and a GPU's rollouts travel as they are
        pack_frame_stacks=collect.pack_frame_stacks
        if num_workers and not collect.device
        else False,
        keep_final_obs=collect.keep_final_obs,
        make_env=collect.make_env,
        num_torch_threads=collect.num_torch_threads,
        engine=collect.engine,
        outputs=collect.outputs,
        returns=collect.returns,
        mask_actions=collect.mask_actions,
        policies=collect.policies,
        device=collect.device,
        travels_on_host=transport_of(collect) == "object_store",
        # torch keeps a counter for each time that memory is shared, until the memory is freed
        travels_as_copy=transport_of(collect) == "cuda_ipc",
    )
