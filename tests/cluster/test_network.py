# SPDX-License-Identifier: Apache-2.0
"""Nodes with networks of their own, joined by slow links: see network.py.

One node's link is slow, one has the clock of two minutes ago, one has another release of this
library, and one is cut off for a while and loses its power later.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from network import Network, Node
from processes import HANG_S, environ_with_path
from small_cluster import QUICK_HEALTH_CHECKS

import rollouts

pytest.importorskip("ray")

pytestmark = pytest.mark.system

PORT = 6379
CLOCK_OFFSET_S = -120
# clock_gettime and its kin with an offset, for all processes of a node
CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec* now) {
  const long failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += OFFSET;
  return (int)failed;
}

int gettimeofday(struct timeval* now, void* zone) {
  struct timespec precise;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* now) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now) *now = precise.tv_sec;
  return precise.tv_sec;
}
"""

DRIVER = """
import json, sys
from counter_world import CounterCollector, StepChecker, assert_balanced
from counter_world import make_policy, wait_until, weights
from rollouts import RolloutCoordinator
from rollouts.errors import RolloutsError
from rollouts.workers import CollectOptions, FaultPolicy, Placement, QueueLimits

def start(**kwargs):
    settings = {"num_envs_per_worker": 3, "rollout_length": 8} | kwargs
    return RolloutCoordinator("Counter", make_policy, ray_address=sys.argv[1],
                              collect=CollectOptions(make_collector=CounterCollector), **settings)

def ask(question):
    print(question, flush=True)
    return input()
"""

SLOW = (
    DRIVER
    + """
checker = StepChecker()
# 3 * 8 * 4096 * 4 bytes = 393 kB a fragment: 0.8 s over the slow link, 0.03 s over the others
with start(num_workers=3, placement=Placement(strategy="SPREAD"),
           env_options={"pad": 4096, "sleep_s": 0.001}) as coordinator:
    coordinator.publish_weights(weights())
    by_worker, since_all_ran = [0, 0, 0], [0, 0, 0]
    # none would be so far ahead if workers waited for each other
    while sorted(since_all_ran)[1] < sorted(since_all_ran)[0] + 12 and max(since_all_ran) < 200:
        for fragment in coordinator.get_fragments(1, 300):
            checker.add(fragment)
            since_all_ran[fragment.worker_id] += min(by_worker) > 0
            by_worker[fragment.worker_id] += 1
            coordinator.publish_weights(weights())
    stats = coordinator.stats()
assert_balanced(stats)
assert stats["env_steps"]["delivered"] == checker.num_steps
print(json.dumps({"since_all_ran": sorted(since_all_ran), "failures": stats["failures"],
                  "missing": checker.num_missing}))
"""
)

CUT = (
    DRIVER
    + """
checker = StepChecker()

def take(until):
    while not until():
        checker.add(*coordinator.get_fragments(1, 300))
        coordinator.publish_weights(weights())

with start(num_workers=2, placement=Placement(node_labels={"zone": "b"}),
           faults=FaultPolicy(max_restarts=10**6, start_timeout_s=300.0),
           env_options={"pad": 4096, "sleep_s": 0.001}) as coordinator:
    lives = lambda: {w["worker_id"]: w["incarnation"] for w in coordinator.stats()["workers"]
                     if w["state"] == "running"}
    coordinator.publish_weights(weights())
    take(lambda: len(lives()) == 2)
    before = lives()
    ask("cut")
    # workers of both nodes are one each; that of the lost node comes back on the other
    take(lambda: len(lives()) == 2 and lives() != before)
    ask("heal")
    goal = checker.num_fragments + 50
    take(lambda: checker.num_fragments >= goal)
    stats = coordinator.stats()
assert_balanced(stats)
assert stats["env_steps"]["delivered"] == checker.num_steps
assert checker.num_missing <= stats["fragments"]["discarded"].get("lost", 0)
print(json.dumps({"failures": stats["failures"], "restarts": stats["restarts"]}))
"""
)

# workers of one node fill the queue, and then the driver's node is cut off
AHEAD = (
    DRIVER
    + """
num_coordinators, pad, num_queued, takes_here = json.loads(sys.argv[2])
with start(num_workers=num_coordinators, num_coordinators=num_coordinators,
           placement=Placement(num_cpus=0.25, node_labels={"zone": "a"}),
           queue=QueueLimits(max_queued_fragments=num_queued),
           env_options={"pad": pad}) as coordinator:
    coordinator.publish_weights(weights())
    take = coordinator.get_fragments if takes_here else coordinator.get_pending
    # calls after this one are made for a learner that takes arrays here, or elsewhere
    take(1, 300)
    take(num_queued, 300)
    wait_until(lambda: coordinator.stats()["queue_depth"] == num_queued)
    ask("cut")
    handles = coordinator.get_pending(num_queued, 300)
    num_here = 0
    for handle in handles:
        try:
            handle.fetch(0.1 if takes_here else 0.01)
            num_here += 1
        except TimeoutError:
            pass
    ask("heal")
print(json.dumps([num_here, handles[0].info.nbytes]))
"""
)

OTHER_RELEASE = (
    DRIVER
    + """
try:
    with start(num_workers=1, placement=Placement(node_labels={"zone": "other"})) as coordinator:
        coordinator.publish_weights(weights())
        coordinator.get_fragments(1, 300)
except RolloutsError as error:
    print(json.dumps(str(error)))
"""
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Ray on the nodes of a network; the driver runs on the first node.

    Attributes:
      network: The network.
      environ: Environment variables of a driver.
      folder: Temporary folder of Ray.
    """

    network: Network
    environ: dict[str, str]
    folder: Path

    @property
    def address(self) -> str:
        """Address of the cluster's head."""
        return f"{self.network.nodes[0].address}:{PORT}"

    def start_node(self, node: Node, *options: str, **variables: str) -> None:
        """Starts Ray on a node, as an administrator does."""
        if node is self.network.nodes[0]:
            where = ["--head", f"--port={PORT}", "--include-dashboard=false"]
            where.append(f"--temp-dir={self.folder}")
        else:
            where = [f"--address={self.address}"]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", *where, *options]
        ray += [f"--node-ip-address={node.address}", f"--object-store-memory={100 << 20}"]
        node.start_ray(ray, self.environ | variables)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Starts a Python program on the head's node."""
        pipe, head = subprocess.PIPE, self.network.nodes[0]
        command = (sys.executable, *command)
        return head.popen(command, self.environ, stdin=pipe, stdout=pipe, stderr=pipe)

    def result_of(self, script: str, *arguments: str, **answers: Callable[[], None]) -> Any:
        """Runs a driver to its end, and does what its lines ask for.

        Returns:
          The value of the JSON in its last line.
        """
        driver = self.start("-c", script, self.address, *arguments)
        assert driver.stdin is not None and driver.stdout is not None
        line = ""
        for line in driver.stdout:
            if (answer := answers.get(line.strip())) is not None:
                answer()
                driver.stdin.write("\n")
                driver.stdin.flush()
        _, errors = driver.communicate(timeout=HANG_S)
        assert driver.returncode == 0, line + errors
        return json.loads(line)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head, a node of zone a, and two of zone b: one has a wrong clock, the other a slow link."""
    if (reason := Network.why_not()) is not None:
        pytest.skip(reason)
    # a socket's path must be short
    folder = Path(tempfile.mkdtemp(prefix="net", dir="/tmp"))
    environ = {k: v for k, v in environ_with_path().items() if not k.startswith("RAY_")}
    environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    clock = {"LD_PRELOAD": str(clock_library(tmp_path_factory.mktemp("clock")))}
    # silence, and not only a refused connection, shall be noticed in some seconds
    checks = QUICK_HEALTH_CHECKS | {"health_check_timeout_ms": 5000}
    try:
        with Network() as network:
            found = Cluster(network, environ, folder)
            head = network.add(megabits_per_s=1000, delay_s=0.002)
            found.start_node(head, "--num-cpus=0", f"--system-config={json.dumps(checks)}")
            near = network.add(megabits_per_s=100, delay_s=0.005)
            found.start_node(near, "--num-cpus=1", "--labels=zone=a")
            wrong = network.add(megabits_per_s=100, delay_s=0.005)
            found.start_node(wrong, "--num-cpus=2", "--labels=zone=b", **clock)
            slow = network.add(megabits_per_s=4, delay_s=0.02)
            found.start_node(slow, "--num-cpus=1", "--labels=zone=b")
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clock_library(folder: Path) -> Path:
    """Compiles CLOCK."""
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(CLOCK)
    command = ["cc", "-shared", "-fPIC", "-O1", f"-DOFFSET={CLOCK_OFFSET_S}", "-o", library, source]
    subprocess.run(command, check=True)
    return library


def test_a_slow_link_holds_up_no_other_worker(cluster: Cluster) -> None:
    result = cluster.result_of(SLOW)
    slow, *others = result.pop("since_all_ran")
    # they have links of 25 times the bandwidth; a worker may start much later than the others
    assert min(others) >= slow + 12
    assert result == {"failures": {}, "missing": 0}


def cutting(node: Node) -> dict[str, Callable[[], None]]:
    """Answers drivers that ask to have a node's link cut, and healed."""

    def cut() -> None:
        node.link.is_cut = True

    def heal() -> None:
        node.link.is_cut = False

    return {"cut": cut, "heal": heal}


# 24 * 4096 * 4 bytes are large, and 24 * 512 * 4 are small, of which coordinators send 4 in a
# parcel. Ray spreads three coordinators over four nodes
@pytest.mark.parametrize(
    ("num_coordinators", "pad", "num_queued"),
    [
        pytest.param(1, 4096, 4, id="one driver"),
        # these come as those of one driver do
        pytest.param(2, 4096, 8, id="large arrays of coordinators", marks=pytest.mark.slow),
        pytest.param(3, 512, 48, id="parcels"),
    ],
)
def test_queued_arrays_are_here_before_a_learner_asks_for_them(
    cluster: Cluster, num_coordinators: int, pad: int, num_queued: int
) -> None:
    given = json.dumps([num_coordinators, pad, num_queued, True])
    answers = cutting(cluster.network.nodes[0])
    num_here, nbytes = cluster.result_of(AHEAD, given, **answers)
    assert nbytes > 96 * pad and num_here == num_queued


def test_arrays_that_a_learner_takes_elsewhere_do_not_come_here(cluster: Cluster) -> None:
    given = json.dumps([2, 4096, 8, False])
    num_here, _ = cluster.result_of(AHEAD, given, **cutting(cluster.network.nodes[0]))
    assert num_here == 0


def test_a_node_that_is_cut_off_is_lost_and_its_return_brings_nothing_twice(
    cluster: Cluster,
) -> None:
    result = cluster.result_of(CUT, **cutting(cluster.network.nodes[-1]))
    assert result["failures"].keys() == {"worker_died"}
    assert result["restarts"] == result["failures"]["worker_died"]


def test_a_wrong_clock_and_another_release_are_found_on_their_nodes(
    cluster: Cluster, tmp_path: Path
) -> None:
    node = cluster.network.add(megabits_per_s=100, delay_s=0.005)
    # the same path leads to other files there, as where somebody has updated one machine
    package = Path(rollouts.__file__).parent
    shutil.copytree(package, tmp_path / "other", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "other" / "batch.py").open("a") as file:
        file.write("# another commit\n")
    assert node.popen(["mount", "--bind", tmp_path / "other", package]).wait(HANG_S) == 0
    cluster.start_node(node, "--num-cpus=1", "--labels=zone=other")
    command = ("-m", "rollouts", "check-cluster", "--address", cluster.address, "--num-nodes", "4")
    check = cluster.start(*command, "--json", "--timeout-s", "400")
    said, errors = check.communicate(timeout=HANG_S)
    assert check.returncode == 1, errors
    found = {node["address"]: node for node in json.loads(said)["nodes"]}
    _, near, wrong, *_ = (one.address for one in cluster.network.nodes)
    assert found[near]["troubles"] == [] and found[near]["first_fragment_s"] > 0
    (clock,) = found[wrong]["troubles"]
    assert clock.startswith("its clock is 1") and "s behind that of this process" in clock
    (release,) = found[node.address]["troubles"]
    assert str(package) in release and "install the same release" in release
    # nothing runs there, and the coordinator says why
    refused = cluster.result_of(OTHER_RELEASE)
    assert "no worker is left" in refused and "install the same release" in refused
