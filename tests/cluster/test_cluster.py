# SPDX-License-Identifier: Apache-2.0
"""Several nodes on one machine, with token authentication: placement, and loss of a node."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_cluster import NUM_ATTEMPTS, started
from test_own_ray import run_script

pytest.importorskip("ray")

pytestmark = pytest.mark.system

CLUSTER = """
import os
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
os.environ["ROLLOUTS_WARM_PYTHON"] = ""  # a worker's parent is to be its node's raylet
import json, subprocess, sys, threading
import psutil
from ray._private import ray_constants
from counter_world import CounterCollector, StepChecker, assert_balanced
from counter_world import make_policy, wait_until, weights
from rollouts import RolloutCoordinator
from rollouts.workers import CollectOptions, Placement
from small_cluster import QUICK_HEALTH_CHECKS, add_node, start_cluster

cluster = start_cluster(QUICK_HEALTH_CHECKS if IS_LOSING else None)
nodes = {
    "a": add_node(cluster, num_cpus=4, num_gpus=1, labels={"zone": "a"}),
    "b": add_node(cluster, num_cpus=4, labels={"zone": "b"}),
}

def raylet(node):
    return node.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process

def start(**kwargs):
    settings = {"num_workers": 2, "num_envs_per_worker": 3, "rollout_length": 8} | kwargs
    collect = CollectOptions(make_collector=CounterCollector)
    return RolloutCoordinator("Counter", make_policy, collect=collect, ray_address=cluster.address,
                              **settings)

def where(coordinator):
    names = {raylet(node).pid: name for name, node in nodes.items()}
    pids = [w["pid"] for w in coordinator.stats()["workers"]]
    return sorted(names[psutil.Process(pid).ppid()] for pid in pids)

def are_running(coordinator):
    return all(w["state"] == "running" for w in coordinator.stats()["workers"])
"""

PLACEMENT = (
    "IS_LOSING = False"
    + CLUSTER
    + """
result = {}
try:
    for name, placement in {
        # first: while Ray still frees what former workers had, it counts their nodes as fuller
        "spread over more": Placement(strategy="SPREAD", max_workers=4),
        "pack": Placement(strategy="PACK"),
        "spread": Placement(strategy="SPREAD"),
        "label": Placement(node_labels={"zone": "b"}),
        "labelled pack": Placement(strategy="PACK", node_labels={"zone": "b"}),
        "gpu": Placement(num_gpus=0.5),
    }.items():
        with start(placement=placement) as coordinator:
            coordinator.publish_weights(weights())
            wait_until(lambda: are_running(coordinator))
            if placement.max_workers:
                coordinator.scale_to(4)
                wait_until(lambda: are_running(coordinator))
            result[name] = where(coordinator)
            coordinator.get(2, 300)
    wrong = {**os.environ, "RAY_AUTH_TOKEN": "f" * 64}
    code = f"import ray; ray.init({cluster.address!r})"
    stranger = subprocess.run([sys.executable, "-c", code], env=wrong, capture_output=True)
    result["stranger"] = stranger.returncode
finally:
    cluster.shutdown()
print(json.dumps(result))
"""
)

LOSS = (
    "IS_LOSING = True"
    + CLUSTER
    + """
checker = StepChecker()
try:
    with start(placement=Placement(strategy="SPREAD"), env_options={"pad": 4096}) as coordinator:
        # or the first worker to appear makes all four fragments
        wait_until(lambda: are_running(coordinator))
        coordinator.publish_weights(weights())
        wait_until(lambda: coordinator.stats()["queue_depth"] == 4)
        assert where(coordinator) == ["a", "b"]
        by_worker = [w["fragments"] for w in coordinator.stats()["workers"]]
        lost_id = [psutil.Process(w["pid"]).ppid() for w in coordinator.stats()["workers"]].index(
            raylet(nodes["b"]).pid)
        raylet(nodes["b"]).kill()
        cluster.remove_node(nodes.pop("b"), allow_graceful=False)
        # not always the next life: Ray may start that one on the lost node before it knows
        is_back = False
        while not is_back:
            for fragment in coordinator.get_fragments(1, 300):
                checker.add(fragment)
                is_back |= fragment.worker_id == lost_id and fragment.incarnation > 0
        stats = coordinator.stats()
        assert_balanced(stats)
        assert stats["env_steps"]["delivered"] == checker.num_steps
        assert where(coordinator) == ["a", "a"]
finally:
    cluster.shutdown()
print(json.dumps({"lost": stats["fragments"]["discarded"]["lost"], "expected": by_worker[lost_id],
                  "failures": stats["failures"], "restarts": stats["restarts"]}))
"""
)


def test_a_node_that_was_too_slow_is_ended_and_started_again() -> None:
    slow: list[subprocess.Popen[bytes]] = []

    def start() -> str:
        if slow:
            return "node"
        slow.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        raise Exception("The current node timed out during startup. This could happen because")

    assert started(start) == "node"
    assert slow[0].wait(300) == -signal.SIGKILL


def test_a_node_that_cannot_start_is_an_error() -> None:
    calls: list[str] = []

    def start(message: str) -> None:
        calls.append(message)
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="no such option"):
        started(lambda: start("no such option"))
    assert len(calls) == 1
    with pytest.raises(RuntimeError, match="timed out during startup"):
        started(lambda: start("timed out during startup"))
    assert len(calls) == 1 + NUM_ATTEMPTS


def test_workers_go_where_they_are_told(tmp_path: Path) -> None:
    result = json.loads(run_script(PLACEMENT, tmp_path).splitlines()[-1])
    assert result.pop("pack") in (["a", "a"], ["b", "b"])
    assert result.pop("stranger") != 0
    assert result == {
        "spread": ["a", "b"],
        "label": ["b", "b"],
        "labelled pack": ["b", "b"],
        "gpu": ["a", "a"],
        "spread over more": ["a", "a", "b", "b"],
    }


def test_fragments_lost_with_a_node_are_counted_and_the_rest_delivered(tmp_path: Path) -> None:
    result = json.loads(run_script(LOSS, tmp_path).splitlines()[-1])
    assert result["lost"] == result["expected"] > 0
    assert result["failures"].keys() == {"worker_died"}
    assert result["restarts"] == result["failures"]["worker_died"]
