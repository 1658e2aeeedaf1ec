# SPDX-License-Identifier: Apache-2.0
"""Clusters of several nodes on this machine that start on few and busy cores."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import psutil
from processes import HANG_S, environ_with_path
from warm_workers import use_warm_workers

from rollouts.support.ray_private import without_monitors

T = TypeVar("T")

# for tests that lose nodes: Ray would take 30 s to notice. A killed node refuses connections at
# once, so the short period finds it; one that is only slow, on a busy machine, has long to answer
QUICK_HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 20000,
    "health_check_failure_threshold": 4,
}
# with ray[default] installed a head would start a dashboard of a dozen processes
NODE_ARGS = {"object_store_memory": 100 << 20, "include_dashboard": False}
IN_A_PROCESS = """
import sys
from small_cluster import add_node, start_cluster

cluster = start_cluster()
add_node(cluster, num_cpus=int(sys.argv[1]))
print(cluster.address, flush=True)
input()
cluster.shutdown()
"""
NUM_ATTEMPTS = 10  # 30 s each: a hang limit of five minutes


def start_cluster(system_config: Mapping[str, Any] | None = None) -> Any:
    """Returns a `ray.cluster_utils.Cluster` that is only a head node without CPUs."""
    from ray.cluster_utils import Cluster

    args = {"num_cpus": 0, "_system_config": dict(system_config or {}), **NODE_ARGS}
    return started(lambda: Cluster(initialize_head=True, head_node_args=args))


def add_node(cluster: Any, **args: Any) -> Any:
    """Returns a further node; see `Cluster.add_node`."""
    return started(lambda: cluster.add_node(**NODE_ARGS, **args))


@contextlib.contextmanager
def cluster_of_its_own(*, num_cpus: int) -> Iterator[str]:
    """The address of a cluster in a process of its own, for programs to join.

    Each would need seconds to start its own, and on a busy machine more than Ray waits.
    """
    command = [sys.executable, "-c", IN_A_PROCESS, str(num_cpus)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environ_with_path(),
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address, "the process ended before its cluster was up"
    yield address
    process.communicate("\n", timeout=HANG_S)
    assert process.returncode == 0


def started(start: Callable[[], T]) -> T:
    """Calls `start` again where a node was too slow for Ray, after ending what it had started.

    Ray gives a node 30 s to appear, which cannot be changed, and leaves a late one running.
    """
    use_warm_workers()
    for attempt in range(NUM_ATTEMPTS):
        before = set(psutil.Process().children())
        try:
            # nobody reads these nodes' logs, and they do not scale
            with without_monitors():
                return start()
        except Exception as error:
            is_last = attempt == NUM_ATTEMPTS - 1
            if is_last or "timed out during startup" not in str(error):
                raise
            # its raylet or GCS; what these started ends with them
            for process in set(psutil.Process().children()) - before:
                with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since
                    process.kill()
    raise AssertionError("unreachable")
