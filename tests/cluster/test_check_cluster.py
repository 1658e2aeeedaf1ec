# SPDX-License-Identifier: Apache-2.0
"""`rollouts check-cluster` on several Ray nodes of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from processes import HANG_S, environ_with_path

from rollouts.cli.main import main
from rollouts.workers.node_checks import NodeReport, NodeState

pytest.importorskip("ray")

from rollouts.workers.on_ray import cluster_check

pytestmark = pytest.mark.system

# a head without CPUs, a node as it should be, and one that says it has more than the machine
NODES = """
from small_cluster import add_node, start_cluster

cluster = start_cluster()
try:
    add_node(cluster, num_cpus=1)
    add_node(cluster, num_cpus=10_000)
    print(cluster.address, flush=True)
    input()
finally:
    cluster.shutdown()
"""


def rollouts(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rollouts", "check-cluster", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=HANG_S, env=environ_with_path()
    )


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", NODES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environ_with_path(),
    )
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    assert line, "the nodes did not start"
    yield line
    process.communicate("\n", timeout=HANG_S)


def test_every_node_is_tried_and_the_wrong_one_named(address: str) -> None:
    result = rollouts("--address", address, "--num-nodes", "3", "--timeout-s", "400", "--json")
    assert result.returncode == 1, result.stderr
    found = json.loads(result.stdout)
    assert not found["fit"]
    by_cpus = {node["offers"].get("CPU", 0): node for node in found["nodes"]}
    assert set(by_cpus) == {0, 1, 10_000}
    assert by_cpus[0]["troubles"] == [] and by_cpus[0]["first_fragment_s"] is None
    assert by_cpus[1]["troubles"] == [] and by_cpus[1]["first_fragment_s"] > 0
    (trouble,) = by_cpus[10_000]["troubles"]
    assert trouble.startswith("Ray offers 10000 CPUs, and its processes may use")


def test_missing_nodes_are_trouble(address: str) -> None:
    asked = ("--address", address, "--num-nodes", "4", "--timeout-s", "20")
    result = rollouts(*asked, "--no-fragment")
    assert result.returncode == 1, result.stderr
    assert "2 of 4 nodes are fit for a run" in result.stdout
    assert "--num-nodes is 4, and 3 joined within 20 s" in result.stdout


def test_no_cluster_and_wrong_ids_are_refused_by_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # a process of its own: tests before this one may have connected theirs to a Ray
    result = rollouts("--address", "127.0.0.1:1", "--timeout-s", "0.1")
    assert result.returncode == 2
    assert "no Ray answers at ray_address '127.0.0.1:1'" in result.stderr
    assert main(["check-cluster", "--env-id", "CartPole-v9"]) == 2
    assert "CartPole-v9" in capsys.readouterr().err
    assert main(["check-cluster", "--env-id", "simple_spread_v3"]) == 2
    assert "has several agents" in capsys.readouterr().err


def test_json_is_all_that_stdout_gets_whatever_ray_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = NodeReport(
        python="3.11.2", affinity_cpus=1, usable_cpus=1, shm_bytes=None, gpus=0, versions={}
    )

    def noisy(*_: object) -> tuple[list[NodeState], NodeReport]:
        print("(raylet) Raylet is terminated.")
        return [], here

    monkeypatch.setattr(cluster_check, "try_nodes", noisy)
    assert main(["check-cluster", "--json", "--no-fragment"]) == 1
    out, errors = capsys.readouterr()
    assert json.loads(out)["nodes"] == []
    assert "(raylet) Raylet is terminated." in errors
