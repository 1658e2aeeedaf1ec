# SPDX-License-Identifier: Apache-2.0
"""CarRacing's frames are Gymnasium's, pixel by pixel, but for what differs by intention.

The score's digits are our own, and differ inside their box alone; frames have no marks of skidding
wheels, which no observation has either.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from own_numbers import NumpyLike, Rng

import rollouts
from rollouts.errors import SpecError

ENV_ID = "CarRacing-v3"
SEED = 11
SCORE = np.s_[360:385, :72]  # rows and columns of the score's digits

pytestmark = pytest.mark.skipif(ENV_ID not in rollouts.env_ids(), reason="a build without Box2D")


def assert_frames_are_equal(ours: np.ndarray, theirs: np.ndarray) -> None:
    away = np.abs(ours.astype(int) - theirs)
    away[SCORE] = 0
    assert away.max() == 0, f"pixels differ at {np.argwhere(away.max(-1))[:5].tolist()}"


def reference_of(index: int, **options: Any) -> Any:
    pytest.importorskip("Box2D", reason="Gymnasium's environment needs Box2D")
    reference = gymnasium.make(ENV_ID, disable_env_checker=True, render_mode="rgb_array", **options)
    reference.unwrapped.np_random = NumpyLike(Rng(SEED, index, 0))
    reference.reset()
    return reference


def frame_of(reference: Any) -> np.ndarray:
    """Leaves out marks of skidding wheels."""
    reference.unwrapped.car.particles.clear()
    return reference.render()


@pytest.mark.parametrize("domain_randomize", [False, True])
def test_frames_are_gymnasiums(domain_randomize: bool) -> None:
    generator = np.random.default_rng(5)
    options = {"domain_randomize": domain_randomize}
    references = [reference_of(index, **options) for index in range(3)]
    with rollouts.make_vec(ENV_ID, 3, seed=SEED, num_threads=1, **options) as env:
        env.reset()
        for step in range(60):
            space = env.single_action_space
            action = generator.uniform(space.low, space.high, (3, 3)).astype(np.float32)
            env.step(action)
            for reference, one in zip(references, action, strict=True):
                reference.step(one)
            # the camera moves in during the first second
            if step % 20 == 0:
                for frame, reference in zip(env.render(), references, strict=True):
                    assert_frames_are_equal(frame, frame_of(reference))
        shown = {frame.tobytes() for frame in env.render()}
    assert len(shown) == 3


def test_films_have_fifty_frames_a_second_and_no_camera() -> None:
    with rollouts.make_vec(ENV_ID, 2, seed=1, render_mode="rgb_array") as env:
        env.reset()
        assert env.metadata["render_fps"] == 50
        assert env.render()[0].shape == (400, 600, 3)
        with pytest.raises(SpecError, match="camera"):
            env.render(camera=0)
