# SPDX-License-Identifier: Apache-2.0
"""Weights of several policies from learners' actors while workers and learners die."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agents_world import LIMIT_S, POLICIES, AgentsWorld, make_learner
from counter_world import assert_balanced, wait_until
from fragments import BY_NIXL, WAYS
from learner_actors import opened_worlds, running_pids, start_killer

from rollouts import Placement
from rollouts.errors import LearnerError

ray = pytest.importorskip("ray")
pytest.importorskip("ray.experimental.rdt", reason="a Ray without direct transports")

pytestmark = pytest.mark.system

# 4 MB a policy: a transfer takes longer than a kill needs to come
SIZE = 1_000_000
NUM_KILLS = 2
Make = Callable[..., AgentsWorld]


def open_world(**kwargs: Any) -> AgentsWorld:
    return AgentsWorld(make_learner(size=SIZE), size=SIZE, **kwargs)


@pytest.fixture
def world(ray_session: Any) -> Iterator[Make]:
    with opened_worlds(open_world) as make:
        yield make


def kill(learner: Any) -> None:
    os.kill(ray.get(learner.pid.remote(), timeout=LIMIT_S), signal.SIGKILL)


@pytest.mark.parametrize(("transport", "options"), WAYS)
def test_killed_workers_come_back_with_the_newest_of_each_policy(
    world: Make, transport: str, options: dict[str, Any]
) -> None:
    here = world(transport, options=options)
    rng = random.Random(5)
    here.publish()
    here.take()
    killer = start_killer(here.coordinator, NUM_KILLS, seed=5)
    while killer.is_alive():
        here.publish(rng.choice((("agent",), ("adversary",), POLICIES)))
        here.take()
    killer.join()
    here.take_until(here.publish(("agent",)), {0, 1})
    stats = here.coordinator.stats()
    assert_balanced(stats)
    assert stats["failures"] == {"worker_died": NUM_KILLS}


@pytest.mark.parametrize("transport", BY_NIXL)
def test_worker_that_dies_while_it_is_sent_weights_hangs_nobody(
    world: Make, transport: str
) -> None:
    here = world(transport)
    here.take_until(here.publish(), {0, 1})
    for policies in (POLICIES, ("adversary",)):
        wait_until(lambda: running_pids(here.coordinator).keys() == {0, 1})
        pid = running_pids(here.coordinator)[0]
        # it takes what it is sent for as long as it lives, and nothing arrives
        os.kill(pid, signal.SIGSTOP)
        here.take_until(here.publish(policies), {1})
        os.kill(pid, signal.SIGKILL)
        here.take_until(here.publish(("agent",)), {0, 1})
    assert_balanced(here.coordinator.stats())


@pytest.mark.parametrize("transport", BY_NIXL)
def test_learner_that_dies_leaves_the_last_weights_of_all_its_policies(
    world: Make, transport: str
) -> None:
    here = world(transport, num_workers=1, placement=Placement(max_workers=2))
    here.publish()
    newest = here.publish(("agent",))
    here.take_until(newest, {0})
    kill(here.learner)
    with pytest.raises(LearnerError, match=r"the learner's actor Actor\(.*Learner, .* has died"):
        here.coordinator.publish_from(here.learner, timeout_s=LIMIT_S)
    assert here.coordinator.stats()["policy_version"] == newest
    # a worker that comes late has them from the object store, and one that is started again
    here.coordinator.scale_to(2)
    here.take_until(newest, {1})
    assert here.coordinator.stats()["weight_pulls"]["object_store"] >= len(POLICIES)
    os.kill(running_pids(here.coordinator)[0], signal.SIGKILL)
    while (fragment := here.take()).incarnation == 0 or fragment.worker_id == 1:
        pass
    # and the next learner goes on
    here.learner = make_learner(size=SIZE)
    version = here.publish(("adversary",))
    assert version == newest + 1
    here.take_until(version, {0, 1})
    assert_balanced(here.coordinator.stats())


def test_of_two_learners_the_one_that_died_is_named_and_neither_published(world: Make) -> None:
    here = world(options={"delta": True})
    learners = {policy: make_learner(size=SIZE, alone=policy) for policy in POLICIES}
    here.publish()
    ids = {policy: learner._actor_id.hex() for policy, learner in learners.items()}
    pid = ray.get(learners["agent"].pid.remote(), timeout=LIMIT_S)
    # while it is asked, and the other one does not answer either
    for learner in learners.values():
        learner.train_for.remote(LIMIT_S)
    timer = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(LearnerError, match=rf"Learner, {ids['agent']}\) has died"):
        here.coordinator.publish_from(learners, timeout_s=LIMIT_S)
    timer.join()
    assert here.coordinator.stats()["policy_version"] == 1
    here.take_until(1, {0, 1})
    ray.kill(learners["adversary"])
    learners = {policy: make_learner(size=SIZE, alone=policy) for policy in POLICIES}
    for policy, step in here.train().items():
        learners[policy].train.remote({policy: step}, ())
    here.take_until(here.publish_from(learners), {0, 1})
    for learner in learners.values():
        ray.kill(learner)
