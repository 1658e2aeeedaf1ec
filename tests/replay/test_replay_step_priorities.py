# SPDX-License-Identifier: Apache-2.0
"""Priorities per step: an item has that of the step it begins at, whichever call completes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from replay_model import ACTION_SPACE, OBS_SPACE, TERMINATED, TRUNCATED, World

import rollouts
from rollouts.replay import Acted, NStep, Queue, ReplayBuffer, Sequences, TableConfig


def make_world() -> World:
    return World([[(5, TERMINATED), (7, TRUNCATED)], [(4, TRUNCATED)]], env_id=[3, 8])


def make_buffer(*tables: TableConfig) -> ReplayBuffer:
    return ReplayBuffer(OBS_SPACE, ACTION_SPACE, tables)


def priority_of(obs: Any) -> Any:
    """A number that names the step with observation (env_id, episode, t)."""
    return obs[..., 0] * 10_000 + obs[..., 1] * 100 + obs[..., 2] + 1


def check(buffer: ReplayBuffer, table: str) -> int:
    keys = buffer.store.keys(table)
    batch: Any = buffer.gather(keys, table=table)
    obs = batch.obs if table == "steps" else batch.obs[0]
    np.testing.assert_array_equal(batch.priority, priority_of(obs))
    return len(keys)


@pytest.mark.parametrize("lengths", [[20], [1] * 20, [3, 9, 2, 6]])
def test_an_item_has_the_priority_of_its_first_step(lengths: list[int]) -> None:
    world = make_world()
    buffer = make_buffer(
        TableConfig("steps", NStep(3, 0.5), sampler="prioritized"),
        TableConfig("sequences", Sequences(4, 2, end_of_episode="pad"), sampler="prioritized"),
    )
    for length in lengths:
        rollout = world.rollout(length)
        buffer.add_batch(rollout, priority=priority_of(rollout.obs))
    buffer.end_episodes()
    buffer.flush(timeout_s=0)
    # the last step of an open episode too: what it led to is known
    assert check(buffer, "steps") == 40
    assert check(buffer, "sequences") > 10


def test_priorities_outlive_waiting_and_a_checkpoint() -> None:
    world = make_world()
    tables = TableConfig("steps", NStep(2, 0.5), limiter=Queue(4))
    buffer, other = make_buffer(tables), make_buffer(tables)
    rollout = world.rollout(6)
    buffer.add_batch(rollout, priority=priority_of(rollout.obs), timeout_s=0)
    other.load_state(buffer.state())
    for one in (buffer, other):
        one.end_episodes()
        found = 0
        while one.size():
            found += check(one, "steps")
            one.sample(one.size(), timeout_s=0)
            one.flush(timeout_s=0)
        assert found == 12


def test_one_number_is_of_all_items_of_the_call_and_none_of_the_highest() -> None:
    world = make_world()
    buffer = make_buffer(TableConfig("steps", NStep(3, 0.5), sampler="prioritized"))
    for priority, expected in ((np.full((2, 2), 5.0), 5.0), (7.0, 7.0), (None, 7.0)):
        before = set(buffer.store.keys("steps").tolist())
        rollout = world.rollout(2)
        buffer.add_batch(rollout, priority=priority)
        new = [key for key in buffer.store.keys("steps").tolist() if key not in before]
        if expected == 5.0:
            assert not new  # three rows are needed after the first
        else:
            assert new
        found = buffer.gather(new).priority if new else np.zeros(0)
        # items that begin at the first call's steps keep the 5.0 of its array
        assert set(found.tolist()) <= {expected, 5.0}


def test_steps_take_one_priority_per_environment() -> None:
    world = make_world()
    table = TableConfig("steps", NStep(1), sampler="prioritized")
    buffer = ReplayBuffer(OBS_SPACE, ACTION_SPACE, table, autoreset_mode="same_step")
    rollout = world.rollout(3)
    for t in range(2):
        outcome = (rollout.reward[t], rollout.terminated[t], rollout.truncated[t])
        priority = priority_of(rollout.obs[t])
        buffer.add_step(
            Acted(rollout.obs[t], rollout.action[t], priority=priority),
            (rollout.obs[t + 1], *outcome, {"env_id": rollout.env_id}),
        )
    assert check(buffer, "steps") == 2


@pytest.mark.parametrize(
    ("priority", "message"),
    [
        (np.ones(2), r"shape \(2,\), expected one number or \(2, 2\)"),
        (np.array([[1, -1], [1, 1]]), "negative or not finite"),
        (float("nan"), "negative or not finite"),
    ],
)
def test_priorities_that_cannot_be_are_refused(priority: Any, message: str) -> None:
    buffer = make_buffer(TableConfig())
    with pytest.raises(rollouts.SpecError, match=message):
        buffer.add_batch(make_world().rollout(2), priority=priority)
    assert buffer.stats()["steps"]["produced"] == 0
