# SPDX-License-Identifier: Apache-2.0
"""Several coordinators under one face: with real workers, of which some die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from counter_world import StepChecker, assert_balanced, assert_exactly_once, wait_until, weights

from rollouts import FragmentInbox, RolloutCoordinator
from rollouts.bench.random_policy import make_random_policy
from rollouts.errors import ClosedError, SpecError, WorkerError
from rollouts.run_log.log_writer import parts_in
from rollouts.workers import FaultPolicy, Fragment, Placement, QueueLimits
from rollouts.workers.share import INCARNATIONS_PER_LIFE

pytest.importorskip("ray")

pytestmark = pytest.mark.system

Start = Callable[..., RolloutCoordinator]
PLACE = Placement(num_cpus=0.25)


def take_until_all_work(coordinator: RolloutCoordinator) -> list[Fragment]:
    """Takes fragments until there is one of each worker."""
    taken = coordinator.get_fragments(1, timeout_s=300)
    while {one.worker_id for one in taken} != set(range(coordinator.num_workers)):
        taken += coordinator.get_fragments(1, timeout_s=300)
    return taken


def test_workers_of_several_coordinators_are_one_stream_with_one_account(counters: Start) -> None:
    coordinator = counters(
        num_workers=3,
        num_coordinators=2,
        placement=PLACE,
        queue=QueueLimits(max_queued_fragments=6),
    )
    coordinator.publish_weights(weights())
    fragments = take_until_all_work(coordinator)
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["fragments"]["delivered"] == len(fragments)
    assert not stats["fragments"]["interrupted"]
    assert [row["worker_id"] for row in stats["workers"]] == list(range(3))
    assert {row["state"] for row in stats["workers"]} == {"running"}
    pids = {row["pid"] for row in (*stats["workers"], *stats["coordinators"])}
    assert len(pids) == 5 and os.getpid() not in pids
    assert [row["coordinator"] for row in stats["coordinators"]] == [0, 1]
    assert sum(row["fragments"] for row in stats["coordinators"]) >= len(fragments)
    # no more are on their way than of one coordinator
    assert stats["outstanding_limit"] == 6
    with pytest.raises(SpecError, match="num_workers is 1, expected 2 to 3: each coordinator"):
        coordinator.scale_to(1)
    coordinator.drain(timeout_s=300)
    fragments += coordinator.get_fragments(coordinator.stats()["fragments"]["queued"])
    # as of one coordinator: env_ids and seeds follow the worker's number alone
    assert_exactly_once(fragments)
    assert_balanced(coordinator.stats())
    with pytest.raises(ClosedError, match="drained"):
        coordinator.get(1)


def test_a_coordinator_that_is_killed_comes_again_with_other_workers(counters: Start) -> None:
    coordinator = counters(num_workers=3, num_coordinators=2, placement=PLACE)
    coordinator.publish_weights(weights())
    checker = StepChecker()
    checker.add(*take_until_all_work(coordinator))
    stats = coordinator.stats()
    victim = stats["coordinators"][1]
    # worker 1 is its own
    pids = [row["pid"] for row in stats["workers"] if row["worker_id"] % 2]
    os.kill(victim["pid"], signal.SIGKILL)

    def has_come_again() -> bool:
        checker.add(*coordinator.get_fragments(2, timeout_s=300))
        rows = coordinator.stats()["workers"][1::2]
        return all(row["incarnation"] == INCARNATIONS_PER_LIFE for row in rows) and all(
            row["fragments"] > 2 for row in rows
        )

    wait_until(has_come_again, coordinator.stats)
    # Ray ends the actors of a process that died
    wait_until(lambda: not any(map(psutil.pid_exists, pids)))
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["failures"] == {"coordinator_died": 1}
    assert [row["life"] for row in stats["coordinators"]] == [0, 1]
    assert [row["incarnation"] for row in stats["workers"][::2]] == [0, 0]
    assert stats["env_steps"]["delivered"] == checker.num_steps
    # what came, and cannot be fetched any more, is counted
    assert checker.num_missing == 0
    assert set(stats["fragments"]["discarded"]) <= {"lost", "coordinator_died"}


def test_shares_are_scaled_while_a_learner_takes(counters: Start) -> None:
    coordinator = counters(
        num_workers=2,
        num_coordinators=2,
        placement=Placement(num_cpus=0.25, max_workers=4),
    )
    coordinator.publish_weights(weights())
    checker = StepChecker()
    for num_workers in (4, 2, 3):
        coordinator.scale_to(num_workers)

        def is_settled(num_workers: int = num_workers) -> bool:
            checker.add(*coordinator.get_fragments(2, timeout_s=300))
            stats = coordinator.stats()
            states = [row["state"] for row in stats["workers"]]
            assert_balanced(stats)
            return states.count("running") == num_workers and "draining" not in states

        wait_until(is_settled, coordinator.stats)
    stats = coordinator.stats()
    assert checker.num_missing == 0
    assert stats["fragments"]["interrupted"] == stats["failures"] == {}
    # worker 2 came back as another life of the first coordinator's, and 3 did not
    assert [row["worker_id"] for row in stats["workers"]] == [0, 1, 2, 3]
    assert [row["incarnation"] for row in stats["workers"]] == [0, 0, 1, 0]
    assert [row["life"] for row in stats["coordinators"]] == [0, 0]
    # a coordinator that dies comes again with its present share
    os.kill(stats["coordinators"][0]["pid"], signal.SIGKILL)

    def has_come_again() -> bool:
        checker.add(*coordinator.get_fragments(2, timeout_s=300))
        rows = coordinator.stats()["workers"][::2]
        return all(row["incarnation"] == INCARNATIONS_PER_LIFE for row in rows) and all(
            row["state"] == "running" for row in rows
        )

    wait_until(has_come_again, coordinator.stats)
    assert_balanced(coordinator.stats())


def test_orders_to_scale_may_overtake_the_start_and_each_other(
    counters: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs calls of a coordinator in an order in which Ray may run those of an async actor."""
    import ray

    from rollouts.workers.on_ray.shares import ShareHandle

    begin = ShareHandle.start

    def start_last(handle: Any) -> Any:
        # the second order, and then the first
        for number, num_workers in ((2, 2), (1, 1)):
            ray.get(handle._actor.scale_to.remote(number, num_workers))
        return begin(handle)

    monkeypatch.setattr(ShareHandle, "start", start_last)
    place = Placement(num_cpus=0.25, max_workers=4)
    coordinator = counters(num_workers=2, num_coordinators=2, placement=place)

    def all_run() -> bool:
        states = [row["state"] for row in coordinator.stats()["workers"]]
        return states == ["running"] * 4

    wait_until(all_run, coordinator.stats)


def test_a_worker_that_is_killed_is_replaced_by_its_own_coordinator(counters: Start) -> None:
    coordinator = counters(num_workers=2, num_coordinators=2, placement=PLACE)
    coordinator.publish_weights(weights())
    checker = StepChecker()
    checker.add(*take_until_all_work(coordinator))
    victim = coordinator.stats()["workers"][1]
    os.kill(victim["pid"], signal.SIGKILL)

    def is_replaced() -> bool:
        checker.add(*coordinator.get_fragments(2, timeout_s=300))
        row = coordinator.stats()["workers"][1]
        # the victim's last fragments may come later than its death
        return bool(row["incarnation"] > 0 and row["fragments"] > victim["fragments"] + 4)

    wait_until(is_replaced, coordinator.stats)
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["workers"][1]["incarnation"] == 1
    assert stats["failures"] == {"worker_died": 1} and stats["restarts"] == 1
    assert stats["fragments"]["interrupted"]["worker_died"] >= 1
    assert [row["life"] for row in stats["coordinators"]] == [0, 0]
    assert stats["env_steps"]["delivered"] == checker.num_steps


def test_each_batch_has_the_newest_weights_where_workers_are_synchronous(counters: Start) -> None:
    coordinator = counters(
        num_workers=2, num_coordinators=2, placement=PLACE, sync_mode="synchronous"
    )
    for _ in range(4):
        version = coordinator.publish_weights(weights())
        fragments = coordinator.get_fragments(4, timeout_s=300)
        assert {one.min_policy_version for one in fragments} == {version}
    stats = coordinator.stats()
    assert stats["policy_lag"] == {"min": 0, "mean": 0.0, "max": 0}
    assert stats["fragments"]["in_flight"] == stats["fragments"]["queued"] == 0


def test_workers_that_always_fail_end_with_their_own_errors(counters: Start) -> None:
    coordinator = counters(
        num_workers=2,
        num_coordinators=2,
        placement=PLACE,
        faults=FaultPolicy(max_restarts=0),
        env_options={"fail": (range(10), 1)},
    )
    coordinator.publish_weights(weights())
    with pytest.raises(WorkerError, match="no coordinator is left") as caught:
        for _ in range(10):
            coordinator.get_fragments(1, timeout_s=300)
    assert "no worker is left" in str(caught.value)
    assert "the counter broke" in str(caught.value)
    stats = coordinator.stats()
    assert_balanced(stats)
    # the fragment before the error came of each worker
    assert stats["fragments"]["delivered"] == 2
    assert stats["failures"] == {"worker_error": 2, "no_worker_left": 2}
    assert stats["restarts"] == 0


def test_fragments_go_on_to_a_learners_actor_and_weights_come_from_it(counters: Start) -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Learner(FragmentInbox):
        def __init__(self, of_actor: Any) -> None:
            super().__init__()
            self._of_actor = of_actor

        def weights(self) -> Any:
            return self._of_actor

        def offsets(self) -> list[int]:
            batch = self.take().batch
            return sorted({*(batch.action - batch.obs[..., 4] % 7).ravel().tolist()})

    coordinator = counters(num_workers=2, num_coordinators=2, placement=PLACE)
    learner = Learner.remote(weights(offset=3))
    assert coordinator.publish_from(learner) == 1
    info = coordinator.hand_over(learner, timeout_s=300)
    # the weights came to the worker, and its arrays to the learner, past this process
    assert ray.get(learner.offsets.remote(), timeout=300) == [3]
    assert info.num_steps == 24
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["fragments"]["delivered"] == 1


def test_workers_of_each_life_have_a_log_of_their_own(tmp_path: Path, ray_session: Any) -> None:
    with RolloutCoordinator(
        "CartPole-v1",
        make_random_policy,
        num_workers=2,
        num_coordinators=2,
        num_envs_per_worker=2,
        rollout_length=4,
        placement=PLACE,
        record=tmp_path,
    ) as coordinator:
        coordinator.publish_weights({"w": np.zeros(1)})
        fragments = take_until_all_work(coordinator)
        os.kill(coordinator.stats()["coordinators"][1]["pid"], signal.SIGKILL)
        while fragments[-1].incarnation != INCARNATIONS_PER_LIFE:
            fragments += coordinator.get_fragments(1, timeout_s=300)
    lives = {(one.worker_id, one.incarnation) for one in fragments}
    assert lives == {(0, 0), (1, 0), (1, INCARNATIONS_PER_LIFE)}
    assert lives <= {(worker, life) for worker, life, _ in parts_in(tmp_path)}


def test_small_fragments_share_calls_of_workers_too(counters: Start) -> None:
    coordinator = counters(
        num_workers=2,
        num_coordinators=2,
        placement=PLACE,
        queue=QueueLimits(max_queued_fragments=64),
    )
    coordinator.publish_weights(weights())
    checker = StepChecker()
    for _ in range(12):
        checker.add(*coordinator.get_fragments(32, timeout_s=300))
        coordinator.publish_weights(weights())
    stats = coordinator.stats()
    assert_balanced(stats)
    assert checker.num_missing == 0
    assert stats["calls"] < stats["fragments"]["produced"]
