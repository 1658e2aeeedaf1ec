# SPDX-License-Identifier: Apache-2.0
"""Hanging workers, environment errors, lag limits, order and scaling over real Ray actors."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from counter_world import StepChecker, assert_balanced, assert_exactly_once, wait_until, weights

from rollouts import Autoscaler, RolloutCoordinator
from rollouts.errors import ClosedError, SpecError, WorkerError
from rollouts.workers import FaultPolicy, Fragment, Placement, QueueLimits

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0
# far beyond what a healthy worker takes for a fragment of a millisecond, on any machine
HANG_S = 30.0

Counters = Callable[..., RolloutCoordinator]


def take_until(
    coordinator: RolloutCoordinator, is_enough: Callable[[list[Fragment]], bool]
) -> list[Fragment]:
    """Takes fragments one by one until `is_enough` says so."""
    fragments: list[Fragment] = []
    while not is_enough(fragments):
        fragments += coordinator.get_fragments(1, TIMEOUT_S)
    return fragments


def has_life(worker_id: int, incarnation: int) -> Callable[[list[Fragment]], bool]:
    return lambda fragments: any(
        f.worker_id == worker_id and f.incarnation >= incarnation for f in fragments
    )


def test_worker_that_hangs_is_killed_and_replaced(counters: Counters, tmp_path: Path) -> None:
    marker = tmp_path / "hanging"
    coordinator = counters(
        env_options={"hang": (0, 0, 2, str(marker))}, faults=FaultPolicy(hang_timeout_s=HANG_S)
    )
    coordinator.publish_weights(weights())
    fragments = take_until(coordinator, has_life(0, 1))
    assert_exactly_once(fragments)
    wait_until(lambda: not psutil.pid_exists(int(marker.read_text())))
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["failures"] == {"hung": 1}
    assert f"{HANG_S} s" in stats["workers"][0]["last_error"]


def test_worker_that_is_stopped_by_a_signal_is_killed_too(counters: Counters) -> None:
    coordinator = counters(num_workers=1, faults=FaultPolicy(hang_timeout_s=HANG_S))
    coordinator.publish_weights(weights())
    coordinator.get_fragments(1, TIMEOUT_S)
    pid = coordinator.stats()["workers"][0]["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert_exactly_once(take_until(coordinator, has_life(0, 1))[-1:])
    assert coordinator.stats()["failures"] == {"hung": 1}
    wait_until(lambda: not psutil.pid_exists(pid))


def test_environment_errors_are_counted_apart_and_survived(counters: Counters) -> None:
    coordinator = counters(num_workers=1, env_options={"env_error": ((0,), 2)})
    coordinator.publish_weights(weights())
    fragments = take_until(coordinator, has_life(0, 1))
    assert [f.incarnation for f in fragments] == [0, 0, 1]
    assert_exactly_once(fragments)
    stats = coordinator.stats()
    assert stats["failures"] == {"env_error": 1}
    assert "env 1 broke" in stats["workers"][0]["last_error"]


def test_worker_that_dies_after_each_fragment_is_benched(counters: Counters) -> None:
    coordinator = counters(
        env_options={"fail": (range(100), 1), "fail_worker": 1}, faults=FaultPolicy(max_restarts=2)
    )
    coordinator.publish_weights(weights())

    def is_benched(fragments: list[Fragment]) -> bool:
        return coordinator.stats()["workers"][1]["state"] == "benched"

    fragments = take_until(coordinator, is_benched)
    # the others go on
    fragments += take_until(coordinator, lambda taken: sum(f.worker_id == 0 for f in taken) == 5)
    assert_exactly_once(fragments)
    stats = coordinator.stats()
    assert stats["restarts"] == 2
    assert "the counter broke" in stats["workers"][1]["last_error"]
    assert_balanced(stats)


def test_synchronous_mode_has_no_lag(counters: Counters) -> None:
    coordinator = counters(sync_mode="synchronous")
    wait_until(lambda: all(w["state"] == "running" for w in coordinator.stats()["workers"]))
    fragments = []
    for version in range(1, 6):
        coordinator.publish_weights(weights(version))
        batch = coordinator.get_fragments(2, TIMEOUT_S)
        assert {f.worker_id for f in batch} == {0, 1}
        fragments += batch
        assert {f.min_policy_version for f in batch} == {version}
        stats = coordinator.stats()
        assert stats["queue_depth"] == stats["fragments"]["in_flight"] == 0
    assert_exactly_once(fragments)
    assert stats["policy_lag_histogram"] == {0: 10 * 24}
    assert stats["env_steps"]["discarded"] == {}


def test_one_step_lag_mode_is_one_version_behind(counters: Counters) -> None:
    coordinator = counters(sync_mode="one_step_lag")
    coordinator.publish_weights(weights())
    fragments = coordinator.get_fragments(2, TIMEOUT_S)
    for version in range(2, 7):
        # the next batch was asked for when the last one was taken
        wait_until(lambda: coordinator.stats()["queue_depth"] == 2)
        coordinator.publish_weights(weights())
        batch = coordinator.get_fragments(2, TIMEOUT_S)
        assert {f.max_policy_version for f in batch} == {version - 1}
        fragments += batch
    assert_exactly_once(fragments)
    assert coordinator.stats()["policy_lag_histogram"] == {0: 2 * 24, 1: 10 * 24}


@pytest.mark.parametrize(("lag_policy", "over"), [("drop", 0), ("pass", 2)])
def test_lag_above_the_limit_is_dropped_or_passed_and_counted(
    counters: Counters, lag_policy: Any, over: int
) -> None:
    coordinator = counters(
        num_workers=1,
        queue=QueueLimits(max_policy_lag=1, lag_policy=lag_policy, max_queued_fragments=2),
    )
    coordinator.publish_weights(weights())
    wait_until(lambda: coordinator.stats()["queue_depth"] == 2)
    for _ in range(2):
        coordinator.publish_weights(weights())
    fragments = coordinator.get_fragments(2, TIMEOUT_S)
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["over_max_policy_lag"] == {"env_steps": over * 24, "fragments": over}
    assert stats["env_steps"]["discarded"].get("stale", 0) == (2 - over) * 24
    assert stats["policy_lag"]["max"] == (2 if over else 0)
    assert [f.seq_no for f in fragments] == ([0, 1] if over else [2, 3])


# the order is the queue's, whatever asks for fragments
@pytest.mark.parametrize(
    "sync_mode", ["one_step_lag", pytest.param("free_running", marks=pytest.mark.slow)]
)
def test_ordered_merge_gives_the_same_stream_in_every_run(
    counters: Counters, sync_mode: Any
) -> None:
    streams = []
    for run in range(2):
        # the other worker is the slow one
        coordinator = counters(
            queue=QueueLimits(merge="ordered"),
            sync_mode=sync_mode,
            env_options={"slow": (run, 0.002)},
        )
        stream = []
        for version in range(8):
            coordinator.publish_weights(weights(version))
            stream.append(coordinator.get(2, TIMEOUT_S))
        streams.append(stream)
        coordinator.close()
    for first, second in zip(*streams, strict=True):
        assert list(first.env_id) == [0, 1, 2, 3, 4, 5]
        for name in ("obs", "action", "policy_version", "last_obs"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_scaling_while_a_learner_takes(counters: Counters) -> None:
    coordinator = counters(num_workers=1, placement=Placement(max_workers=3))
    coordinator.publish_weights(weights())
    checker = StepChecker()
    for num_workers in (3, 1, 2):
        coordinator.scale_to(num_workers)

        def is_settled(num_workers: int = num_workers) -> bool:
            states = [w["state"] for w in coordinator.stats()["workers"]]
            checker.add(*coordinator.get_fragments(1, TIMEOUT_S))
            return states.count("running") == num_workers and "draining" not in states

        wait_until(is_settled)
    assert checker.num_missing == 0
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["fragments"]["interrupted"] == stats["failures"] == {}
    # worker 1 came back as another life, the others have had one
    assert [w["incarnation"] for w in stats["workers"]] == [0, 1, 0]
    with pytest.raises(SpecError, match=r"placement\.max_workers"):
        coordinator.scale_to(4)


def test_an_autoscaler_adds_workers_for_a_learner_that_waits(counters: Counters) -> None:
    coordinator = counters(num_workers=1, placement=Placement(max_workers=2))
    coordinator.publish_weights(weights())
    scaler = Autoscaler(coordinator, max_workers=2, interval_s=0.2)
    checker = StepChecker()

    def has_both() -> bool:
        checker.add(*coordinator.get_fragments(1, TIMEOUT_S))
        states = [row["state"] for row in coordinator.stats()["workers"]]
        return scaler.step() == 2 and states == ["running", "running"]

    wait_until(has_both)
    # nobody takes any more, and the queue fills
    wait_until(lambda: scaler.step() == 1)
    wait_until(lambda: coordinator.stats()["workers"][1]["state"] == "stopped")
    coordinator.drain(TIMEOUT_S)
    while coordinator.stats()["queue_depth"]:
        checker.add(*coordinator.get_fragments(1, TIMEOUT_S))
    assert checker.num_missing == 0
    assert_balanced(coordinator.stats())


def test_drain_delivers_all_that_was_asked_for(counters: Counters) -> None:
    coordinator = counters()
    coordinator.publish_weights(weights())
    fragments = coordinator.get_fragments(2, TIMEOUT_S)
    coordinator.drain(TIMEOUT_S)
    stats = coordinator.stats()
    assert stats["fragments"]["in_flight"] == 0
    fragments += coordinator.get_fragments(stats["queue_depth"], TIMEOUT_S)
    assert_exactly_once(fragments)
    with pytest.raises(ClosedError, match="drained"):
        coordinator.get(timeout_s=TIMEOUT_S)
    stats = coordinator.stats()
    assert stats["fragments"]["requested"] == stats["fragments"]["delivered"] == len(fragments)


def test_close_counts_what_workers_had_completed(counters: Counters) -> None:
    coordinator = counters()
    coordinator.publish_weights(weights())
    wait_until(lambda: coordinator.stats()["queue_depth"] == 4)
    coordinator.close()
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["env_steps"]["discarded"] == {"closed": 4 * 24}


def test_when_no_worker_is_left_a_scale_up_brings_them_back(
    counters: Counters, tmp_path: Path
) -> None:
    coordinator = counters(
        num_workers=1, env_options={"fail": ((0,), 0)}, faults=FaultPolicy(max_restarts=0)
    )
    coordinator.publish_weights(weights())
    with pytest.raises(WorkerError, match="the counter broke"):
        coordinator.get(timeout_s=TIMEOUT_S)
    coordinator.scale_to(1)
    assert coordinator.get_fragments(1, TIMEOUT_S)[0].incarnation == 1


def test_accounts_balance_at_any_moment(counters: Counters) -> None:
    coordinator = counters(
        env_options={"fail": (range(0, 100, 2), 3)}, faults=FaultPolicy(restart_window_s=0.0)
    )
    coordinator.publish_weights(weights())
    ended = threading.Event()
    errors: list[Exception] = []

    def audit() -> None:
        try:
            while not ended.is_set():
                assert_balanced(coordinator.stats())
        except Exception as error:
            errors.append(error)

    auditor = threading.Thread(target=audit)
    auditor.start()

    def have_both_failed(taken: list[Fragment]) -> bool:
        # a worker that starts late fails late
        return len(taken) >= 40 and coordinator.stats()["failures"].get("worker_error", 0) >= 2

    fragments = take_until(coordinator, have_both_failed)
    ended.set()
    auditor.join()
    assert not errors
    assert_exactly_once(fragments)
