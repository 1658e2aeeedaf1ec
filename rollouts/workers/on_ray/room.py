# SPDX-License-Identifier: Apache-2.0
"""Checks whether a Ray has the CPUs and GPUs that actors need, and whether it ever can."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import ray as _typed_ray

from rollouts.errors import SpecError
from rollouts.support.ray_private import is_head_here
from rollouts.workers.on_ray.bundles import Bundles
from rollouts.workers.on_ray.shared_ray import SharedRay

_log = logging.getLogger(__name__)

# ray annotates only half of what it exports
ray: Any = _typed_ray

# s that Ray may take to free the CPUs of a coordinator that was just closed
_FREED_S = 15.0
_LOOK_S = 0.1


def check_cpus(bundles: Bundles, extra_cpus: float, shared: SharedRay) -> None:
    """Compares the CPUs that are free with those that are needed, and warns of a lack.

    Args:
      bundles: Resources of the workers or shards.
      extra_cpus: CPUs of the inference server.
      shared: The Ray, and what other sessions asked it for.
    Raises:
      SpecError: A session started the Ray, and it has no room for the inference server and one
        worker, without which nothing is collected. In other Rays CPUs may become free later.
    """
    needed = bundles.num_cpus * bundles.count + extra_cpus
    there = ray.cluster_resources().get("CPU", 0.0)
    # inside a placement group only its own bundles matter
    if not needed or ray.util.get_current_placement_group() is not None:
        return
    free = _free_cpus(needed, there, shared)
    if needed <= free:
        return
    least = extra_cpus + bundles.num_cpus
    message = (
        f"workers need {needed:g} CPUs, and of the {there:g} that Ray has {free:g} are free: close "
        "the coordinator or service that has them, lower num_workers or num_threads_per_worker, "
        f"or call ray.init(num_cpus={there - free + needed:g}) before the first one is made"
    )
    if shared.is_local and least > free:
        raise SpecError(message)
    _log.warning("%s; those without a CPU wait for one", message)


def check_gpus(bundles: Bundles, inference_num_gpus: float) -> None:
    """Warns of GPUs that are missing; raises SpecError where they can never be there.

    It counts the GPUs of the inference server and one worker, without which nothing is collected.
    """
    num_gpus = ray.cluster_resources().get("GPU", 0.0)
    if bundles.num_gpus + inference_num_gpus <= num_gpus:
        return
    asked = {"inference.num_gpus": inference_num_gpus, "placement.num_gpus": bundles.num_gpus}
    asked = {name: value for name, value in asked.items() if value}
    nobody = "inference server" if inference_num_gpus > num_gpus else "worker"
    message = (
        f"{' and '.join(f'{name} is {value:g}' for name, value in asked.items())}, and the Ray "
        f"cluster has {num_gpus:g} GPUs on {len(ray.nodes())} node(s), so that no {nobody} can "
        f"start: leave {' or '.join(asked)} out, or give a ray_address whose cluster has GPUs "
        "enough"
    )
    # a Ray that this process started stays as it is; a cluster may grow
    if is_head_here():
        raise SpecError(message)
    _log.warning(message)


def _free_cpus(needed: float, there: float, shared: SharedRay) -> float:
    """Returns how many CPUs are free; waits a moment for some that are just being freed."""
    unasked = there - shared.asked_cpus
    end = time.monotonic() + _FREED_S
    while True:
        free: float = min(unasked, ray.available_resources().get("CPU", 0.0))
        if needed <= free or needed > unasked or time.monotonic() > end:
            return free
        threading.Event().wait(_LOOK_S)
