# SPDX-License-Identifier: Apache-2.0
"""Tries every node of a Ray cluster: what it reports, and how soon a worker on it delivers."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray as _typed_ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rollouts.errors import RolloutsError, SpecError
from rollouts.specs import OptionValue
from rollouts.support.same_release import make_check
from rollouts.workers.coordinator_options import FaultPolicy, Placement
from rollouts.workers.node_checks import NodeReport, NodeState
from rollouts.workers.on_ray.bundles import Bundles
from rollouts.workers.on_ray.coordinator import RolloutCoordinator
from rollouts.workers.on_ray.node_probe import make_probe
from rollouts.workers.on_ray.ray_session import RaySession
from rollouts.workers.worker_config import MakePolicy

# ray annotates only half of what it exports
ray: Any = _typed_ray

_LOOK_S = 0.2
_NUM_CLOCK_LOOKS = 3
# the label that Ray gives each node
_NODE_LABEL = "ray.io/node-id"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FirstFragment:
    """The fragment that a worker on each node collects.

    Attributes:
      env_id: Any of `rollouts.env_ids()`.
      env_options: See `RolloutCoordinator`.
      make_policy: See `RolloutCoordinator`.
      weights: The weights to publish.
      num_envs: Environments of the worker.
      rollout_length: Steps T.
    """

    env_id: str
    env_options: Mapping[str, OptionValue]
    make_policy: MakePolicy
    weights: Mapping[str, Any]
    num_envs: int = 16
    rollout_length: int = 32


def try_nodes(
    address: str | None, num_nodes: int, timeout_s: float, task: FirstFragment | None
) -> tuple[list[NodeState], NodeReport]:
    """Asks every node what it has, and lets a worker on each collect a fragment.

    Args:
      address: See `RaySession`.
      num_nodes: Nodes to wait for; fewer are returned where they do not come in time.
      timeout_s: Seconds that each of joining, answering and the first fragment may take.
      task: The fragment that a worker on each node collects; None for none. The worker reserves no
        CPU: it does not wait for a job that runs on the node, but slows it.
    Returns:
      The nodes in the order of their addresses, and the report of this process.
    Raises:
      SpecError: There is no cluster at the address.
    """
    session = _join(address, timeout_s)
    try:
        nodes = _wait_for_nodes(num_nodes, timeout_s)
        # threads only wait for Ray
        with ThreadPoolExecutor(max(1, len(nodes)), "rollouts-check") as threads:
            list(threads.map(lambda node: _ask(node, timeout_s), nodes))
            if task is not None:
                able = [node for node in nodes if _can_collect(node)]
                list(threads.map(lambda node: _collect(node, address, timeout_s, task), able))
    finally:
        session.close()
    return nodes, NodeReport(**make_probe()([], make_check()))


def _join(address: str | None, timeout_s: float) -> RaySession:
    """Joins the cluster, whose head may be about to start."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            return RaySession(address, Bundles(count=0, num_cpus=0), timeout_s=timeout_s)
        except SpecError:
            if time.monotonic() > end:
                raise
            time.sleep(_LOOK_S)  # nobody tells when the head can be joined


def _wait_for_nodes(num_nodes: int, timeout_s: float) -> list[NodeState]:
    """Returns the living nodes, once there are `num_nodes` or the time is over."""
    end = time.monotonic() + timeout_s
    while True:
        alive = [node for node in ray.nodes() if node["Alive"]]
        if len(alive) >= num_nodes or time.monotonic() > end:
            break
        time.sleep(_LOOK_S)  # Ray has no call that waits for a new node
    found = [
        NodeState(
            node_id=node["NodeID"],
            address=node["NodeManagerAddress"],
            host=node["NodeManagerHostname"],
            offers=node["Resources"],
        )
        for node in alive
    ]
    return sorted(found, key=lambda node: (node.address, node.node_id))


def _can_collect(node: NodeState) -> bool:
    """Tells whether a worker may run on a node, and would have this release of rollouts."""
    is_same = node.report is not None and node.report.release_error is None
    return is_same and node.offers.get("CPU", 0) > 0


def _ask(node: NodeState, timeout_s: float) -> None:
    """Fills in the report, and how far the node's clock is off."""

    class Asked:  # local: Ray ships its code
        def call(self, function: Any, *arguments: Any) -> Any:
            return function(*arguments)

    here = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    actor = ray.remote(num_cpus=0, max_restarts=0)(Asked).options(scheduling_strategy=here).remote()
    sys_path = [os.path.abspath(entry) for entry in sys.path]
    try:
        answer = actor.call.remote(make_probe(), sys_path, make_check())
        node.report = NodeReport(**ray.get(answer, timeout=timeout_s))
        looks = [_look_at_clock(actor, timeout_s) for _ in range(_NUM_CLOCK_LOOKS)]
        node.clock_offset_s = min(looks, key=abs)
    except ray.exceptions.GetTimeoutError:
        node.error = f"no answer within {timeout_s:g} s"
    except ray.exceptions.RayError as error:
        node.error = str(error).strip().partition("\n")[0]
    finally:
        ray.kill(actor)


def _look_at_clock(actor: Any, timeout_s: float) -> float:
    """Returns how far the actor's clock is outside of the time between question and answer."""
    before = time.time()
    there: float = ray.get(actor.call.remote(time.time), timeout=timeout_s)
    after = time.time()
    return there - min(max(there, before), after)


def _collect(node: NodeState, address: str | None, timeout_s: float, task: FirstFragment) -> None:
    """Fills in the time to the first fragment, or why there is none."""
    began = time.perf_counter()
    try:
        with RolloutCoordinator(
            task.env_id,
            task.make_policy,
            num_workers=1,
            num_envs_per_worker=task.num_envs,
            rollout_length=task.rollout_length,
            env_options=task.env_options,
            ray_address=address,
            placement=Placement(num_cpus=0, node_labels={_NODE_LABEL: node.node_id}),
            faults=FaultPolicy(max_restarts=0, start_timeout_s=timeout_s),
        ) as coordinator:
            coordinator.publish_weights(task.weights)
            coordinator.get_fragments(timeout_s=timeout_s)
            node.first_fragment_s = time.perf_counter() - began
    except (RolloutsError, TimeoutError) as error:
        node.fragment_error = _cause(error)


def _cause(error: Exception) -> str:
    """Returns the line of an error's text that says most: the last of a worker's traceback."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
