# SPDX-License-Identifier: Apache-2.0
"""`examples/cluster`: what Ray and Grafana are given, and a training on several nodes."""

from __future__ import annotations

import copy
import itertools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollouts.metrics import METRICS
from rollouts.metrics.status import FILE_NAME, read_status

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLUSTER = EXAMPLES / "cluster"
CONFIGS = sorted(path.name for path in CLUSTER.glob("*.yaml"))
LIMIT_S = 600

# -- the cluster files -----------------------------------------------------------------


def load(name: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    config: dict[str, Any] = yaml.safe_load((CLUSTER / name).read_text())
    return config


def prepare(config: dict[str, Any]) -> dict[str, Any]:
    """The file as `ray up` reads it before it talks to any machine; raises where it is wrong."""
    util = pytest.importorskip("ray.autoscaler._private.util")
    prepared: dict[str, Any] = util.prepare_config(copy.deepcopy(config))
    util.validate_config(prepared)
    return prepared


def test_there_is_a_file_for_own_machines_and_one_for_a_cloud() -> None:
    assert {load(name)["provider"]["type"] for name in CONFIGS} == {"local", "aws"}


@pytest.mark.parametrize("name", CONFIGS)
def test_ray_accepts_the_file(name: str) -> None:
    prepared = prepare(load(name))
    assert sum(node["max_workers"] for node in prepared["available_node_types"].values()) > 0


@pytest.mark.parametrize("name", CONFIGS)
def test_ray_would_refuse_a_misspelt_key(name: str) -> None:
    from jsonschema import ValidationError

    with pytest.raises(ValidationError, match="setup_comands"):
        prepare(load(name) | {"setup_comands": []})


@pytest.mark.parametrize("name", CONFIGS)
def test_every_node_starts_with_the_token(name: str) -> None:
    config = load(name)
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    for role in ("head", "worker"):
        starts = [c for c in config[f"{role}_start_ray_commands"] if "ray start" in c]
        assert starts and all(c.startswith("RAY_AUTH_MODE=token ") for c in starts)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_dashboard_stays_on_loopback(name: str) -> None:
    (start,) = [c for c in load(name)["head_start_ray_commands"] if "ray start" in c]
    assert "--dashboard-host=127.0.0.1" in start


@pytest.mark.parametrize("name", CONFIGS)
def test_ray_knows_the_options_of_its_start(name: str) -> None:
    scripts = pytest.importorskip("ray.scripts.scripts")
    known = {option for parameter in scripts.start.params for option in parameter.opts}
    config = load(name)
    for command in config["head_start_ray_commands"] + config["worker_start_ray_commands"]:
        used = set(re.findall(r"--[a-z-]+", command))
        assert used <= known, used - known


# -- the dashboard ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads((CLUSTER / "grafana_dashboard.json").read_text())
    return board


def expressions(board: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target, target["expr"]


def test_panels_show_exactly_the_metrics_of_the_table(dashboard: dict[str, Any]) -> None:
    text = "\n".join(expr for _, expr in expressions(dashboard))
    assert set(re.findall(r"[a-z_]*rollouts_[a-z_]+", text)) == {f"ray_{m.name}" for m in METRICS}


def test_expressions_are_promql_and_use_counters_and_labels_as_such(
    dashboard: dict[str, Any],
) -> None:
    promql = pytest.importorskip("promql_parser")
    metrics = {f"ray_{m.name}": m for m in METRICS}
    for target, expr in expressions(dashboard):
        promql.parse(expr.replace("$__rate_interval", "5m"))
        (name,) = re.findall(r"ray_rollouts_[a-z_]+", expr)
        assert f'{name}{{run=~"$run"}}' in expr
        # the number of restarts is looked at as such
        is_rate = "rate(" in expr
        assert is_rate == (metrics[name].kind == "counter") or name.endswith("restarts_total")
        legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert legend <= {"run", metrics[name].label}


def test_every_query_goes_to_the_chosen_datasource(dashboard: dict[str, Any]) -> None:
    variables = {v["name"]: v for v in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["run"]["datasource"] == chosen
    for panel in dashboard["panels"]:
        assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel["targets"])


def test_panels_have_ids_of_their_own_and_do_not_overlap(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


def test_the_schema_is_one_that_grafana_still_reads_as_it_is(dashboard: dict[str, Any]) -> None:
    # 39 is that of Grafana 10.4 and 11; newer ones migrate it when they load it
    assert dashboard["schemaVersion"] >= 39
    assert {panel["type"] for panel in dashboard["panels"]} <= {"timeseries", "stat"}


# -- a training on several nodes -------------------------------------------------------

# a head without CPUs and two nodes of one CPU each: two workers must sit on different nodes
NODES = """
import sys
sys.path.insert(0, sys.argv[1])
from small_cluster import add_node, start_cluster

cluster = start_cluster()
try:
    nodes = [add_node(cluster, num_cpus=1) for _ in range(2)]
    print(cluster.address, *(node.node_id for node in nodes), flush=True)
    sys.stdin.read()  # until the test closes it
finally:
    cluster.shutdown()
"""


def environment(token: str | None) -> dict[str, str]:
    """This process's, with token authentication on."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    return clean | {"RAY_AUTH_MODE": "token"} | ({"RAY_AUTH_TOKEN": token} if token else {})


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, str]]:
    """A head and two nodes on this machine: their address and token."""
    pytest.importorskip("ray")
    token = secrets.token_hex(32)
    process = subprocess.Popen(
        [sys.executable, "-c", NODES, str(Path(__file__).parents[1] / "helpers")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(token),
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        line = process.stdout.readline().split()
        assert len(line) == 3, "the test cluster did not start"
        yield line[0], token
    finally:
        process.stdin.close()
        process.wait(LIMIT_S)


def start_ppo(address: str, token: str, run_dir: Path) -> subprocess.Popen[str]:
    """Starts a training that has no end of its own; its output goes to files beside `run_dir`."""
    # a target that is out of reach
    sizes = ("--num-envs", "16", "--total-steps", str(10**9), "--target-return", "1000")
    command = [sys.executable, str(EXAMPLES / "ppo.py"), "--ray-address", address, *sizes]
    with run_dir.with_suffix(".out").open("w") as out, run_dir.with_suffix(".err").open("w") as err:
        return subprocess.Popen(
            [*command, "--run-dir", str(run_dir)],
            env=environment(token),
            stdout=out,
            stderr=err,
            text=True,
        )


def steps_by_worker(run_dir: Path) -> dict[str, float]:
    if not (run_dir / FILE_NAME).exists():
        return {}
    return read_status(run_dir / FILE_NAME).labels("rollouts_worker_env_steps_total")


def test_ppo_trains_on_two_nodes_with_a_token(cluster: tuple[str, str], tmp_path: Path) -> None:
    address, token = cluster
    run_dir = tmp_path / "run"
    deadline = time.monotonic() + LIMIT_S
    with start_ppo(address, token, run_dir) as process:
        try:
            # one worker may start long after the other
            while sum(steps > 0 for steps in steps_by_worker(run_dir).values()) < 2:
                assert process.poll() is None, run_dir.with_suffix(".err").read_text()
                assert time.monotonic() < deadline, steps_by_worker(run_dir)
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT_S) == 130, run_dir.with_suffix(".err").read_text()
        finally:
            process.kill()
    summary = run_dir.with_suffix(".out").read_text()
    assert "0 worker restarts" in summary
    status = read_status(run_dir / FILE_NAME)
    assert status.finished
    assert set(steps_by_worker(run_dir)) == {"0", "1"}
    delivered = status.value("rollouts_env_steps_delivered_total")
    assert delivered is not None and f" {int(delivered):,} env-steps in " in summary


def test_a_wrong_token_is_refused(cluster: tuple[str, str], tmp_path: Path) -> None:
    address, _ = cluster
    run_dir = tmp_path / "run"
    with start_ppo(address, secrets.token_hex(32), run_dir) as process:
        try:
            assert process.wait(LIMIT_S) == 1
        finally:
            process.kill()
    errors = run_dir.with_suffix(".err").read_text()
    assert "AuthenticationError" in errors and "Failed to connect" in errors
    assert not (run_dir / FILE_NAME).exists()
