# SPDX-License-Identifier: Apache-2.0
"""Observations as dicts: the flat batch under other names, in every way to receive one."""

from __future__ import annotations

import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import rollouts
from rollouts.errors import SpecError
from rollouts.families import dm_control

pytestmark = pytest.mark.skipif(not dm_control.installed(), reason="needs the dm-control package")

ENV_ID = "HopperHop-v1"
SHAPES = {"position": (6,), "velocity": (7,), "touch": (2,)}


def make(num_envs: int = 3, **arguments: object) -> rollouts.VectorEnv:
    arguments = {"seed": 1, "num_threads": 1, "flatten_observation": False} | arguments
    return rollouts.make_vec(ENV_ID, num_envs, **arguments)


def join(parts: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([part.reshape(len(part), -1) for part in parts.values()], axis=1)


def test_spaces_are_dicts_in_dm_controls_order() -> None:
    with make(3) as env:
        space = env.single_observation_space
        assert isinstance(space, spaces.Dict)
        assert {name: box.shape for name, box in space.items()} == SHAPES
        assert list(space) == list(SHAPES)
        assert {name: box.shape for name, box in env.observation_space.items()} == {
            name: (3, *shape) for name, shape in SHAPES.items()
        }
        obs, _ = env.reset()
        assert env.observation_space.contains(obs)


def test_every_way_to_receive_has_the_flat_numbers() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (9, 3, 4)).astype(np.float32)
    arguments = {"max_episode_steps": 4, "autoreset_mode": "same_step"}
    with make(**arguments) as env, make(flatten_observation=True, **arguments) as flat:
        np.testing.assert_array_equal(join(env.reset()[0]), flat.reset()[0])
        ends = 0
        for action in actions:
            obs, _, _, _, info = env.step(action)
            want, _, _, _, want_info = flat.step(action)
            np.testing.assert_array_equal(join(obs), want)
            if "final_obs" in info:
                ends += 1
                for row, want_row in zip(info["final_obs"], want_info["final_obs"], strict=True):
                    np.testing.assert_array_equal(np.concatenate(list(row.values())), want_row)
        assert ends == 2
        env.send(actions[0])
        flat.send(actions[0])
        batch, want_batch = env.recv_batch(), flat.recv_batch()
        np.testing.assert_array_equal(join(batch.obs), want_batch.obs)
        np.testing.assert_array_equal(join(batch.final_obs), want_batch.final_obs)


def test_parts_are_views_that_keep_their_batch() -> None:
    with make() as env:
        obs, _ = env.reset()
        assert not any(part.flags.owndata for part in obs.values())
        kept = {name: (part, part.copy()) for name, part in obs.items()}
        del obs
        for _ in range(20):
            env.step(np.ones((3, 4), np.float32))
        for part, copy in kept.values():
            np.testing.assert_array_equal(part, copy)


def test_float32_parts_and_numbers_without_axes() -> None:
    with rollouts.make_vec(
        "WalkerWalk-v1", 2, seed=1, flatten_observation=False, obs_dtype="float32"
    ) as env:
        obs, _ = env.reset()
        assert obs["height"].shape == (2,) and obs["height"].dtype == np.float32
        assert env.observation_space.contains(obs)
    with rollouts.make_vec("StackerStack2-v1", 2, seed=1, flatten_observation=False) as env:
        obs, _ = env.reset()
        assert obs["arm_pos"].shape == (2, 8, 2) and obs["box_pos"].shape == (2, 2, 4)
        np.testing.assert_allclose((obs["arm_pos"] ** 2).sum(-1), 1)  # sine and cosine


def test_pickled_pools_keep_their_dicts() -> None:
    with make() as env, pickle.loads(pickle.dumps(env)) as copy:
        assert copy.single_observation_space == env.single_observation_space


def test_pools_of_several_tasks_need_equal_parts() -> None:
    with rollouts.make_vec(["WalkerWalk-v1", "WalkerRun-v1"], flatten_observation=False) as env:
        assert set(env.reset()[0]) == {"orientations", "height", "velocity"}


def test_gymnasium_makes_dicts_too() -> None:
    env = gymnasium.make("rollouts/HopperHop-v1", flatten_observation=False)
    obs, _ = env.reset(seed=1)
    assert env.observation_space.contains(obs)
    env.close()


def test_environments_without_parts_say_so() -> None:
    with pytest.raises(SpecError, match=r"CartPole-v1 have none"):
        rollouts.make_vec("CartPole-v1", 2, flatten_observation=False)


def test_xla_is_refused() -> None:
    with make() as env, pytest.raises(SpecError, match="flatten_observation=False"):
        env.xla()
