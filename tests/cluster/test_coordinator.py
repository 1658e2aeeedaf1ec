# SPDX-License-Identifier: Apache-2.0
"""RolloutCoordinator over real Ray actors, checked to the step with counters."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from counter_world import (
    CounterCollector,
    assert_balanced,
    assert_exactly_once,
    make_policy,
    wait_until,
    weights,
)

from rollouts import RolloutBatch, RolloutCoordinator
from rollouts.errors import ClosedError, ProtocolError, SpecError, WorkerError
from rollouts.workers import CollectOptions, FaultPolicy, Fragment, QueueLimits

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0
LARGE = {"pad": 4096}  # 8 * 3 * 4096 * 4 bytes: too large for Ray to send inline

Counters = Callable[..., RolloutCoordinator]


@pytest.mark.parametrize("pad", [1, 4096])
def test_every_step_is_delivered_exactly_once(counters: Counters, pad: int) -> None:
    coordinator = counters(env_options={"pad": pad})
    coordinator.publish_weights(weights())
    fragments: list[Fragment] = []
    while min(sum(f.worker_id == worker_id for f in fragments) for worker_id in (0, 1)) < 10:
        fragments += coordinator.get_fragments(3, TIMEOUT_S)
    assert_exactly_once(fragments)
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["env_steps"]["delivered"] == len(fragments) * 8 * 3
    assert stats["env_steps"]["discarded"] == {}


def test_get_joins_fragments_along_envs(counters: Counters) -> None:
    coordinator = counters()
    coordinator.publish_weights(weights())
    batch = coordinator.get(num_fragments=4, timeout_s=TIMEOUT_S)
    assert batch.obs.shape == (8, 12, 5)
    assert (batch.obs[..., 0] == batch.env_id).all()


def test_arrays_from_workers_are_read_only(counters: Counters) -> None:
    coordinator = counters(env_options=LARGE)
    coordinator.publish_weights(weights())
    (fragment,) = coordinator.get_fragments(1, TIMEOUT_S)
    assert not fragment.batch.obs.flags.writeable


def test_stalled_learner_makes_workers_wait(counters: Counters) -> None:
    coordinator = counters(queue=QueueLimits(max_queued_fragments=3))
    coordinator.publish_weights(weights())
    for taken in (0, 2, 4):
        wait_until(lambda: coordinator.stats()["queue_depth"] == 3)
        stats = coordinator.stats()
        assert stats["fragments"]["produced"] == taken + 3
        assert stats["fragments"]["in_flight"] == 0
        coordinator.get_fragments(2, TIMEOUT_S)


def test_workers_collect_before_the_learner_asks(counters: Counters) -> None:
    coordinator = counters(queue=QueueLimits(credits_per_worker=1))
    coordinator.publish_weights(weights())
    wait_until(lambda: coordinator.stats()["queue_depth"] == 2)
    fragments = coordinator.get_fragments(2, TIMEOUT_S)
    assert len(fragments) == 2


def test_weights_reach_the_workers_at_fragment_boundaries(counters: Counters) -> None:
    coordinator = counters(num_workers=1, queue=QueueLimits(credits_per_worker=1))
    assert coordinator.publish_weights(weights(offset=0)) == 1
    coordinator.get_fragments(1, TIMEOUT_S)
    assert coordinator.publish_weights(weights(offset=100)) == 2
    # one call is in flight, so version 1 may be seen once more
    for _ in range(3):
        (fragment,) = coordinator.get_fragments(1, TIMEOUT_S)
    assert fragment.min_policy_version == fragment.max_policy_version == 2
    batch = fragment.batch
    assert (batch.policy_version == 2).all()
    assert (batch.action == batch.obs[..., 4] % 7 + 100).all()
    assert coordinator.stats()["policy_lag"] == {"min": 0, "mean": 0.0, "max": 0}


def test_get_before_publish_is_an_error(counters: Counters) -> None:
    with pytest.raises(ProtocolError, match="publish_weights"):
        counters().get(timeout_s=TIMEOUT_S)


def test_get_of_more_than_the_bound_is_an_error(counters: Counters) -> None:
    coordinator = counters(queue=QueueLimits(max_queued_fragments=2))
    coordinator.publish_weights(weights())
    with pytest.raises(SpecError, match=r"queue\.max_queued_fragments"):
        coordinator.get(num_fragments=3, timeout_s=TIMEOUT_S)


def test_sigkill_in_the_middle_of_a_fragment_leaves_no_trace(
    counters: Counters, tmp_path: Path
) -> None:
    marker = tmp_path / "hanging"
    # those that share a call with the one that hangs would end with it
    coordinator = counters(
        env_options=LARGE | {"hang": (0, 0, 3, str(marker))},
        queue=QueueLimits(max_fragments_per_call=1),
    )
    coordinator.publish_weights(weights())
    fragments = []
    while not marker.exists():
        fragments += coordinator.get_fragments(1, TIMEOUT_S)
    pid = int(marker.read_text() or coordinator.stats()["workers"][0]["pid"])
    assert pid == coordinator.stats()["workers"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    while sum(f.worker_id == 0 and f.incarnation == 1 for f in fragments) < 4:
        fragments += coordinator.get_fragments(1, TIMEOUT_S)
    assert_exactly_once(fragments)
    # what was completed before the death arrived, the broken fragment did not
    first_life = [f for f in fragments if (f.worker_id, f.incarnation) == (0, 0)]
    assert len(first_life) == 3
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["restarts"] == 1
    assert stats["env_steps"]["discarded"] == {}
    # the one that hung, and the one behind it if there was room in the queue
    assert stats["fragments"]["interrupted"]["worker_died"] in (1, 2)
    assert "died" in stats["workers"][0]["last_error"]


def test_worker_killed_while_idle_is_replaced(counters: Counters) -> None:
    coordinator = counters(num_workers=1, queue=QueueLimits(credits_per_worker=1))
    coordinator.publish_weights(weights())
    wait_until(lambda: coordinator.stats()["queue_depth"] == 1)
    os.kill(coordinator.stats()["workers"][0]["pid"], signal.SIGKILL)
    fragments = [f for _ in range(4) for f in coordinator.get_fragments(1, TIMEOUT_S)]
    # the queued fragment outlives the worker that made it
    assert [(f.incarnation, f.seq_no) for f in fragments] == [(0, 0), (1, 0), (1, 1), (1, 2)]
    assert_exactly_once(fragments)


def test_error_in_a_worker_reaches_the_learner_with_its_traceback(counters: Counters) -> None:
    coordinator = counters(env_options={"fail": ((0, 1, 2), 0)}, faults=FaultPolicy(max_restarts=1))
    coordinator.publish_weights(weights())
    with pytest.raises(WorkerError, match=r"_misbehave(.|\n)*ValueError: the counter broke"):
        coordinator.get(timeout_s=TIMEOUT_S)
    stats = coordinator.stats()
    assert stats["restarts"] == 2
    assert [worker["state"] for worker in stats["workers"]] == ["benched", "benched"]


def test_error_in_a_worker_is_survived_by_a_restart(counters: Counters) -> None:
    coordinator = counters(env_options={"fail": ((0,), 2)}, num_workers=1)
    coordinator.publish_weights(weights())
    fragments = [f for _ in range(5) for f in coordinator.get_fragments(1, TIMEOUT_S)]
    assert [f.incarnation for f in fragments] == [0, 0, 1, 1, 1]
    assert_exactly_once(fragments)
    assert coordinator.stats()["fragments"]["interrupted"].keys() == {"worker_error"}


def test_worker_that_cannot_be_built_is_an_error(ray_session: object) -> None:
    def make_policy(spec: object) -> Any:
        raise OSError("no such model")

    from counter_world import CounterCollector

    with RolloutCoordinator(
        "Counter",
        make_policy,
        num_workers=1,
        num_envs_per_worker=1,
        rollout_length=1,
        faults=FaultPolicy(max_restarts=0),
        collect=CollectOptions(make_collector=CounterCollector),
    ) as coordinator:
        coordinator.publish_weights(weights())
        with pytest.raises(WorkerError, match="no such model"):
            coordinator.get(timeout_s=TIMEOUT_S)


def test_one_and_three_workers_give_the_same_data(counters: Counters) -> None:
    by_env: list[dict[int, np.ndarray]] = []
    for num_workers in (1, 3):
        coordinator = counters(num_workers=num_workers, num_envs_per_worker=6 // num_workers)
        coordinator.publish_weights(weights())
        rows: dict[int, list[np.ndarray]] = {env_id: [] for env_id in range(6)}
        while min(len(parts) for parts in rows.values()) < 3:
            (fragment,) = coordinator.get_fragments(1, TIMEOUT_S)
            for column, env_id in enumerate(fragment.batch.env_id):
                rows[env_id].append(fragment.batch.obs[:, column])
        by_env.append({env_id: np.concatenate(parts[:3]) for env_id, parts in rows.items()})
        coordinator.close()
    for env_id in range(6):
        np.testing.assert_array_equal(by_env[0][env_id], by_env[1][env_id])


def test_close_wakes_a_waiting_learner(counters: Counters, tmp_path: Path) -> None:
    marker = tmp_path / "hanging"
    coordinator = counters(num_workers=1, env_options={"hang": (0, 0, 0, str(marker))})
    coordinator.publish_weights(weights())
    wait_until(marker.exists)
    caught: list[BaseException] = []

    def learn() -> None:
        try:
            coordinator.get()
        except ClosedError as error:
            caught.append(error)

    learner = threading.Thread(target=learn)
    learner.start()
    coordinator.close()
    coordinator.close()
    learner.join(TIMEOUT_S)
    assert len(caught) == 1
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["fragments"]["in_flight"] == 0


def test_timeout_says_what_the_workers_do(counters: Counters, tmp_path: Path) -> None:
    coordinator = counters(num_workers=1, env_options={"hang": (0, 0, 0, str(tmp_path / "x"))})
    coordinator.publish_weights(weights())
    wait_until((tmp_path / "x").exists)
    with pytest.raises(TimeoutError, match="workers: 0 running"):
        coordinator.get(timeout_s=0.05)


def all_run(stats: Callable[[], dict[str, Any]]) -> bool:
    return all(worker["state"] == "running" for worker in stats()["workers"])


def test_workers_of_a_dropped_coordinator_end_while_its_fragments_stay(ray_session: Any) -> None:
    coordinator = RolloutCoordinator(
        "Counter",
        make_policy,
        collect=CollectOptions(make_collector=CounterCollector),
        num_workers=2,
        num_envs_per_worker=3,
        rollout_length=8,
        env_options=LARGE,
    )
    coordinator.publish_weights(weights())
    (handle,) = coordinator.get_pending(1, TIMEOUT_S)
    stats = coordinator.stats
    wait_until(partial(all_run, stats))
    processes = [psutil.Process(w["pid"]) for w in stats()["workers"]]
    del coordinator
    gc.collect()
    # a bound method is a reference
    assert stats()["workers"]
    del stats
    gc.collect()
    _, alive = psutil.wait_procs(processes, timeout=TIMEOUT_S)
    assert not alive
    batch = handle.fetch(TIMEOUT_S)
    assert isinstance(batch, RolloutBatch)
    assert (batch.obs[..., 0] == batch.env_id).all()
