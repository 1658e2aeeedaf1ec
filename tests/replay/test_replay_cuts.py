# SPDX-License-Identifier: Apache-2.0
"""Steps that do not continue each other: each is an item of its own, and what is lost is told."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from fragments import fragment_info
from replay_model import ACTION_SPACE, OBS_SPACE, TERMINATED, World

import rollouts
from rollouts.replay import Acted, Episodes, NStep, ReplayBuffer, Sequences, TableConfig
from rollouts.replay.acted import GymnasiumStep
from rollouts.workers import Fragment

NUM_ENVS = 4


def shuffled_step(rng: np.random.Generator) -> tuple[Acted, GymnasiumStep]:
    """A step that begins nowhere in particular; next_obs is obs + 1."""
    obs = rng.normal(size=(NUM_ENVS, 3)).astype(np.float32)
    action, reward = rng.integers(0, 1000, NUM_ENVS), rng.random(NUM_ENVS, np.float32)
    terminated, truncated = np.zeros((2, NUM_ENVS), np.bool_)
    return Acted(obs, action), (obs + 1, reward, terminated, truncated, {})


def make_buffer(*tables: TableConfig, mode: str = "same_step") -> ReplayBuffer:
    return ReplayBuffer(OBS_SPACE, ACTION_SPACE, tables, autoreset_mode=mode)


def named(batch: Any, seq_no: int) -> Fragment:
    return Fragment(fragment_info(seq_no), batch)


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_every_step_of_shuffled_data_is_a_transition(mode: str) -> None:
    rng = np.random.default_rng(0)
    steps = [shuffled_step(rng) for _ in range(50)]
    with make_buffer(TableConfig(), mode=mode) as buffer, warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing of one step is lost
        for step in steps:
            buffer.add_step(*step)
        buffer.end_episodes()
        buffer.flush()
        batch: Any = buffer.gather(buffer.store.keys("replay"))
        assert buffer.size() == 50 * NUM_ENVS
        np.testing.assert_array_equal(batch.next_obs, batch.obs + 1)
        assert (batch.discount == np.float32(0.99)).all()
        for name in ("obs", "action", "reward"):
            own = [step[1][1] if name == "reward" else getattr(step[0], name) for step in steps]
            added = np.concatenate(own)
            np.testing.assert_array_equal(
                np.sort(getattr(batch, name), axis=0), np.sort(added, axis=0)
            )


def test_the_same_arrays_again_can_be_sampled() -> None:
    step = shuffled_step(np.random.default_rng(1))
    with make_buffer(TableConfig()) as buffer:
        for _ in range(1000):
            buffer.add_step(*step)
        assert buffer.size() == 999 * NUM_ENVS
        assert len(buffer.sample(64, timeout_s=0).key) == 64
        assert buffer.stats()["episodes_cut"] == 999 * NUM_ENVS


def test_step_that_does_not_continue_cuts_its_environment_alone() -> None:
    rng = np.random.default_rng(7)
    num_envs, num_steps = 9, 6
    obs = rng.normal(size=(num_steps, num_envs, 3)).astype(np.float32)
    next_obs = np.concatenate([obs[1:], obs[:1]])
    next_obs[2, 4] += 1  # so step 3 of environment 4 begins elsewhere
    reward = np.arange(num_steps * num_envs, dtype=np.float32).reshape(num_steps, num_envs)
    zeros = np.zeros(num_envs, np.bool_)
    with make_buffer(TableConfig()) as buffer:
        for t in range(num_steps):
            # runs of neighbours in another order each time
            env_id = np.roll(np.arange(num_envs), t * 2) if t % 2 else rng.permutation(num_envs)
            buffer.add_step(
                Acted(obs[t, env_id], np.zeros(num_envs, np.int64)),
                (next_obs[t, env_id], reward[t, env_id], zeros, zeros, {"env_id": env_id}),
            )
            assert buffer.stats()["episodes_cut"] == (1 if t >= 3 else 0)
        buffer.end_episodes()
        buffer.flush()
        batch: Any = buffer.gather(buffer.store.keys("replay"))
    order = np.argsort(batch.reward)
    np.testing.assert_array_equal(batch.reward[order], reward.ravel())
    np.testing.assert_array_equal(batch.obs[order], obs.reshape(-1, 3))
    np.testing.assert_array_equal(batch.next_obs[order], next_obs.reshape(-1, 3))


@pytest.mark.parametrize(
    ("kind", "count"),
    [(NStep(3), 1), (Sequences(4), 1), (Sequences(4, end_of_episode="pad"), 1), (Episodes(9), 1)],
)
def test_longer_items_that_are_cut_away_are_told_once(kind: Any, count: int) -> None:
    rng = np.random.default_rng(2)
    with make_buffer(TableConfig("long", kind), TableConfig("short")) as buffer:
        buffer.add_step(*shuffled_step(rng))
        with pytest.warns(rollouts.ReplayWarning) as told:
            for _ in range(20):
                buffer.add_step(*shuffled_step(rng))
        assert len(told) == 1
        message = str(told[0].message)
        assert f"{count * NUM_ENVS} of table 'long'" in message
        assert "next_obs" in message
        assert "'short'" not in message
        assert told[0].filename == __file__


def test_call_that_raises_the_warning_has_done_its_work() -> None:
    rng = np.random.default_rng(4)
    steps = [shuffled_step(rng) for _ in range(6)]
    tables = TableConfig("long", NStep(3)), TableConfig("short")
    with make_buffer(*tables) as buffer, make_buffer(*tables) as expected:
        with pytest.warns(rollouts.ReplayWarning):
            for step in steps:
                expected.add_step(*step)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            num_raised = 0
            for step in steps:
                try:
                    buffer.add_step(*step)
                except rollouts.ReplayWarning:
                    num_raised += 1
        assert num_raised == 1
        assert np.array_equal(buffer.state(), expected.state())


def test_who_hears_the_warning_may_use_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    heard = []
    with make_buffer(TableConfig(items=NStep(3))) as buffer, warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(
            warnings, "showwarning", lambda *args, **kwargs: heard.append(buffer.flush(timeout_s=0))
        )
        for _ in range(3):
            buffer.add_step(*shuffled_step(rng))
    assert heard == [0]


def test_fragment_whose_call_raises_the_warning_is_not_taken_twice() -> None:
    first, other = (World([[(100, TERMINATED)]] * 2, env_id=[0, 1]).rollout(3) for _ in range(2))
    with make_buffer(TableConfig(items=Sequences(8))) as buffer:
        buffer.add_batch(named(first, 0))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # begins the episodes again, which cuts those that are open
            with pytest.raises(rollouts.ReplayWarning):
                buffer.add_batch(named(other, 1))
            assert buffer.add_batch(named(other, 1)) == 0
        assert buffer.stats()["steps"]["discarded"] == {"duplicate": 6}


def test_episodes_that_the_user_ends_are_no_loss_to_tell() -> None:
    world = World([[(100, TERMINATED)]] * 2, env_id=[0, 1])
    with make_buffer(TableConfig(items=Sequences(8))) as buffer, warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            buffer.add_batch(world.rollout(5))
            buffer.end_episodes()
            world.number, world.t = [n + 1 for n in world.number], [0, 0]


def test_a_cut_step_keeps_its_own_priority_and_survives_a_checkpoint() -> None:
    rng = np.random.default_rng(3)
    table = TableConfig(sampler="prioritized")
    with make_buffer(table) as buffer, make_buffer(table) as other:
        for number in range(5):
            priority = np.arange(NUM_ENVS) + 10.0 * number
            acted, step = shuffled_step(rng)
            buffer.add_step(acted._replace(priority=priority), step)
        other.load_state(buffer.state())
        last = shuffled_step(rng)
        for one in (buffer, other):
            one.add_step(*last)
            found = one.gather(one.store.keys("replay")).priority
            expected = np.arange(NUM_ENVS) + 10.0 * np.arange(5)[:, None]
            np.testing.assert_array_equal(found, expected.reshape(-1))
