# SPDX-License-Identifier: Apache-2.0
"""Weights of a learner's actor while workers and learners die."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from counter_world import assert_balanced, wait_until
from fragments import BY_STORE, WAYS, needs_nixl
from learner_actors import opened_worlds, running_pids, start_killer
from publish_world import LIMIT_S, World, make_learner

from rollouts import Placement, WeightTransport
from rollouts.errors import LearnerError

ray = pytest.importorskip("ray")
pytest.importorskip("ray.experimental.rdt", reason="a Ray without direct transports")

pytestmark = pytest.mark.system

# 4 MB: a transfer takes longer than a kill needs to come
SIZE = 250_000
NUM_KILLS = 3
Make = Callable[..., World]


def open_world(size: int = SIZE, **kwargs: Any) -> World:
    return World(make_learner(size=size), size=size, **kwargs)


@pytest.fixture
def world(ray_session: Any) -> Iterator[Make]:
    with opened_worlds(open_world) as make:
        yield make


@pytest.mark.parametrize(("transport", "options"), WAYS)
def test_killed_workers_cost_no_step_twice_and_no_bit(
    world: Make, transport: str, options: dict[str, Any]
) -> None:
    here = world(transport, options=options)
    here.publish()
    here.take()
    killer = start_killer(here.coordinator, NUM_KILLS, seed=3)
    while killer.is_alive():
        here.publish()
        here.take()
    killer.join()
    newest = here.publish()
    here.take_until(here.has_acted(newest, {0, 1}))
    stats = here.coordinator.stats()
    assert_balanced(stats)
    assert stats["failures"] == {"worker_died": NUM_KILLS}
    assert stats["fragments"]["interrupted"].keys() <= {"worker_died"}
    assert stats["env_steps"]["delivered"] == here.checker.num_steps
    assert here.checker.num_missing == 0 and stats["fragments"]["discarded"] == {}


@pytest.mark.parametrize("transport", BY_STORE)
def test_worker_that_dies_while_it_is_sent_weights_hangs_nobody(
    world: Make, transport: str
) -> None:
    here = world(transport)
    here.publish()
    here.take_until(here.has_acted(1, {0, 1}))
    for _ in range(2):
        wait_until(lambda: running_pids(here.coordinator).keys() == {0, 1})
        pid = running_pids(here.coordinator)[0]
        # it takes what it is sent for as long as it lives, and nothing arrives
        os.kill(pid, signal.SIGSTOP)
        version = here.publish()
        # a call more than the stopped worker has
        here.take_until(here.has_acted(version, {1}))
        os.kill(pid, signal.SIGKILL)
        version = here.publish()
        here.take_until(here.has_acted(version, {1}))
        here.take_until(here.has_acted(version, {0}))
    assert_balanced(here.coordinator.stats())


@pytest.mark.parametrize("transport", BY_STORE)
def test_learner_that_dies_leaves_its_last_weights(world: Make, transport: str) -> None:
    here = world(transport, num_workers=1, placement=Placement(max_workers=2))
    here.publish()
    newest = here.publish()
    here.take_until(here.has_acted(newest, {0}))
    pid = ray.get(here.learner.pid.remote(), timeout=LIMIT_S)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(LearnerError, match=r"the learner's actor Actor\(.*Learner, .* has died"):
        here.coordinator.publish_from(here.learner, timeout_s=LIMIT_S)
    assert here.coordinator.stats()["policy_version"] == newest
    # a worker that comes late, and one that is started again
    here.coordinator.scale_to(2)
    here.take_until(here.has_acted(newest, {1}))
    os.kill(running_pids(here.coordinator)[0], signal.SIGKILL)
    here.take_until(lambda taken: any((f.worker_id, f.incarnation) == (0, 1) for f in taken))
    # and the next learner goes on
    here.learner = make_learner(size=SIZE)
    for _ in range(newest):
        here.learner.train.remote()
    assert here.publish() == newest + 1
    here.take_until(here.has_acted(newest + 1, {0, 1}))
    assert_balanced(here.coordinator.stats())


def test_learner_that_dies_while_it_takes_a_snapshot_is_named(world: Make) -> None:
    here = world(size=10)
    here.publish()
    pid = ray.get(here.learner.pid.remote(), timeout=LIMIT_S)
    here.learner.train_for.remote(LIMIT_S)
    timer = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(LearnerError, match=r"Learner, .* has died"):
        here.coordinator.publish_from(here.learner, timeout_s=LIMIT_S)
    timer.join()
    here.take()
    assert here.coordinator.stats()["policy_version"] == 1


@needs_nixl
def test_learner_that_ray_starts_again_goes_on(ray_session: Any) -> None:
    learner = make_learner(size=10, max_restarts=1)
    here = World(learner, size=10, weights=WeightTransport(tensor_transport="nixl", delta=True))
    try:
        here.publish()
        os.kill(ray.get(learner.pid.remote(), timeout=LIMIT_S), signal.SIGKILL)
        while True:
            # until Ray has seen it, calls fail
            with contextlib.suppress(ray.exceptions.RayActorError):
                ray.get(learner.train.remote(), timeout=LIMIT_S)
                break
        # the worker acts with the new life's weights, which began anew
        version = here.publish()
        here.take_until(here.has_acted(version, {0, 1}))
        assert here.coordinator.stats()["weight_pulls"]["direct"] >= 2
    finally:
        here.coordinator.close()
        ray.kill(learner)
