# SPDX-License-Identifier: Apache-2.0
"""Parcels of coordinators: small arrays belong to the driver, large ones to their coordinator."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from counter_world import StepChecker, assert_balanced, wait_until, weights
from replay_world import (
    Start,
    assert_replay_balanced,
    assert_whole_transitions,
    has_sizes,
    ref_of_a_dead_owner,
    sample_until,
)

from rollouts import FragmentInbox, RolloutCoordinator
from rollouts.errors import WorkerError
from rollouts.learner.fragment import FragmentHandle
from rollouts.workers import Placement, QueueLimits
from rollouts.workers.on_ray.parcels import Parcel, ParcelPayload, make_parcel
from rollouts.workers.on_ray.ray_session import RemotePayload
from rollouts.workers.small_arrays import LARGE_BYTES

pytest.importorskip("ray")

pytestmark = pytest.mark.system

TIMEOUT_S = 300.0
Counters = Callable[..., RolloutCoordinator]
SHARED: dict[str, Any] = {
    "num_workers": 2,
    "num_coordinators": 2,
    "placement": Placement(num_cpus=0.25),
}
LARGE: dict[str, Any] = {"num_envs_per_worker": 64, "rollout_length": 64}


def take_of_both(coordinator: RolloutCoordinator) -> list[FragmentHandle]:
    """Takes fragments of both coordinators, whose arrays are not fetched yet."""
    coordinator.publish_weights(weights())
    handles = coordinator.get_pending(1, TIMEOUT_S)
    while len({handle.info.worker_id for handle in handles}) < 2:
        handles += coordinator.get_pending(1, TIMEOUT_S)
    return handles


def take_and_kill(coordinator: RolloutCoordinator) -> list[FragmentHandle]:
    """Takes fragments as `take_of_both`, kills the coordinators, and takes until it is noticed."""
    handles = take_of_both(coordinator)
    kill_coordinators_of(coordinator)
    # calls notice it, of which a full queue makes none
    while sum(coordinator.stats()["failures"].values()) < 2:
        handles += coordinator.get_pending(1, TIMEOUT_S)
    return handles


def kill_coordinators_of(coordinator: RolloutCoordinator) -> None:
    for row in coordinator.stats()["coordinators"]:
        os.kill(row["pid"], signal.SIGKILL)


def test_small_arrays_outlive_the_coordinator_that_answered(counters: Counters) -> None:
    coordinator, checker = counters(**SHARED), StepChecker()
    handles = take_and_kill(coordinator)
    assert all(handle.info.nbytes < LARGE_BYTES for handle in handles)
    fragments = [handle.resolve(TIMEOUT_S) for handle in handles]
    checker.add(*fragments)
    assert not fragments[0].batch.obs.flags.writeable
    # so that what the queue has is not lost either
    while not all(row["life"] for row in coordinator.stats()["coordinators"]):
        checker.add(*coordinator.get_fragments(1, TIMEOUT_S))
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["fragments"]["discarded"] == {}
    assert stats["env_steps"]["delivered"] == checker.num_steps


def test_large_arrays_that_came_outlive_their_coordinator(counters: Counters) -> None:
    limit = 4
    queue = QueueLimits(max_queued_fragments=limit)
    coordinator, checker = counters(**SHARED, **LARGE, queue=queue), StepChecker()
    left = take_of_both(coordinator)
    checker.add(*(one.resolve(TIMEOUT_S) for one in left))
    # calls after this `get` bring their arrays here; there are fewer than `limit` older ones then
    checker.add(*coordinator.get_fragments(1, TIMEOUT_S))
    checker.add(*coordinator.get_fragments(limit, TIMEOUT_S))
    wait_until(lambda: coordinator.stats()["queue_depth"] == limit)
    kill_coordinators_of(coordinator)
    # Ray frees what a dead process owned a moment after its death
    wait_until(lambda: all(map(is_lost, left)))
    fragments = coordinator.get_fragments(limit, TIMEOUT_S)
    assert all(one.nbytes >= LARGE_BYTES for one in fragments)
    checker.add(*fragments)
    stats = coordinator.stats()
    assert_balanced(stats)
    assert stats["fragments"]["discarded"] == {} and checker.num_missing == 0


def test_large_arrays_that_are_left_where_they_are_are_lost_with_their_coordinator(
    counters: Counters,
) -> None:
    coordinator = counters(**SHARED, **LARGE)
    coordinator.publish_weights(weights())
    (fragment,) = handles = coordinator.get_pending(1, TIMEOUT_S)
    assert fragment.info.nbytes >= LARGE_BYTES
    assert not fragment.resolve(TIMEOUT_S).batch.obs.flags.writeable
    handles = take_and_kill(coordinator)
    wait_until(lambda: is_lost(handles[0]))


def is_lost(handle: FragmentHandle) -> bool:
    try:
        handle.fetch(1.0)
    except TimeoutError:
        return False
    except WorkerError as error:
        return "lost" in str(error)
    return False


def test_an_entry_without_arrays_is_an_error_of_its_fragment_alone(counters: Counters) -> None:
    import ray

    coordinator = counters(num_workers=1)
    coordinator.publish_weights(weights())
    first, second = coordinator.get_pending(2, TIMEOUT_S)
    obs = first.resolve(TIMEOUT_S).batch.obs
    for is_large, is_brought in itertools.product((False, True), repeat=2):
        info = replace(second.info, nbytes=LARGE_BYTES) if is_large else second.info
        lost = replace(second, info=info, fetch=RemotePayload(ref_of_a_dead_owner()))
        parcel = Parcel(ray.put(make_parcel([first, lost])))
        if is_brought:
            parcel.bring().result(TIMEOUT_S)
        arrays = ParcelPayload(parcel, 0)(TIMEOUT_S)
        assert (arrays.obs == obs).all(), (is_large, is_brought)  # type: ignore[union-attr]
        for _ in range(2):
            with pytest.raises(WorkerError, match="lost"):
                ParcelPayload(parcel, 1)(TIMEOUT_S)


@pytest.mark.parametrize("rollout_length", [8, 4096])
def test_a_learners_actor_gets_the_arrays(counters: Counters, rollout_length: int) -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Learner(FragmentInbox):
        def first_steps(self) -> Any:
            return self.take().batch.obs[0, :, 4]

    coordinator = counters(**SHARED, rollout_length=rollout_length)
    coordinator.publish_weights(weights())
    learner = Learner.remote()
    info = coordinator.hand_over(learner, timeout_s=TIMEOUT_S)
    assert (info.nbytes < LARGE_BYTES) == (rollout_length == 8)
    steps = ray.get(learner.first_steps.remote(), timeout=TIMEOUT_S)
    assert (steps == info.seq_no * rollout_length).all()


def test_a_replay_gets_the_arrays(start: Start) -> None:
    _, replay = start(SHARED)
    sample_until(replay, has_sizes(100))
    assert_whole_transitions(replay.sample(64, timeout_s=TIMEOUT_S))
    assert_replay_balanced(replay.stats())
