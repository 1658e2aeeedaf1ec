# SPDX-License-Identifier: Apache-2.0
"""recv of more or fewer rows than a batch, and drain."""

from __future__ import annotations

import numpy as np
import pytest

import rollouts

NUM_ENVS = 16


@pytest.fixture
def env() -> rollouts.VectorEnv:
    with rollouts.make_vec(
        "CartPole-v1", NUM_ENVS, batch_size=6, num_threads=2, seed=3, autoreset_mode="same_step"
    ) as env:
        env.async_reset()
        yield env


@pytest.fixture(scope="module")
def trajectories() -> tuple[np.ndarray, list[rollouts.StepBatch]]:
    """Actions (T, N) and what a synchronous pool answers to them."""
    steps = 400
    actions = np.random.default_rng(0).integers(0, 2, (steps, NUM_ENVS))
    with rollouts.make_vec("CartPole-v1", NUM_ENVS, seed=3, autoreset_mode="same_step") as env:
        env.reset()
        answers = []
        for row in actions:
            env.send(row)
            answers.append(env.recv_batch())
    return actions, answers


@pytest.mark.parametrize("seed", range(4))
def test_any_number_of_rows_gives_the_data_of_a_synchronous_pool(env, trajectories, seed) -> None:
    actions, answers = trajectories
    random = np.random.default_rng(seed)
    time = np.full(NUM_ENVS, -1)  # the last answer's; -1: the reset's
    sizes = set()
    while time.min() < len(actions) - 1:
        least = int(random.integers(1, env.num_in_flight + 1))
        most = int(random.integers(least, NUM_ENVS + 1))
        step = env.recv_batch(min_envs=least, max_envs=most)
        assert least <= len(step.obs) <= most
        sizes.add(len(step.obs))
        time[step.env_id] += 1
        for row, env_id in enumerate(step.env_id):
            if time[env_id] == 0:
                continue
            expected = answers[time[env_id] - 1]
            ended = step.terminated[row] or step.truncated[row]
            for name in ("obs", "reward", "terminated", "truncated", "episode_return"):
                np.testing.assert_array_equal(
                    getattr(step, name)[row], getattr(expected, name)[env_id]
                )
            if ended:
                np.testing.assert_array_equal(step.final_obs[row], expected.final_obs[env_id])
        going = step.env_id[time[step.env_id] < len(actions)]
        going = going[time[going] < len(actions) - 1]
        env.send(actions[time[going], going], going)
        if env.num_in_flight == 0:
            break
    assert len(sizes) > 5


def test_recv_returns_no_more_than_the_rest_of_a_buffer_unless_asked(env) -> None:
    assert len(env.recv(min_envs=4, max_envs=4)[0]) == 4
    # two rows are left in the buffer of six
    assert len(env.recv(min_envs=1)[0]) <= 2
    assert len(env.recv(min_envs=7, max_envs=7)[0]) == 7


def test_defaults_of_one_bound_follow_the_other(env) -> None:
    assert len(env.recv(max_envs=2)[0]) == 2
    assert len(env.recv(min_envs=9)[0]) == 9


def test_held_rows_of_a_partly_received_buffer_keep_their_contents(env) -> None:
    held = []
    for _ in range(200):
        obs, *_, info = env.recv(min_envs=2, max_envs=3)
        held.append((obs, obs.copy()))
        env.send(np.zeros(len(obs), int), info["env_id"])
        held = held[-40:]
        for view, copy in held:
            np.testing.assert_array_equal(view, copy)


def test_drain_returns_everything_in_flight(env) -> None:
    first = env.recv()[4]["env_id"]
    rest = env.drain()[4]["env_id"]
    assert sorted([*first, *rest]) == list(range(NUM_ENVS))
    assert env.num_in_flight == 0
    assert env.drain()[0].shape == (0, 4)
    assert len(env.get_state()) == NUM_ENVS
    # the actions of the next send are for what the last recv returned
    env.send(np.zeros(len(rest), int))
    assert sorted(env.drain()[4]["env_id"]) == sorted(rest)


def test_drain_of_a_synchronous_pool(sync_env) -> None:
    assert sync_env.drain()[0].shape == (0, 4)
    sync_env.send([0, 1], [12, 10])
    assert sync_env.drain()[4]["env_id"].tolist() == [12, 10]


def test_bounds_that_cannot_be_met_are_refused(env, sync_env) -> None:
    with pytest.raises(rollouts.SpecError, match=r"min_envs is 17, .*number from 1 to 16"):
        env.recv(min_envs=17)
    with pytest.raises(rollouts.SpecError, match=r"max_envs is 4, .*number from 5 to 16"):
        env.recv(min_envs=5, max_envs=4)
    with pytest.raises(rollouts.SpecError, match=r"max_envs is 0, .*number from 1 to 16"):
        env.recv(max_envs=0)
    env.recv()
    with pytest.raises(rollouts.ProtocolError, match="waits for 11 environments and 10 are"):
        env.recv(min_envs=11)
    with pytest.raises(rollouts.SpecError, match="asynchronous"):
        sync_env.recv(min_envs=1)
