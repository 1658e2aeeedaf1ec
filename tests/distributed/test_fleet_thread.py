# SPDX-License-Identifier: Apache-2.0
"""FleetThread with workers played by the test: every order of events on purpose, no Ray."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from acted_worker import ActedWorker, worker_config
from counter_world import assert_balanced, assert_exactly_once, weights
from fleet_world import fleet_rules

from rollouts.errors import ClosedError, WorkerError
from rollouts.learner.fragment import Fragment
from rollouts.workers.fleet_thread import FleetThread
from rollouts.workers.weight_store import WeightStore
from rollouts.workers.worker_config import WorkerConfig

TIMEOUT_S = 300.0


class Stage:
    """A FleetThread and the workers it launched, by (worker_id, incarnation)."""

    def __init__(self, num_workers: int, **kwargs: Any) -> None:
        self.workers: dict[tuple[int, int], ActedWorker] = {}
        self.weights = WeightStore()
        settings = {
            "max_queued_fragments": 4,
            "credits_per_worker": 2,
            "max_restarts": 1,
            "start_timeout_s": TIMEOUT_S,
        } | kwargs
        check = settings.pop("check", lambda: None)
        clock = settings.pop("clock", time.monotonic)
        self.fleet_thread = FleetThread(
            worker_config(),
            num_workers,
            self._launch,
            weights=self.weights,
            rules=fleet_rules(settings),
            check=check,
            clock=clock,
        )

    def _launch(self, config: WorkerConfig) -> ActedWorker:
        worker = ActedWorker(config)
        self.workers[config.worker_id, config.incarnation] = worker
        return worker

    def publish(self) -> None:
        self.weights.publish(weights())
        self.fleet_thread.published()

    def appear_all(self) -> None:
        for worker in list(self.workers.values()):
            worker.appear()

    def wait_until(self, is_true: Callable[[], object]) -> None:
        """Looks again and again until `is_true`, at most TIMEOUT_S."""
        deadline = time.monotonic() + TIMEOUT_S
        while not is_true():
            assert time.monotonic() < deadline
            threading.Event().wait(0.001)

    def num_calls(self, worker_id: int, incarnation: int = 0) -> int:
        worker = self.workers.get((worker_id, incarnation))
        return 0 if worker is None else len(worker.calls)


def has_open(workers: dict[int, ActedWorker]) -> bool:
    return any(worker.is_open for worker in workers.values())


@pytest.fixture
def stage() -> Iterator[Callable[..., Stage]]:
    opened: list[Stage] = []

    def make(num_workers: int, **kwargs: Any) -> Stage:
        opened.append(Stage(num_workers, **kwargs))
        return opened[-1]

    yield make
    for each in opened:
        each.fleet_thread.close()


def test_nothing_is_collected_before_the_first_weights(stage: Callable[..., Stage]) -> None:
    s = stage(1)
    s.appear_all()
    s.wait_until(lambda: s.fleet_thread.stats()["workers"][0]["state"] == "running")
    assert s.num_calls(0) == 0
    s.publish()
    s.wait_until(lambda: s.num_calls(0) == 2)


def test_fragments_arrive_in_order_of_completion(stage: Callable[..., Stage]) -> None:
    s = stage(2)
    s.appear_all()
    s.publish()
    s.wait_until(lambda: s.num_calls(0) == s.num_calls(1) == 2)
    for worker_id in (1, 0, 0, 1):
        s.workers[worker_id, 0].complete()
    fragments = s.fleet_thread.get(4, TIMEOUT_S)
    assert [f.worker_id for f in fragments] == [1, 0, 0, 1]


def test_calls_of_one_worker_are_taken_over_in_order(stage: Callable[..., Stage]) -> None:
    s = stage(1)
    s.appear_all()
    s.publish()
    s.wait_until(lambda: s.num_calls(0) == 2)
    (_, first, first_box), (_, second, second_box) = s.workers[0, 0].calls
    results = [s.workers[0, 0].lose() for _ in range(2)]
    first_box[0], second_box[0] = results[0].payload, results[1].payload
    # the news of the second comes first
    second.set_result(results[1].info)
    first.set_result(results[0].info)
    assert [f.seq_no for f in s.fleet_thread.get(2, TIMEOUT_S)] == [0, 1]


def test_room_is_shared_out_evenly(stage: Callable[..., Stage]) -> None:
    s = stage(2, max_queued_fragments=3)
    s.appear_all()
    s.wait_until(lambda: {w["state"] for w in s.fleet_thread.stats()["workers"]} == {"running"})
    s.publish()
    s.wait_until(lambda: s.num_calls(0) + s.num_calls(1) == 3)
    assert {s.num_calls(0), s.num_calls(1)} == {1, 2}


def test_worker_that_does_not_appear_takes_no_room(stage: Callable[..., Stage]) -> None:
    s = stage(2, max_queued_fragments=2)
    s.publish()
    s.workers[1, 0].appear()
    s.wait_until(lambda: s.num_calls(1) == 2)


def test_worker_that_does_not_appear_in_time_is_replaced(stage: Callable[..., Stage]) -> None:
    s = stage(1, start_timeout_s=0.01, max_restarts=0)
    s.publish()
    with pytest.raises(WorkerError, match=r"not started within 0.01 s"):
        s.fleet_thread.get(1, TIMEOUT_S)
    assert s.workers[0, 0].is_killed


def test_death_gives_up_all_calls_and_starts_the_next_life(stage: Callable[..., Stage]) -> None:
    s = stage(1)
    s.appear_all()
    s.publish()
    s.wait_until(lambda: s.num_calls(0) == 2)
    s.workers[0, 0].complete()
    s.wait_until(lambda: s.num_calls(0) == 3)
    s.workers[0, 0].die()
    s.wait_until(lambda: (0, 1) in s.workers)
    s.workers[0, 1].appear()
    s.wait_until(lambda: s.num_calls(0, 1) == 2)
    s.workers[0, 1].complete()
    fragments = s.fleet_thread.get(2, TIMEOUT_S)
    assert [(f.incarnation, f.seq_no) for f in fragments] == [(0, 0), (1, 0)]
    assert s.workers[0, 0].is_killed
    assert s.fleet_thread.stats()["fragments"]["interrupted"] == {"worker_died": 2}


def test_result_of_a_past_life_is_ignored(stage: Callable[..., Stage]) -> None:
    s = stage(1)
    s.appear_all()
    s.publish()
    s.wait_until(lambda: s.num_calls(0) == 2)
    s.workers[0, 0].raise_error()
    s.wait_until(lambda: (0, 1) in s.workers)
    # the second call of the first life ends after that life was given up
    s.workers[0, 0].complete(1)
    s.workers[0, 1].appear()
    s.wait_until(lambda: s.num_calls(0, 1) == 2)
    s.workers[0, 1].complete()
    (fragment,) = s.fleet_thread.get(1, TIMEOUT_S)
    assert fragment.incarnation == 1
    assert_balanced(s.fleet_thread.stats())


def fail_after_a_fragment(s: Stage, incarnation: int) -> None:
    s.wait_until(lambda: (0, incarnation) in s.workers)
    worker = s.workers[0, incarnation]
    worker.appear()
    s.wait_until(lambda: s.num_calls(0, incarnation) > 0)
    worker.complete()
    s.fleet_thread.get(1, TIMEOUT_S)
    worker.die()


def test_failures_within_the_window_bench_a_worker_in_spite_of_its_fragments(
    stage: Callable[..., Stage],
) -> None:
    s = stage(1, max_restarts=2, restart_window_s=float("inf"))
    s.publish()
    for incarnation in range(3):
        fail_after_a_fragment(s, incarnation)
    with pytest.raises(WorkerError, match="actor died"):
        s.fleet_thread.get(1, TIMEOUT_S)
    assert (0, 3) not in s.workers


def test_failures_before_the_window_are_forgotten(stage: Callable[..., Stage]) -> None:
    s = stage(1, max_restarts=1, restart_window_s=0.0)
    s.publish()
    for incarnation in range(4):
        fail_after_a_fragment(s, incarnation)
    s.wait_until(lambda: (0, 4) in s.workers)


def test_benched_worker_leaves_the_rest_working(stage: Callable[..., Stage]) -> None:
    s = stage(2, max_restarts=0)
    s.workers[0, 0].die()
    s.workers[1, 0].appear()
    s.publish()
    s.wait_until(lambda: s.num_calls(1) == 2)
    s.workers[1, 0].complete()
    assert s.fleet_thread.get(1, TIMEOUT_S)[0].worker_id == 1
    worker = s.fleet_thread.stats()["workers"][0]
    assert worker["state"] == "benched"
    assert "actor died" in worker["last_error"]


def test_when_no_worker_is_left_get_says_why(stage: Callable[..., Stage]) -> None:
    s = stage(2, max_restarts=0)
    s.appear_all()
    s.publish()
    s.wait_until(lambda: s.num_calls(0) == s.num_calls(1) == 2)
    s.workers[0, 0].complete()
    s.workers[0, 0].die()
    s.workers[1, 0].raise_error()
    # what was completed is still delivered
    assert len(s.fleet_thread.get(1, TIMEOUT_S)) == 1
    with pytest.raises(WorkerError, match=r"(?s)worker \[0\]: .*actor died.*worker \[1\]: oops"):
        s.fleet_thread.get(1, TIMEOUT_S)


def test_missing_fragment_ends_the_life(stage: Callable[..., Stage]) -> None:
    s = stage(1)
    s.appear_all()
    s.publish()
    s.wait_until(lambda: s.num_calls(0) == 2)
    worker = s.workers[0, 0]
    worker.lose()
    worker.complete()
    s.wait_until(lambda: (0, 1) in s.workers)
    stats = s.fleet_thread.stats()
    assert stats["fragments"]["discarded"] == {"out_of_order": 1}
    assert_balanced(stats)


def test_launch_that_raises_reaches_the_learner(stage: Callable[..., Stage]) -> None:
    s = stage(1)

    def launch(config: WorkerConfig) -> ActedWorker:
        raise ConnectionError("the cluster is gone")

    s.fleet_thread._fleet._launch = launch
    s.publish()
    s.workers[0, 0].die()
    with pytest.raises(WorkerError, match="the cluster is gone"):
        s.fleet_thread.get(1, TIMEOUT_S)


def test_workers_out_of_reach_are_reported_to_the_learner(stage: Callable[..., Stage]) -> None:
    def check() -> None:
        raise ConnectionError("out of reach")

    with pytest.raises(WorkerError, match="out of reach"):
        stage(1, check=check).fleet_thread.get(1, TIMEOUT_S)


def test_time_in_which_this_process_was_stopped_is_not_the_workers(
    stage: Callable[..., Stage],
) -> None:
    stopped_s = 0.0
    num_looks = 0

    def look() -> None:
        nonlocal num_looks
        num_looks += 1

    s = stage(1, hang_timeout_s=100.0, check=look, clock=lambda: time.monotonic() + stopped_s)
    s.appear_all()
    s.publish()
    s.wait_until(lambda: s.num_calls(0) == 2)
    stopped_s, before = 1e6, num_looks
    s.wait_until(lambda: num_looks >= before + 3)
    s.workers[0, 0].complete()
    assert s.fleet_thread.get(1, TIMEOUT_S)[0].incarnation == 0
    assert not s.workers[0, 0].is_killed


def test_close_wakes_and_counts_what_was_in_flight(stage: Callable[..., Stage]) -> None:
    s = stage(1)
    s.appear_all()
    s.publish()
    s.wait_until(lambda: s.num_calls(0) == 2)
    s.workers[0, 0].complete()
    s.wait_until(lambda: s.fleet_thread.queue.depth == 1)
    s.wait_until(lambda: s.num_calls(0) == 3)
    s.fleet_thread.close()
    s.fleet_thread.close()
    with pytest.raises(ClosedError):
        s.fleet_thread.get(1, TIMEOUT_S)
    assert s.fleet_thread.stats()["fragments"]["interrupted"] == {"closed": 2}
    stats = s.fleet_thread.stats()
    assert stats["fragments"]["discarded"] == {"closed": 1}
    assert_balanced(stats)


def test_random_lives_balance_to_the_step(stage: Callable[..., Stage]) -> None:
    rng = np.random.default_rng(0)
    s = stage(3, max_restarts=10**9, max_queued_fragments=5)
    s.publish()
    delivered: list[Fragment] = []
    while len(delivered) < 200:
        newest = {worker_id: worker for (worker_id, _), worker in sorted(s.workers.items())}
        for worker in newest.values():
            if not worker.starting.done():
                worker.appear()
        s.wait_until(lambda n=newest: s.fleet_thread.queue.depth or has_open(n))  # type: ignore[misc]
        worker = newest[int(rng.integers(3))]
        if worker.is_open and rng.random() < 0.8:
            worker.complete()
        elif worker.is_open:
            lives = len(s.workers)
            worker.die()
            s.wait_until(lambda n=lives: len(s.workers) > n)  # type: ignore[misc]
        if s.fleet_thread.queue.depth and rng.random() < 0.5:
            delivered += s.fleet_thread.get(1, TIMEOUT_S)
    assert_exactly_once(delivered)
    stats = s.fleet_thread.stats()
    assert_balanced(stats)
    assert stats["fragments"]["discarded"] == {}
    assert stats["fragments"]["delivered"] == len(delivered)
    assert s.fleet_thread.stats()["fragments"]["interrupted"]["worker_died"] > 0
