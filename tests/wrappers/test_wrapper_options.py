# SPDX-License-Identifier: Apache-2.0
"""Wrappers that do not fit are refused with a sentence, and those that do are seen everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts import RolloutsError, SpecError


@pytest.mark.parametrize(
    ("env_id", "wrappers", "message"),
    [
        ("CartPole-v1", {"clip_reward": -1.0}, "positive number"),
        ("CartPole-v1", {"clip_reward": 0}, "positive number"),
        ("CartPole-v1", {"clip_reward": (1, -1)}, "low <= high"),
        ("CartPole-v1", {"clip_reward": (None, None)}, "pair"),
        ("CartPole-v1", {"clip_reward": float("nan")}, "positive number"),
        ("CartPole-v1", {"clip_reward": "sign"}, "pair"),
        ("CartPole-v1", {"frame_stack": 0}, "frame_stack"),
        ("CartPole-v1", {"frame_stack": -2}, "frame_stack"),
        ("CartPole-v1", {"frame_stack": 2.5}, "frame_stack"),
        ("CartPole-v1", {"clip_action": True}, "Box actions of float32"),
        ("Pendulum-v1", {"clip_action": 3}, "clip_action"),
        ("MuJoCo-v0", {"clip_action": True, "xml_file": "hopper.xml"}, "Gymnasium's wrappers"),
        ("CartPole-v1", {"rescale_action": True}, "Box actions"),
        ("Pendulum-v1", {"rescale_action": (1, -1)}, "low < high"),
        ("Pendulum-v1", {"rescale_action": (0, float("inf"))}, "finite"),
        ("Pendulum-v1", {"rescale_action": 1.0}, "pair"),
        ("Pendulum-v1", {"rescale_action": (np.zeros(3), np.ones(3))}, "shape"),
        ("Pendulum-v1", {"time_aware": "seconds"}, "fraction"),
        ("Pendulum-v1", {"time_aware": True, "max_episode_steps": 0}, "no time limit"),
        ("Pendulum-v1", {"normalize_observation": {"momentum": 1}}, "unknown fields"),
        ("Pendulum-v1", {"normalize_observation": {"clip": -1}}, "positive"),
        ("Pendulum-v1", {"normalize_observation": 3}, "dict"),
        ("Pendulum-v1", {"normalize_reward": {"gamma": 1.5}}, "up to 1"),
        ("FrozenLake-v1", {"normalize_observation": True}, "Box observations"),
        ("FrozenLake-v1", {"frame_stack": 2}, "Box observations"),
        ("FrozenLake-v1", {"time_aware": True}, "Box observations"),
        ("MuJoCo-v0", {"clip_reward": 1, "xml_file": "hopper.xml"}, "Gymnasium's wrappers"),
    ],
)
def test_bad_wrappers_are_refused(env_id: str, wrappers: dict[str, Any], message: str) -> None:
    with pytest.raises(RolloutsError, match=message):
        rollouts.make_vec(env_id, 2, **wrappers)


def test_pixels_are_not_normalised() -> None:
    pytest.importorskip("ale_py")
    for name in ("normalize_observation", "time_aware"):
        with pytest.raises(SpecError, match="divide pixels by 255"):
            rollouts.make_vec("ALE/Pong-v5", **{name: True})


def test_several_agents_and_devices_are_refused() -> None:
    with pytest.raises(SpecError, match="several agents"):
        rollouts.make_vec(rollouts.multi_agent_ids()[0], 2, clip_reward=1.0)
    with pytest.raises(SpecError, match="threads of a pool wrap"):
        rollouts.make_vec("Pendulum-v1", 2, device="cpu-emulation", clip_action=True)
    with pytest.raises(SpecError, match="threads of a pool wrap"):
        rollouts.make_vec("CartPole-v1", 2, device="cpu-emulation", frame_stack=2)


def test_wrappers_stay_as_they_were_made() -> None:
    with (
        rollouts.make_vec("CartPole-v1", 2, frame_stack=2) as env,
        pytest.raises(SpecError, match="wrappers stay"),
    ):
        env.reset(options={"frame_stack": 3})


def test_specs_show_what_wrappers_make_of_the_spaces() -> None:
    wrappers: dict[str, Any] = {"time_aware": "fraction", "frame_stack": 4, "rescale_action": True}
    spec = rollouts.env_spec("HalfCheetah-v5", **wrappers)
    with rollouts.make_vec("HalfCheetah-v5", 2, **wrappers) as env:
        assert env.single_observation_space == spec.single_observation_space
        assert env.single_action_space == spec.single_action_space
        assert spec.single_observation_space.shape == (4, 18)
        obs, _ = env.reset()
        assert env.observation_space.contains(obs)


def test_wrappers_that_are_off_change_nothing() -> None:
    off = {"clip_reward": None, "frame_stack": None, "rescale_action": False, "time_aware": False,
           "normalize_observation": False, "normalize_reward": False}  # fmt: skip
    with (
        rollouts.make_vec("Pendulum-v1", 3, seed=1, **off) as env,
        rollouts.make_vec("Pendulum-v1", 3, seed=1) as bare,
    ):
        assert env.single_observation_space == bare.single_observation_space
        np.testing.assert_array_equal(env.reset()[0], bare.reset()[0])


def test_games_of_a_mixed_pool_are_stacked_each_by_itself() -> None:
    pytest.importorskip("ale_py")
    with rollouts.make_vec(
        ["ALE/Pong-v5", "ALE/Breakout-v5"], full_action_space=True, frame_stack=2, seed=0
    ) as env:
        obs, _ = env.reset()
        assert obs.shape == (2, 2, *rollouts.env_spec("ALE/Pong-v5").single_observation_space.shape)
        np.testing.assert_array_equal(obs[:, 0], obs[:, 1])
        newest = obs[:, 1].copy()
        obs, *_ = env.step(np.zeros(2, np.int64))
        np.testing.assert_array_equal(obs[:, 0], newest)
