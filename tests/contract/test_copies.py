# SPDX-License-Identifier: Apache-2.0
"""Copies of environments under way, parts that are one number, attributes that are missing."""

from __future__ import annotations

import copy
import warnings

import gymnasium
import numpy as np
import pytest

import rollouts
from rollouts.envs.hosted import from_env_fns


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "MiniGrid-Empty-8x8-v0"])
def test_a_deep_copy_goes_on_from_where_its_original_is(env_id: str) -> None:
    env = gymnasium.make(f"rollouts:rollouts/{env_id}")
    env.reset(seed=1)
    env.action_space.seed(1)
    env.step(env.action_space.sample())
    twin = copy.deepcopy(env)
    for _ in range(5):
        action = env.action_space.sample()
        mine, theirs = env.step(action), twin.step(action)
        np.testing.assert_equal(mine, theirs)
        if mine[2] or mine[3]:
            break
    # each has a pool of its own
    env.close()
    twin.reset()
    twin.close()


def test_a_deep_copy_has_the_options_that_resets_have_changed() -> None:
    env = gymnasium.make("rollouts:rollouts/CartPole-v1")
    env.reset(seed=1, options={"pole_half_length": 0.7})
    twin = copy.deepcopy(env)
    for _ in range(5):
        np.testing.assert_equal(env.step(0), twin.step(0))
    assert twin.unwrapped.pool.env_options["pole_half_length"] == 0.7


def test_agents_as_rows_are_copied_as_their_environments_are() -> None:
    rows = rollouts.make_vec("TagGridWorld-v0", 2, seed=1).as_single_agent()
    first, _ = rows.reset()
    twin = copy.deepcopy(rows)
    np.testing.assert_array_equal(twin.reset()[0], first)
    twin.close()
    rows.close()


@pytest.mark.parametrize("num_processes", [0, 1])
def test_an_attribute_that_hosted_environments_lack_is_an_attribute_error(
    num_processes: int,
) -> None:
    made = from_env_fns([lambda: gymnasium.make("CartPole-v1")] * 2, num_processes=num_processes)
    with made as env:
        for ask in (env.get_attr, env.call):
            with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
                ask("nothing")
            with pytest.raises(rollouts.EnvError):
                ask("nothing")


@pytest.mark.parametrize("env_id", ["MiniGrid-Empty-8x8-v0", "BabyAI-GoToRedBall-v0"])
def test_a_part_that_is_one_number_is_an_array_as_its_space_has_it(env_id: str) -> None:
    env = gymnasium.make(f"rollouts:rollouts/{env_id}", flatten_observation=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        obs, _ = env.reset(seed=1)
        for _ in range(3):
            assert isinstance(obs["direction"], np.ndarray)
            obs, *_ = env.step(env.action_space.sample())
    env.close()
