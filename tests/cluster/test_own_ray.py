# SPDX-License-Identifier: Apache-2.0
"""Starting Ray, joining a cluster, and doing without, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processes import environ_with_path

pytestmark = pytest.mark.system

COMMON = """
import sys
from counter_world import CounterCollector, make_policy, weights
from rollouts import RolloutCoordinator
from rollouts.workers import CollectOptions

def run(num_workers, **kwargs):
    with RolloutCoordinator("Counter", make_policy, num_workers=num_workers, num_envs_per_worker=2,
                            rollout_length=4,
                            collect=CollectOptions(make_collector=CounterCollector), **kwargs) as c:
        c.publish_weights(weights())
        fragments = [f for _ in range(4) for f in c.get_fragments(1, 300)]
        inspect(c)
"""

NO_RAY = """
def inspect(c):
    assert not {"ray", "torch"} & sys.modules.keys()
run(0)
"""

OWN_RAY = """
import contextlib, os, pathlib
import ray  # before rollouts has a say in its settings

def family():
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = path.parent.name, path.read_text().rpartition(")")[2]
        except OSError:
            continue  # ended meanwhile
        parents[int(pid)] = int(rest.split()[1])
    pids = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in pids} - pids:
        pids |= more
    return pids

def listening(pids):
    inodes = set()
    for pid in pids:
        names = []
        with contextlib.suppress(OSError):  # ended meanwhile
            names = os.listdir(f"/proc/{pid}/fd")
        for name in names:
            with contextlib.suppress(OSError):  # closed meanwhile
                inodes.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    addresses = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in inodes:
                addresses.add(local.partition(":")[0])
    return addresses

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}

def inspect(c):
    assert ray.cluster_resources()["CPU"] == 2
    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]
    pids = family()
    addresses = listening(pids)
    assert addresses and addresses <= LOOPBACK, addresses
    commands = []
    for pid in pids:
        with contextlib.suppress(OSError):  # ended meanwhile
            commands.append(pathlib.Path(f"/proc/{pid}/cmdline").read_text())
    assert any("gcs_server" in command for command in commands)
    for unneeded in ("monitor.py", "dashboard.py"):
        assert not [command for command in commands if unneeded in command]
    # one may still be starting
    started = [one["pid"] for one in c.stats()["workers"] if one["pid"] is not None]
    assert started
    for pid in started:
        assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)
run(2)
assert not ray.is_initialized()
"""

CLUSTER = """
from small_cluster import add_node, start_cluster
cluster = start_cluster()
add_node(cluster, num_cpus=2)
def inspect(c):
    import ray
    assert len(ray.nodes()) == 2
    assert ray.cluster_resources()["CPU"] == 2
try:
    run(2, ray_address=cluster.address)
    import ray
    assert not ray.is_initialized()
finally:
    cluster.shutdown()
"""

SHUT_DOWN = """
def inspect(c):
    import ray
    from rollouts.errors import WorkerError
    ray.shutdown()
    try:
        while True:
            c.get_fragments(1, 300)
    except WorkerError as error:
        print(error)
    assert not ray.is_initialized()
run(1)
"""

SHUT_DOWN_MEANWHILE = """
import threading
import ray
from acted_worker import worker_config
from rollouts.workers.on_ray.bundles import Bundles
from rollouts.workers.on_ray.ray_session import RaySession
from rollouts.workers import Placement

bundles = Bundles.of_workers(Placement(), num_workers=2, num_threads=1)
launch = RaySession("local", bundles).launcher(make_policy)
asked, shut_down = threading.Event(), threading.Event()
is_initialized, seen = ray.is_initialized, []

def ask():
    ray.is_initialized = wait_where_the_fleet_thread_has_looked
    seen.append(launch(worker_config()))

def wait_where_the_fleet_thread_has_looked():
    ray.is_initialized = is_initialized
    asked.set()
    # the user's shutdown, which began after this look, has to wait for the call
    seen.append(shut_down.wait(3.0))
    return True

asker = threading.Thread(target=ask)
asker.start()
assert asked.wait(300)
ray.shutdown()
shut_down.set()
asker.join(300)
assert seen[0] is False and len(seen) == 2, seen
print("both are done")
"""

DROPPED = """
def train():
    coordinator = RolloutCoordinator(
        "Counter",
        make_policy,
        num_workers=1,
        num_envs_per_worker=2,
        rollout_length=4,
        collect=CollectOptions(make_collector=CounterCollector),
    )
    coordinator.publish_weights(weights())
    coordinator.get(1, 300)

train()
print("trained")
# a second one needs the CPUs that the first one had
train()
print("twice")
"""

INTERRUPTED_AND_IGNORED_SIGTERM = """
import os, pathlib, signal, threading

signal.signal(signal.SIGTERM, signal.SIG_IGN)

# a shell's background job inherits a SIGINT that is ignored
signal.signal(signal.SIGINT, signal.default_int_handler)

waits = threading.Event()

def interrupt_when_stuck():
    waits.wait()
    while not pathlib.Path("stuck").exists():
        threading.Event().wait(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt_when_stuck).start()
def inspect(c):
    signal.raise_signal(signal.SIGTERM)
    print("goes on")
    waits.set()
    c.get_fragments(1)
try:
    run(1, env_options={"hang": (0, 0, 4, os.path.abspath("stuck"))})
except KeyboardInterrupt:
    print("interrupted")
"""

SHADOWED_AND_OWN_SIGTERM = """
import os, pathlib, signal

pathlib.Path("rollouts").mkdir()
pathlib.Path("rollouts/__init__.py").write_text("raise ImportError('the wrong rollouts')")
heard = []
handler = lambda *_: heard.append("heard")
signal.signal(signal.SIGTERM, handler)
def inspect(c):
    # Ray's would raise SystemExit here
    signal.raise_signal(signal.SIGTERM)
    assert c.get_fragments(1, 300)
run(1)
assert signal.getsignal(signal.SIGTERM) is handler
print(*heard)
"""

LATE_PROCESSES = """
import psutil, ray
from ray._private import services
from rollouts.errors import WorkerError
from rollouts.workers.on_ray import shared_ray

get_node, late = services.get_node, []

def late_on_a_busy_machine(*args):
    if len(late) < num_late:
        late.append(len(raylets()))
        raise Exception("The current node timed out during startup.")
    return get_node(*args)

def raylets():
    return [p for p in psutil.Process().children() if p.is_running() and p.name() == "raylet"]

def inspect(c):
    # those that were late are gone
    print(late, len(raylets()))

services.get_node = late_on_a_busy_machine
num_late = 1
# the machine may itself be too busy for some starts, which are tried again, too
most_starts, shared_ray._MOST_STARTS = shared_ray._MOST_STARTS, 10
run(1)
late.clear()
assert most_starts == 3
num_late, shared_ray._MOST_STARTS = 2, 2
try:
    run(1)
except WorkerError as error:
    assert "busy" in str(error) and late == [1, 1], (error, late)
    print(len(raylets()), ray.is_initialized())
"""

NO_SIGTERM = """
import signal
import ray

def inspect(c):
    signal.raise_signal(signal.SIGTERM)
try:
    run(1)
except SystemExit:
    assert not ray.is_initialized()
    print("closed")
"""


def run_script(script: str, cwd: Path) -> str:
    """Runs COMMON and the script in `cwd`, with this process's path and Ray's own niceness."""
    environ = environ_with_path()
    environ.pop("RAY_worker_niceness", None)
    (cwd / "scripts").mkdir()
    (cwd / "scripts" / "script.py").write_text(COMMON + script)
    result = subprocess.run(
        [sys.executable, "scripts/script.py"],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_no_workers_need_no_ray(tmp_path: Path) -> None:
    run_script(NO_RAY, tmp_path)


def test_starts_ray_with_the_cpus_it_needs_on_loopback_and_no_monitors(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    run_script(OWN_RAY, tmp_path)


def test_ray_is_started_again_where_its_processes_are_late(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert run_script(LATE_PROCESSES, tmp_path).splitlines() == ["[1] 1", "0 False"]


def test_joins_a_running_cluster(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    run_script(CLUSTER, tmp_path)


def test_shutdown_of_ray_is_an_error_and_starts_no_other(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert "Ray was shut down" in run_script(SHUT_DOWN, tmp_path)


def test_shutdown_of_ray_waits_for_a_worker_that_is_being_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert "both are done" in run_script(SHUT_DOWN_MEANWHILE, tmp_path)


def test_ctrl_c_ends_a_waiting_learner_and_an_ignored_sigterm_nobody(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    said = run_script(INTERRUPTED_AND_IGNORED_SIGTERM, tmp_path)
    assert said.splitlines() == ["goes on", "interrupted"]


def test_a_coordinator_that_was_dropped_gives_its_cpus_back(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert run_script(DROPPED, tmp_path).split() == ["trained", "twice"]


def test_sigterm_without_a_handler_closes(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    assert run_script(NO_SIGTERM, tmp_path).strip() == "closed"


def test_a_sigterm_handler_stays_and_a_source_tree_in_the_working_directory_shadows_nothing(
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray")
    assert run_script(SHADOWED_AND_OWN_SIGTERM, tmp_path).strip() == "heard"
