# SPDX-License-Identifier: Apache-2.0
"""LearnerGroup: learners in actors train together, and one that is killed goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fitting_learners
import numpy as np
import pytest
from counter_world import assert_balanced, weights
from fitting_learners import Broken, Learner, Refusing, Unable
from random_batches import make_batch

from rollouts import RolloutCoordinator
from rollouts.checkpoint import load_checkpoint
from rollouts.errors import LearnerError, SpecError
from rollouts.workers.on_ray.learner_group import LearnerGroup

pytestmark = pytest.mark.system

Start = Callable[..., LearnerGroup]


@pytest.fixture
def start(ray_session: Any, tmp_path: Path) -> Iterator[Start]:
    import ray
    from ray import cloudpickle

    # actors of a plain class do not import from the folders of tests
    cloudpickle.register_pickle_by_value(fitting_learners)
    opened = []

    def make(num_learners: int, kind: Any = Learner, *args: Any, **kwargs: Any) -> LearnerGroup:
        actor = ray.remote(num_cpus=0)(kind)
        path = tmp_path / "checkpoint.pt"
        opened.append(LearnerGroup(lambda _: actor.remote(*args), num_learners, path, **kwargs))
        return opened[-1]

    yield make
    for group in opened:
        group.close()
    cloudpickle.unregister_pickle_by_value(fitting_learners)


def now(group: LearnerGroup) -> list[tuple[bytes, int, int]]:
    """Returns (weights, updates, gradients) of each learner."""
    import ray

    found: list[tuple[bytes, int, int]] = ray.get([one.now.remote() for one in group.learners])
    return found


def kill(group: LearnerGroup, *ranks: int) -> None:
    import ray

    pids = ray.get([group.learners[rank].pid.remote() for rank in ranks])
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def alone(seeds: list[int]) -> Learner:
    """Returns a learner in this process that has made the steps of whole batches."""
    learner = Learner()
    for seed in seeds:
        learner.apply(learner.gradient(make_batch(4, 5, seed=seed)))
    return learner


def assert_like(group: LearnerGroup, learner: Learner) -> None:
    found = now(group)
    assert len({bits for bits, _, _ in found}) == 1
    assert {updates for _, updates, _ in found} == {learner.num_updates}
    # the parts are added up in another order than the rows of the whole
    np.testing.assert_allclose(np.frombuffer(found[0][0]), learner.w, rtol=1e-12)


def test_parts_of_unlike_sizes_make_the_step_of_the_whole(start: Start) -> None:
    group = start(2)
    for seed in range(3):
        group.update(make_batch(4, 5, seed=seed))
    assert_like(group, alone([0, 1, 2]))
    account = {"applied": 60, "lost": 0, "in_flight": 0}
    assert group.stats() == {
        "updates": 3,
        "updates_lost": 0,
        "restarts": 0,
        "env_steps": account,
    }


def test_a_learner_that_dies_in_its_gradient_loses_no_step(start: Start, tmp_path: Path) -> None:
    ends_at = tmp_path / "ends"
    group = start(2, Learner, ends_at)
    for seed in range(4):
        if seed == 2:
            ends_at.touch()
        group.update(make_batch(4, 5, seed=seed))
    stats = group.stats()
    assert stats["restarts"] == 1 and stats["updates_lost"] == 0
    assert stats["env_steps"] == {"applied": 80, "lost": 0, "in_flight": 0}
    assert_like(group, alone([0, 1, 2, 3]))


def test_learners_that_die_all_at_once_go_on_from_the_file(start: Start, tmp_path: Path) -> None:
    group = start(2, save_every=2)
    for seed in range(3):
        group.update(make_batch(4, 5, seed=seed))
    kill(group, 0, 1)
    group.update(make_batch(4, 5, seed=3))
    # the third step was made after the checkpoint
    assert_like(group, alone([0, 1, 3]))
    stats = group.stats()
    assert (stats["updates"], stats["updates_lost"], stats["restarts"]) == (3, 1, 2)
    assert stats["env_steps"] == {"applied": 60, "lost": 20, "in_flight": 0}
    group.save()
    group.close()
    # another driver goes on from there
    assert load_checkpoint(tmp_path / "checkpoint.pt").training["num_updates"] == 3
    assert_like(start(1), alone([0, 1, 3]))


def test_asynchronous_learners_get_equal_shares_and_make_the_same_steps(start: Start) -> None:
    group = start(2)
    for seed in range(6):
        group.submit(make_batch(4, 5, seed=seed))
    group.finish()
    found = now(group)
    assert [gradients for _, _, gradients in found] == [3, 3]
    assert len({bits for bits, _, _ in found}) == 1
    assert group.stats()["updates"] == 6
    assert group.stats()["env_steps"] == {"applied": 120, "lost": 0, "in_flight": 0}


def test_the_successor_of_an_asynchronous_learner_computes_its_share(
    start: Start, tmp_path: Path
) -> None:
    ends_at = tmp_path / "ends"
    group = start(2, Learner, ends_at)
    for seed in range(8):
        if seed == 3:
            ends_at.touch()
        group.submit(make_batch(4, 5, seed=seed))
    group.finish()
    found = now(group)
    assert len({bits for bits, _, _ in found}) == 1
    assert {updates for _, updates, _ in found} == {8}
    assert group.stats()["restarts"] == 1
    assert group.stats()["env_steps"] == {"applied": 160, "lost": 0, "in_flight": 0}


def test_workers_go_on_while_the_learners_that_publish_die(
    start: Start, counters: Callable[..., RolloutCoordinator]
) -> None:
    coordinator = counters()
    coordinator.publish_weights(weights())
    group = start(2)
    kill(group, 0)
    assert group.publish(coordinator) == 2
    group.update(make_batch(4, 5, seed=0))
    assert group.stats()["restarts"] == 1
    kill(group, 0, 1)
    assert group.publish(coordinator) == 3
    assert group.stats()["restarts"] == 3
    coordinator.get(2, 300)
    stats = coordinator.stats()
    assert stats["restarts"] == 0
    assert_balanced(stats)


def test_an_error_in_a_step_reaches_the_driver(start: Start) -> None:
    group = start(2, Refusing)
    with pytest.raises(ValueError, match="no such step"):
        for seed in range(3):
            group.update(make_batch(4, 5, seed=seed))


def test_a_learner_that_always_dies_is_given_up(start: Start) -> None:
    with pytest.raises(LearnerError, match=r"learner 0 died 5 times before it had its checkpoint"):
        start(1, Unable)


def test_a_learner_that_cannot_be_made_says_why(start: Start) -> None:
    with pytest.raises(LearnerError, match=r"(?s)learner 0 died before it had started.*no card"):
        start(2, Broken)


def test_numbers_below_one_are_refused(start: Start) -> None:
    with pytest.raises(SpecError, match="num_learners is 0, expected at least 1"):
        start(0)
    with pytest.raises(SpecError, match="save_every is 0, expected at least 1"):
        start(1, save_every=0)
