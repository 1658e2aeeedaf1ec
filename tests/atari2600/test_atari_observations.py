# SPDX-License-Identifier: Apache-2.0
"""Atari's memory as observation against Gymnasium, and large frames against ale-py."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv

import rollouts
from rollouts.errors import SpecError

pytestmark = pytest.mark.system

NO_CHANCE: dict[str, Any] = {"noop_max": 0, "repeat_action_probability": 0.0}


@pytest.mark.parametrize(("game", "to_end"), [("Breakout", True), ("Seaquest", False)])
def test_memory_equals_that_of_gymnasium(game: str, to_end: bool) -> None:
    env_id = f"ALE/{game}-v5"
    reference = gymnasium.make(
        env_id, obs_type="ram", frameskip=4, repeat_action_probability=0.0, max_episode_steps=10**6
    )
    rng = np.random.default_rng(4)
    with rollouts.make_vec(
        env_id, 1, obs_type="ram", stack_num=3, use_fire_reset=False, reward_clipping=False,
        ram_info=True, **NO_CHANCE,
    ) as env:  # fmt: skip
        assert env.single_observation_space == gymnasium.spaces.Box(0, 255, (3, 128), np.uint8)
        obs, info = env.reset()
        theirs, their_info = reference.reset(seed=0)
        want = [np.zeros(128, np.uint8), np.zeros(128, np.uint8), theirs]
        np.testing.assert_array_equal(obs[0], np.stack(want))
        for step in range(400 if to_end else 150):
            action = rng.integers(env.single_action_space.n, size=1)
            obs, reward, terminated, _, info = env.step(action)
            theirs, their_reward, their_end, _, their_info = reference.step(int(action[0]))
            want = [*want[1:], theirs]
            np.testing.assert_array_equal(obs[0], np.stack(want), err_msg=f"step {step}")
            np.testing.assert_array_equal(info["ram"][0], theirs)
            assert (reward[0], terminated[0]) == (their_reward, their_end)
            for name in ("lives", "episode_frame_number", "frame_number"):
                assert info[name][0] == their_info[name], name
            # the next game begins with what this one left in ale-py's memory
            if terminated[0]:
                break
        assert terminated[0] == to_end


def test_a_state_has_the_memories() -> None:
    with rollouts.make_vec("ALE/Breakout-v5", 1, seed=2, obs_type="ram", stack_num=2) as env:
        env.reset()
        for _ in range(9):
            env.step(np.array([1]))
        state = env.get_state()
        want = env.step(np.array([2]))[0].copy()
        env.step(np.array([3]))
        env.set_state(None, state)
        np.testing.assert_array_equal(env.step(np.array([2]))[0], want)


@pytest.mark.parametrize("size", [(300, 200), (100, 300), (420, 320), (211, 84)])
@pytest.mark.parametrize("grayscale", [True, False])
def test_frames_larger_than_the_screen_equal_ale_py(size: tuple[int, int], grayscale: bool) -> None:
    options: dict[str, Any] = {**NO_CHANCE, "img_height": size[0], "img_width": size[1]}
    options["grayscale"] = grayscale
    reference = AtariVectorEnv("breakout", 1, **options)
    rng = np.random.default_rng(7)
    with rollouts.make_vec("ALE/Breakout-v5", 1, **options) as env:
        assert env.single_observation_space == reference.single_observation_space
        np.testing.assert_array_equal(env.reset()[0], reference.reset(seed=3)[0])
        for _ in range(60):
            action = rng.integers(4, size=1)
            np.testing.assert_array_equal(env.step(action)[0], reference.step(action)[0])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"obs_type": "rgb"}, "'obs_type' must be 'screen' or 'ram', got 'rgb'"),
        ({"img_width": 5000}, "expected 1 to 4096 each"),
    ],
)
def test_what_cannot_be_observed_is_named(option: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        rollouts.make_vec("ALE/Breakout-v5", 1, **option)
