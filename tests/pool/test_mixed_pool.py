# SPDX-License-Identifier: Apache-2.0
"""Pools of several ids with equal spaces.

tests/parity/test_env_options_data.py compares their data with those of pure pools.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import rollouts
from rollouts.errors import SpecError

CART_POLES = ["CartPole-v0", "CartPole-v1", "CartPole-v1"]
# a pole that hangs and is not pushed stays where it is, until the time limit
HANGING = {"gravity": -9.8, "force_mag": 0.0}

needs_atari = pytest.mark.skipif(
    "ALE/Pong-v5" not in rollouts.env_ids(), reason="needs the ale-py package"
)


def ends(env: rollouts.VectorEnv, steps: int) -> list[int]:
    """The step in which each environment is truncated first; 0: in none."""
    first = np.zeros(env.num_envs, np.int64)
    env.reset()
    for step in range(1, steps + 1):
        truncated = env.step(np.zeros(env.num_envs, np.int32))[3]
        first[truncated & (first == 0)] = step
    return first.tolist()


@pytest.mark.parametrize("num_threads", [1, 2])
def test_each_id_has_its_own_time_limit(num_threads: int) -> None:
    with rollouts.make_vec(CART_POLES, seed=1, num_threads=num_threads, **HANGING) as env:
        assert ends(env, 501) == [200, 500, 500]


def test_max_episode_steps_is_for_all() -> None:
    with rollouts.make_vec(CART_POLES, seed=1, max_episode_steps=12, **HANGING) as env:
        assert ends(env, 13) == [12, 12, 12]


def test_num_envs_is_the_number_of_ids() -> None:
    with rollouts.make_vec(CART_POLES) as env:
        assert env.num_envs == 3
    with rollouts.make_vec(tuple(CART_POLES), 3, batch_size=2) as env:
        assert env.num_envs == 3
    with pytest.raises(SpecError, match=r"id has 3 ids, .*num_envs is 4"):
        rollouts.make_vec(CART_POLES, 4)
    with pytest.raises(SpecError, match="id has 0 ids"):
        rollouts.make_vec([])


def test_env_specs_has_one_entry_per_environment() -> None:
    with rollouts.make_vec(CART_POLES) as env:
        assert [spec.id for spec in env.env_specs] == CART_POLES
        assert [spec.max_episode_steps for spec in env.env_specs] == [200, 500, 500]
        assert env.env_spec == env.env_specs[0]
    with rollouts.make_vec("CartPole-v1", 2) as env:
        assert env.env_specs == (env.env_spec, env.env_spec)


def test_pickle_is_a_recipe_of_all_ids() -> None:
    with rollouts.make_vec(CART_POLES, seed=4, gravity=[1.0, 2.0, 3.0]) as env:
        first = env.reset()[0].copy()
        with pickle.loads(pickle.dumps(env)) as other:
            assert repr(other) == repr(env)
            assert other.env_specs == env.env_specs
            np.testing.assert_array_equal(other.reset()[0], first)
            np.testing.assert_equal(other.env_options, env.env_options)


def test_unequal_spaces_are_refused_by_name() -> None:
    with pytest.raises(SpecError, match=r"observation space of CartPole-v1 is .*Pendulum-v1 is"):
        rollouts.make_vec(["CartPole-v1", "CartPole-v0", "Pendulum-v1"])


def test_an_id_that_does_not_know_an_option_is_named() -> None:
    assert "gravity" not in rollouts.env_spec("Taxi-v3").options
    with pytest.raises(SpecError, match="Taxi-v3 has no option 'gravity'"):
        rollouts.make_vec(["Taxi-v3", "Taxi-v4"], gravity=1.0)
    with pytest.raises(SpecError, match="unknown id 'CartPole-v7'"):
        rollouts.make_vec(["CartPole-v1", "CartPole-v7"])
    with pytest.raises(SpecError, match="id must be a str"):
        rollouts.make_vec(["CartPole-v1", 3])


def test_reset_options_reach_every_part() -> None:
    ids = ["CartPole-v0", "CartPole-v1", "CartPole-v0", "CartPole-v1"]
    gravity = np.array([1.0, 2.0, 3.0, 4.0])
    with rollouts.make_vec(ids, seed=2) as env:
        env.reset()
        mask = np.array([True, False, True, True])
        env.reset(options={"gravity": gravity, "reset_mask": mask})
        assert env.env_options["gravity"].tolist() == [1.0, 9.8, 3.0, 4.0]
        # wrong in a late part: nothing changes in the parts before it
        with pytest.raises(SpecError, match="row 3"):
            env.reset(options={"gravity": [5.0, 5.0, 5.0, "five"]})
        assert env.env_options["gravity"].tolist() == [1.0, 9.8, 3.0, 4.0]

        env.reset(seed=9)
        obs = env.step(np.ones(4, np.int32))[0].copy()
        with rollouts.make_vec("CartPole-v1", 4, gravity=[1.0, 9.8, 3.0, 4.0]) as pure:
            pure.reset(seed=9)
            np.testing.assert_array_equal(pure.step(np.ones(4, np.int32))[0], obs)


def test_states_are_of_their_own_environment() -> None:
    with rollouts.make_vec(["Taxi-v3", "Taxi-v4"], seed=2) as env:
        env.reset()
        states = env.get_state()
        env.set_state(None, states)
        with rollouts.make_vec("Taxi-v4", 1) as pure:
            pure.set_state(None, states[1:])
            actions = np.zeros(2, np.int32)
            assert pure.step(actions[:1])[0][0] == env.step(actions)[0][1]


@needs_atari
class TestAtari:
    IDS = ("ALE/Pong-v5", "ALE/Breakout-v5")

    def test_games_need_the_full_action_space(self) -> None:
        expected = r"action space of ALE/Pong-v5 .*ALE/Breakout-v5 .*; full_action_space=True"
        with pytest.raises(SpecError, match=expected):
            rollouts.make_vec(self.IDS)

    def test_states_of_another_game_are_refused(self) -> None:
        with rollouts.make_vec(self.IDS, seed=1, full_action_space=True) as env:
            env.reset()
            states = env.get_state()
            env.set_state(None, states)
            with pytest.raises(SpecError, match=r"state 0 .* with other options"):
                env.set_state(None, states[::-1])

    def test_a_game_stays_what_it_is_when_options_change(self) -> None:
        same = {"full_action_space": True, "num_threads": 1}
        with rollouts.make_vec(self.IDS, seed=1, **same) as env:
            env.reset()
            obs, _ = env.reset(seed=3, options={"noop_max": [1, 2]})
            assert "rom_path" not in env.env_options
            for row, game in enumerate(self.IDS):
                with rollouts.make_vec(game, 2, noop_max=row + 1, **same) as pure:
                    np.testing.assert_array_equal(pure.reset(seed=3)[0][row], obs[row])
