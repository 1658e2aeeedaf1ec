# SPDX-License-Identifier: Apache-2.0
"""Kills workers and nodes of a small cluster while a learner checks every step that it gets.

    python tests/helpers/chaos.py --seconds 180 --seed 1
    python tests/helpers/chaos.py --seconds 600 --num-nodes 3 --num-coordinators 2 --num-learners 2

4 workers on the nodes of one machine, with token authentication. Every few seconds a worker's
process or a node's raylet is killed with SIGKILL; a lost node is replaced. With --num-coordinators
above 1 coordinators are killed, too, and with --num-learners the actors of a LearnerGroup, which
train on all that is delivered. The driver stalls now and then.
Prints a JSON object of what happened; exits with an error if a step was lost from a delivered
stretch, came twice, or was stitched to another life's, if the accounts do not balance to the step,
if the learners' sums are not those of the steps that they were given, if the driver's memory grows
by more than Ray keeps for each actor that was started, or if delivered fragments stay in the object
stores.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

# before ray is imported, in this process and all that it starts
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
sys.path.insert(0, str(Path(__file__).parent))

from counter_world import CounterCollector, StepChecker, assert_balanced, make_policy, weights
from counting_learner import CountingLearner, mean_step
from small_cluster import QUICK_HEALTH_CHECKS, add_node, start_cluster

from rollouts import RolloutBatch, RolloutCoordinator
from rollouts.errors import ClosedError
from rollouts.workers import CollectOptions, FaultPolicy
from rollouts.workers.on_ray.learner_group import LearnerGroup

NUM_WORKERS, NUM_ENVS, LENGTH = 4, 3, 8
# 8 * 3 * 8192 * 4 bytes = 786 kB a fragment: beyond what Ray sends inline, so nodes can lose it
PAD = 8192
MEMORY_GROWTH_BYTES = 64 << 20
# room for a few fragments; some seconds of collecting would fill it many times
STORE_BYTES = 8 << 20
HANG_LIMIT_S = 300.0
# actors that do nothing, to see what Ray keeps of each; only for a run of minutes
NUM_BARE_ACTORS = 20
MINUTES_S = 120.0

Life = tuple[int, int]  # worker_id, incarnation


class World:
    """The cluster: the driver's node without workers, and nodes that can be lost."""

    def __init__(self, num_nodes: int) -> None:
        self.cluster = start_cluster(QUICK_HEALTH_CHECKS)
        self.nodes = [self.add_node() for _ in range(num_nodes)]

    def add_node(self) -> Any:
        # room for all workers on any one node
        return add_node(self.cluster, wait=False, num_cpus=NUM_WORKERS)

    def kill_node(self, index: int) -> None:
        """Kills the node's raylet, as a power cut would, and starts another node."""
        from ray._private import ray_constants

        node = self.nodes.pop(index)
        (raylet,) = node.all_processes[ray_constants.PROCESS_TYPE_RAYLET]
        raylet.process.kill()
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes.append(self.add_node())


class Learner(threading.Thread):
    """Takes batches until told to stop, stalls now and then, and checks all it gets."""

    def __init__(
        self, coordinator: RolloutCoordinator, group: LearnerGroup | None, seed: int
    ) -> None:
        super().__init__(name="learner", daemon=True)
        self.checker = StepChecker()
        self.has_ended = threading.Event()
        self.group = group
        # the gradients that are in the learners' weights
        self.gradients: list[np.float64] = []
        self._num_lost = 0
        self._coordinator = coordinator
        self._random = random.Random(seed)
        self._error: BaseException | None = None

    def run(self) -> None:
        dice, coordinator = self._random, self._coordinator
        try:
            while not self.has_ended.is_set():
                self.train(self.take(dice.randint(1, 4)))
                assert_balanced(coordinator.stats())
                if dice.random() < 0.3:
                    self._publish()
                if dice.random() < 0.02:
                    time.sleep(dice.uniform(0.2, 1.0))
        except BaseException as error:
            self._error = error
            self.has_ended.set()

    def take(self, num_fragments: int) -> RolloutBatch:
        """Takes fragments and checks them; returns them as one batch."""
        fragments = self._coordinator.get_fragments(num_fragments, timeout_s=300.0)
        self.checker.add(*fragments)
        return RolloutBatch.concatenate([fragment.batch for fragment in fragments])

    def train(self, batch: RolloutBatch) -> None:
        """Makes the learners' actors take a step, and writes down the gradient that it has."""
        if self.group is None:
            return
        self.group.update(batch)
        self._forget_lost()
        self.gradients.append(mean_step(batch))
        if self._random.random() < 0.1:
            self.group.save()
            self._forget_lost()

    def _publish(self) -> None:
        if self.group is None:
            self._coordinator.publish_weights(weights())
        else:
            self.group.publish(self._coordinator)
            self._forget_lost()

    def _forget_lost(self) -> None:
        """Drops the gradients since the checkpoint where all learners were killed at once."""
        assert self.group is not None
        lost = self.group.stats()["updates_lost"]
        del self.gradients[len(self.gradients) - (lost - self._num_lost) :]
        self._num_lost = lost

    def stop(self) -> None:
        self.has_ended.set()
        self.join()
        if self._error is not None:
            raise self._error


def kill_now_and_then(
    world: World, coordinator: RolloutCoordinator, learner: Learner, seconds: float, seed: int
) -> tuple[Counter[str], int]:
    """Kills something every 2 to 5 s; returns what, and by how many bytes this process grew."""
    dice, killed = random.Random(seed), set[Life]()
    kills = Counter(worker=0, node=0)
    if "coordinators" in coordinator.stats():
        kills["coordinator"] = 0
    if learner.group is not None:
        kills["learner"] = 0
    start, settled = time.monotonic(), 0
    # on a slow machine the time may be over after the first node
    while (passed := time.monotonic() - start) < seconds or not settled or not all(kills.values()):
        if learner.has_ended.wait(dice.uniform(2.0, 5.0)):
            break
        kind = next_kind(kills, dice)
        if kind == "coordinator":
            kills[kind] += kill_coordinator(coordinator, dice)
        elif kind == "learner":
            kills[kind] += kill_learner(learner.group, dice)
        elif kind == "node":
            world.kill_node(dice.randrange(len(world.nodes)))
            kills[kind] += 1
        elif (life := kill_worker(coordinator, dice, killed)) is not None:
            killed.add(life)
            kills[kind] += 1
        if not settled and kills["node"] and passed > seconds / 3:
            settled = rss()
    wait_until_replaced(coordinator, learner, killed)
    return kills, rss() - settled


def next_kind(kills: Counter[str], dice: random.Random) -> str:
    """Returns what to kill: first one of each kind, so that the short form has them too."""
    for kind, count in kills.items():
        if not count:
            return kind
    return "worker" if dice.random() < 0.5 else dice.choice(list(kills))


def wait_until_replaced(
    coordinator: RolloutCoordinator, learner: Learner, killed: set[Life]
) -> None:
    """Waits until each killed life was found dead, as the learner takes on, and is followed."""
    deadline = time.monotonic() + HANG_LIMIT_S
    while not learner.has_ended.wait(0.1):
        workers = coordinator.stats()["workers"]
        if not killed & {(w["worker_id"], w["incarnation"]) for w in workers}:
            return
        assert time.monotonic() < deadline, f"{killed} killed, and there are still {workers}"


def rss() -> int:
    """Returns the bytes of this process's own memory that are in RAM.

    Fragments live in the object store, whose pages are shared: those are not counted here.
    """
    gc.collect()
    info = psutil.Process().memory_info()
    return int(info.rss - info.shared)


def store_bytes() -> int | None:
    """Returns the bytes in use of the nodes' object stores; None if no node answered."""
    import ray
    from ray._private.internal_api import node_stats

    used = []
    for node in ray.nodes():
        if node["Alive"]:
            # a node that was killed a moment ago still counts as alive, and does not answer
            with contextlib.suppress(Exception):
                address, port = node["NodeManagerAddress"], node["NodeManagerPort"]
                reply = node_stats(address, port, include_memory_info=False)
                used.append(int(reply.store_stats.object_store_bytes_used))
    return sum(used) if used else None


def wait_for_an_empty_store() -> None:
    """Waits until Ray has freed what was delivered; all that may stay are weights and crumbs."""
    deadline = time.monotonic() + HANG_LIMIT_S
    while (used := store_bytes()) is None or used > STORE_BYTES:
        gc.collect()
        assert time.monotonic() < deadline, f"{used} bytes stay in the object stores"
        time.sleep(0.1)


def kill_worker(
    coordinator: RolloutCoordinator, dice: random.Random, killed: set[Life]
) -> Life | None:
    """Kills a worker that was not killed before; returns which, None if there is none."""
    workers = coordinator.stats()["workers"]
    pids = {(w["worker_id"], w["incarnation"]): w["pid"] for w in workers if w["pid"]}
    lives = [life for life in pids if life not in killed]
    if not lives:
        return None
    life = dice.choice(lives)
    try:
        os.kill(pids[life], signal.SIGKILL)
    except ProcessLookupError:
        return None  # its node was killed a moment ago
    return life


def kill_coordinator(coordinator: RolloutCoordinator, dice: random.Random) -> int:
    """Kills a coordinator's process; returns how many were there to be killed: 1 or 0."""
    rows = coordinator.stats()["coordinators"]
    pids = [row["pid"] for row in rows if row["state"] == "running" and row["pid"]]
    if not pids:
        return 0
    try:
        os.kill(dice.choice(pids), signal.SIGKILL)
    except ProcessLookupError:
        return 0  # its node was killed a moment ago
    return 1


def kill_learner(group: Any, dice: random.Random) -> int:
    """Kills a learner's process; returns how many were there to be killed: 1 or 0."""
    import ray

    try:
        pid = ray.get(dice.choice(group.learners).pid.remote(), timeout=HANG_LIMIT_S)
        os.kill(pid, signal.SIGKILL)
    except (ray.exceptions.RayActorError, ProcessLookupError):
        return 0  # its node was killed a moment ago
    return 1


@contextlib.contextmanager
def learner_group(num_learners: int) -> Iterator[LearnerGroup | None]:
    """Starts learners that are spread over the nodes; None if there are to be none."""
    import ray

    if not num_learners:
        yield None
        return
    actor = ray.remote(num_cpus=0, scheduling_strategy="SPREAD")(CountingLearner)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        group = LearnerGroup(lambda _: actor.remote(), num_learners, path, save_every=10**9)
        try:
            yield group
        finally:
            group.close()


def bytes_of_an_actor(count: int) -> float:
    """Returns the bytes that Ray keeps in this process for an actor that was killed."""
    import ray

    @ray.remote(num_cpus=0)
    class Bare:
        def pid(self) -> int:
            return os.getpid()

    before = rss()
    for _ in range(count):
        actor = Bare.remote()
        os.kill(ray.get(actor.pid.remote()), signal.SIGKILL)
        with contextlib.suppress(ray.exceptions.RayActorError):
            ray.get(actor.pid.remote())
    return (rss() - before) / count


def run(
    seconds: float,
    seed: int,
    *,
    num_nodes: int = 2,
    num_coordinators: int = 1,
    num_learners: int = 0,
) -> dict[str, Any]:
    """Returns a summary; raises AssertionError if anything is wrong."""
    world = World(num_nodes)
    try:
        with (
            RolloutCoordinator(
                "Counter",
                make_policy,
                num_workers=NUM_WORKERS,
                num_coordinators=num_coordinators,
                num_envs_per_worker=NUM_ENVS,
                rollout_length=LENGTH,
                env_options={"pad": PAD, "sleep_s": 0.001},
                ray_address=world.cluster.address,
                faults=FaultPolicy(max_restarts=10**6, start_timeout_s=300.0),
                collect=CollectOptions(make_collector=CounterCollector),
            ) as coordinator,
            learner_group(num_learners) as group,
        ):
            coordinator.publish_weights(weights())
            learner = Learner(coordinator, group, seed)
            last = learner.take(1)
            learner.start()
            kills, growth = kill_now_and_then(world, coordinator, learner, seconds, seed)
            learner.stop()
            # every life must still come to its end, with nothing left over
            coordinator.drain(timeout_s=300.0)
            while coordinator.stats()["queue_depth"]:
                # the last one may turn out to be lost, and then there is nothing to deliver
                with contextlib.suppress(ClosedError):
                    learner.train(learner.take(1))
            stats = coordinator.stats()
            # a batch for the end, so that each learner that was killed is replaced
            learner.train(last)
            learned = check_learners(learner) if group is not None else {}
            wait_for_an_empty_store()
            per_actor = bytes_of_an_actor(NUM_BARE_ACTORS) if seconds >= MINUTES_S else 0.0
    finally:
        import ray

        ray.shutdown()
        world.cluster.shutdown()
    check(stats, learner.checker, kills)
    failures = stats["failures"]
    # workers of several coordinators are actors of those
    own = "coordinator_died" if num_coordinators > 1 else "worker_died"
    num_actors = failures.get(own, 0) + learned.get("restarts", 0)
    rest = growth - num_actors * per_actor
    assert rest < MEMORY_GROWTH_BYTES, f"the driver grew by {growth}, {rest} without Ray's actors"
    return {
        "seconds": seconds,
        "kills": dict(kills),
        "restarts": stats["restarts"],
        "failures": failures,
        "env_steps": stats["env_steps"],
        "fragments": stats["fragments"],
        "learners": learned,
        "driver_growth_MiB": round(growth / 2**20, 1),
        "actors_of_the_driver": num_actors,
        "growth_per_bare_actor_KiB": round(per_actor / 2**10, 1),
        "policy_lag_max": max(stats["policy_lag_histogram"]),
    }


def check_learners(learner: Learner) -> dict[str, Any]:
    """Compares all learners with the steps that they were given; returns the group's account."""
    import ray

    group = learner.group
    assert group is not None
    stats, steps = group.stats(), group.stats()["env_steps"]
    assert steps["applied"] + steps["lost"] == learner.checker.num_steps
    assert steps["in_flight"] == 0
    assert stats["updates"] == len(learner.gradients)
    found = ray.get([each.account.remote() for each in group.learners])
    assert all(each == found[0] for each in found), found
    assert found[0]["num_updates"] == stats["updates"]
    # means of parts are added up in another order than the rows of the whole
    np.testing.assert_allclose(found[0]["total"], sum(learner.gradients), rtol=1e-9)
    return stats


def check(stats: dict[str, Any], checker: StepChecker, kills: Counter[str]) -> None:
    """Compares the coordinator's account with what really arrived."""
    assert_balanced(stats)
    fragments = stats["fragments"]
    ended = {"coordinator_died"} if "coordinators" in stats else set[str]()
    assert stats["env_steps"]["delivered"] == checker.num_steps
    assert fragments["in_flight"] == fragments["queued"] == 0
    # the only fragments that were complete and did not arrive died with their node or coordinator
    assert set(fragments["discarded"]) <= {"lost"} | ended
    assert checker.num_missing <= fragments["discarded"].get("lost", 0)
    # a worker may see the store of a killed node break before it dies itself
    reasons = {"worker_died"} | ended | ({"worker_error"} if kills["node"] else set())
    assert set(fragments["interrupted"]) <= reasons, stats
    assert stats["failures"].get("worker_error", 0) <= NUM_WORKERS * kills["node"], stats


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=180.0, help="how long to kill")
    parser.add_argument("--seed", type=int, default=0, help="of what is killed when")
    parser.add_argument("--num-coordinators", type=int, default=1)
    parser.add_argument("--num-nodes", type=int, default=2, help="besides the driver's")
    parser.add_argument("--num-learners", type=int, default=0)
    args = parser.parse_args()
    summary = run(
        args.seconds,
        args.seed,
        num_nodes=args.num_nodes,
        num_coordinators=args.num_coordinators,
        num_learners=args.num_learners,
    )
    print(json.dumps(summary, default=lambda x: np.asarray(x).tolist()))


if __name__ == "__main__":
    main()
