# SPDX-License-Identifier: Apache-2.0
"""Metrics of a real coordinator with real Ray workers, to the status file and to Prometheus."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from counter_world import wait_until, weights

from rollouts import RolloutCoordinator
from rollouts.cli.main import main
from rollouts.errors import ProtocolError
from rollouts.metrics import METRICS, MetricsReporter, Sample, StatusFileSink
from rollouts.metrics.status import FILE_NAME, read_status
from rollouts.workers import QueueLimits

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0
STEPS = 8 * 3  # steps of one fragment

Counters = Callable[..., RolloutCoordinator]


def metrics_of(sample: Sample | None) -> dict[tuple[str, str | None], float]:
    assert sample is not None
    return {(r.metric.name, r.label): r.value for r in sample.readings}


def test_metrics_of_two_workers_are_those_of_the_coordinator(counters: Counters) -> None:
    coordinator = counters()
    reporter = MetricsReporter(coordinator.stats, [], interval_s=None)
    coordinator.publish_weights(weights())
    fragments = coordinator.get_fragments(4, TIMEOUT_S)
    while {f.worker_id for f in fragments} != {0, 1}:
        fragments += coordinator.get_fragments(1, TIMEOUT_S)
    found = metrics_of(reporter.report())
    assert found["rollouts_env_steps_delivered_total", None] == len(fragments) * STEPS
    assert found["rollouts_policy_version", None] == 1
    per_worker = [found["rollouts_worker_env_steps_total", worker] for worker in ("0", "1")]
    assert min(per_worker) >= STEPS
    assert {found["rollouts_worker_up", worker] for worker in ("0", "1")} == {1}
    # steps neither delivered nor discarded are still queued
    queued = found["rollouts_env_steps_queued", None]
    assert found["rollouts_env_steps_total", None] == len(fragments) * STEPS + queued


def test_a_run_has_every_metric_of_the_table(counters: Counters) -> None:
    # one worker fails once, and fragments of old weights are dropped, so that every label occurs
    coordinator = counters(
        queue=QueueLimits(max_policy_lag=0), env_options={"fail": ((0,), 1), "fail_worker": 1}
    )
    coordinator.publish_weights(weights())
    coordinator.get_fragments(1, TIMEOUT_S)

    def has_seen_all() -> bool:
        stats = coordinator.stats()
        if stats["queue_depth"]:
            coordinator.publish_weights(weights())
        has_discarded = stats["env_steps"]["discarded"].get("stale", 0) > 0
        return has_discarded and stats["failures"] == {"worker_error": 1}

    wait_until(has_seen_all)
    reporter = MetricsReporter(coordinator.stats, [], interval_s=None)
    sample = reporter.report()
    assert sample is not None
    names = {m.name for m in METRICS if not m.name.startswith("rollouts_replay_")}
    assert {r.metric.name for r in sample.readings} == names


def test_both_sides_waits_are_counted(counters: Counters) -> None:
    coordinator = counters(num_workers=1, queue=QueueLimits(credits_per_worker=1))
    wait_until(lambda: [w["state"] for w in coordinator.stats()["workers"]] == ["running"])
    # nothing is published, so the worker waits
    before = coordinator.stats()
    wait_until(lambda: coordinator.stats()["workers_wait_s"] > before["workers_wait_s"])
    assert before["learner_wait_s"] == 0
    with pytest.raises(ProtocolError):
        coordinator.get(1)
    assert coordinator.stats()["learner_wait_s"] == 0
    coordinator.publish_weights(weights())
    coordinator.get(1, TIMEOUT_S)
    waited = coordinator.stats()["learner_wait_s"]
    assert waited > 0
    assert coordinator.stats()["learner_wait_s"] == waited
    coordinator.close()
    stopped = coordinator.stats()["workers_wait_s"]
    assert coordinator.stats()["workers_wait_s"] == stopped


def test_a_restart_is_seen(counters: Counters, tmp_path: Path) -> None:
    coordinator = counters()
    sink = StatusFileSink(tmp_path)
    reporter = MetricsReporter(coordinator.stats, [sink], interval_s=None)
    coordinator.publish_weights(weights())
    coordinator.get_fragments(1, TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while None in (pids := [w["pid"] for w in coordinator.stats()["workers"]]):
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    os.kill(pids[1], signal.SIGKILL)
    while coordinator.stats()["restarts"] == 0:
        coordinator.get_fragments(1, TIMEOUT_S)
        assert time.monotonic() < deadline
    reporter.report()
    status = read_status(tmp_path / FILE_NAME)
    assert status.value("rollouts_restarts_total") == 1
    assert status.value("rollouts_worker_incarnation", "1") == 1
    assert "died" in status.workers[1]["last_error"].lower()


def test_top_shows_the_workers(
    counters: Counters,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "200")
    coordinator = counters()
    coordinator.publish_weights(weights())
    coordinator.get_fragments(4, TIMEOUT_S)
    with MetricsReporter(coordinator.stats, [StatusFileSink(tmp_path)], interval_s=0.05):
        coordinator.get_fragments(4, TIMEOUT_S)
    assert main(["top", "--once", "--run-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "finished" in text
    assert len(re.findall(r"^ +[01] +0 .* (?:running|starting) ", text, re.MULTILINE)) == 2
    delivered = read_status(tmp_path / FILE_NAME).value("rollouts_env_steps_delivered_total")
    assert delivered == 8 * STEPS and re.search(rf"delivered +{8 * STEPS} ", text)


def test_a_closed_coordinator_does_not_break_the_reporter(counters: Counters) -> None:
    coordinator = counters()
    reporter = MetricsReporter(coordinator.stats, [], interval_s=None)
    coordinator.close()
    assert metrics_of(reporter.report())["rollouts_queue_depth", None] == 0
    reporter.close()


PROMETHEUS = """
import http.client, threading, time, urllib.request
import psutil
import ray
from rollouts.workers.on_ray.bundles import Bundles
from rollouts.workers.on_ray.ray_metrics import RayMetricsSink
from rollouts.workers.on_ray.ray_session import RaySession
from rollouts.metrics import MetricsReporter

session = RaySession(None, Bundles(num_cpus=1, count=1))
stats = {
    "env_steps": {"produced": 1000, "discarded": {"lost": 8}},
    "workers": [{"worker_id": n, "state": "running", "incarnation": 2} for n in (3, 4)],
}
reporter = MetricsReporter(lambda: stats, [RayMetricsSink(run="first")], interval_s=None)
reporter.report()
stats["env_steps"]["produced"] = 1500
del stats["workers"][1]
reporter.report()
deadline = time.monotonic() + 480
while True:
    assert time.monotonic() < deadline, "Ray never showed the metrics"
    (node,) = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    try:
        page = urllib.request.urlopen(url, timeout=300).read().decode()
    except (OSError, http.client.HTTPException):  # not yet, or not whole
        page = ""
    # Ray may send the two last changes one after the other
    shown = {(line.split("{")[0], line.split()[-1]) for line in page.splitlines() if line}
    if {("ray_rollouts_env_steps_total", "1500.0"), ("ray_rollouts_worker_up", "0.0")} <= shown:
        break
    threading.Event().wait(0.2)
me = psutil.Process()
pids = {process.pid for process in (me, *me.children(recursive=True))}
sockets = [s for s in psutil.net_connections("tcp") if s.pid in pids]
print(*{s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN})
print(page)
session.close()
"""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The addresses that Ray listens on, and the lines of its endpoint with a sink's metrics."""
    pytest.importorskip("prometheus_client", reason="ray[default] is not installed")
    script = tmp_path_factory.mktemp("prometheus") / "script.py"
    script.write_text(PROMETHEUS)
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def labels(line: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', line))


def series(lines: list[str], name: str, part: str = "") -> tuple[dict[str, str], float]:
    (line,) = [line for line in lines if line.startswith(name + "{") and part in line]
    return labels(line), float(line.split()[-1])


def test_prometheus_sees_counters_with_their_sum(prometheus: list[str]) -> None:
    assert "# TYPE ray_rollouts_env_steps_total counter" in prometheus
    tags, value = series(prometheus, "ray_rollouts_env_steps_total")
    assert value == 1500 and tags["run"] == "first"


def test_prometheus_sees_labels(prometheus: list[str]) -> None:
    tags, value = series(prometheus, "ray_rollouts_env_steps_discarded_total")
    assert value == 8 and tags["reason"] == "lost"
    assert "# TYPE ray_rollouts_worker_incarnation gauge" in prometheus
    tags, value = series(prometheus, "ray_rollouts_worker_incarnation", 'worker_id="3"')
    assert value == 2 and tags["run"] == "first"


def test_a_worker_that_was_removed_is_no_longer_up(prometheus: list[str]) -> None:
    up = "ray_rollouts_worker_up"
    assert [series(prometheus, up, f'worker_id="{n}"')[1] for n in (3, 4)] == [1, 0]


def test_our_own_ray_with_its_endpoint_listens_on_loopback_only(prometheus: list[str]) -> None:
    addresses = set(prometheus[0].split())
    assert addresses and addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def test_a_sink_without_ray_costs_only_the_metrics() -> None:
    code = """
import sys
from rollouts.workers.on_ray.ray_metrics import RayMetricsSink
from rollouts.metrics import MetricsReporter
sys.modules["ray.util"] = None
with MetricsReporter(lambda: {"queue_depth": 1}, [RayMetricsSink("x")], interval_s=None) as r:
    assert r.report() is not None
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("RayMetricsSink failed") == 1
