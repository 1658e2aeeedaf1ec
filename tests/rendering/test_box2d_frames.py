# SPDX-License-Identifier: Apache-2.0
"""Frames of Box2D's environments are Gymnasium's, pixel by pixel, but for what no state has."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from own_numbers import NumpyLike, Rng

import rollouts
from rollouts.errors import SpecError

IDS = (
    "LunarLander-v3",
    "LunarLanderContinuous-v3",
    "BipedalWalker-v3",
    "BipedalWalkerHardcore-v3",
)
SEED = 11

pytestmark = pytest.mark.skipif(IDS[0] not in rollouts.env_ids(), reason="a build without Box2D")


def drawn(reference: Any) -> np.ndarray:
    """The reference's frame without the lander's particles and the walker's flickering ray."""
    task = reference.unwrapped
    if hasattr(task, "particles"):
        task._clean_particles(True)
    task.lidar_render = 50
    return reference.render()


@pytest.mark.parametrize("env_id", IDS)
def test_frames_are_gymnasiums(env_id: str) -> None:
    pytest.importorskip("Box2D", reason="Gymnasium's environments need Box2D")
    generator = np.random.default_rng(3)
    shown = []
    with rollouts.make_vec(env_id, 12, seed=SEED, num_threads=1) as env:
        env.reset()
        actions: list[Any] = []
        for _ in range(60):
            space = env.single_action_space
            actions.append(
                generator.integers(space.n, size=12)
                if isinstance(space, gymnasium.spaces.Discrete)
                else generator.uniform(-1, 1, (12, *space.shape)).astype(np.float32)
            )
            _, _, terminated, _, _ = env.step(actions[-1])
            if terminated.any():
                break
        frames = env.render()
    # worlds of several grounds, each at the same step
    for index, frame in enumerate(frames):
        # a walker's second world would show its first
        reference = gymnasium.make(env_id, disable_env_checker=True, render_mode="rgb_array")
        reference.unwrapped.np_random = NumpyLike(Rng(SEED, index, 0))
        reference.reset()
        for action in actions:
            reference.step(action[index])
        np.testing.assert_array_equal(frame, drawn(reference))
        shown.append(frame.tobytes())
    assert len(set(shown)) == 12


def test_walker_that_is_far_is_in_the_picture() -> None:
    bipedal_walker = pytest.importorskip(
        "gymnasium.envs.box2d.bipedal_walker", reason="Gymnasium's environments need Box2D"
    )
    env_id = "BipedalWalkerHardcore-v3"
    reference = gymnasium.make(env_id, disable_env_checker=True, render_mode="rgb_array")
    reference.unwrapped.np_random = NumpyLike(Rng(SEED, 0, 0))
    reference.reset()
    walker = bipedal_walker.BipedalWalkerHeuristics()
    with rollouts.make_vec(env_id, 1, seed=SEED, num_threads=1) as env:
        obs, _ = env.reset()
        terminated = np.zeros(1, bool)
        while not terminated[0]:
            action = walker.step_heuristic(obs[0]).astype(np.float32)
            obs, _, terminated, _, _ = env.step(action[None])
            reference.step(action)
        assert reference.unwrapped.scroll > 3
        np.testing.assert_array_equal(env.render()[0], drawn(reference))


def test_films_have_fifty_frames_a_second_and_no_camera() -> None:
    with rollouts.make_vec("LunarLander-v3", 2, seed=1, render_mode="rgb_array") as env:
        env.reset()
        assert env.metadata["render_fps"] == 50
        with pytest.raises(SpecError, match="camera"):
            env.render(camera=0)
