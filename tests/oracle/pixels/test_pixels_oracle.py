# SPDX-License-Identifier: Apache-2.0
"""Observations from pixels beside Gymnasium's and dm_control's own renderers: equal pixels.

The reference begins where ours begins and gets the same actions. Both draw in this thread, and so
these tests would also fail if a pool left another context of OpenGL current than it had found.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import dm_control_oracle as suite_oracle
import gymnasium
import mujoco
import mujoco_oracle
import numpy as np
import pytest
from gymnasium.wrappers import AddRenderObservation, GrayscaleObservation

import rollouts

pytestmark = pytest.mark.system

SIZE = {"width": 96, "height": 64}
LENS = {"distance": 3.0, "lookat": np.array([0.1, 0.0, 0.5]), "azimuth": 120.0}
STEPS = 3


@pytest.fixture(autouse=True)
def egl(monkeypatch: pytest.MonkeyPatch) -> None:
    # Gymnasium would take glfw, which needs a display
    monkeypatch.setenv("MUJOCO_GL", "egl")


def random_actions(env: rollouts.VectorEnv) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(0)
    low = np.maximum(env.single_action_space.low, -1.0)
    high = np.minimum(env.single_action_space.high, 1.0)
    while True:
        yield generator.uniform(low, high).astype(np.float32)


def check_picture(found: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_array_equal(found, want)
    assert len(np.unique(found.reshape(-1, found.shape[-1]), axis=0)) > 20  # there is something


# a camera that tracks, by Runge-Kutta; by Euler; the free one, of a user's and of the task's own
# lens; flags; version 4
@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("Ant-v5", {}),
        # each case makes two contexts of OpenGL, a second each; `slow` are those drawn as others
        pytest.param("HalfCheetah-v5", {}, marks=pytest.mark.slow),
        ("Humanoid-v5", {"camera_id": -1, "default_camera_config": LENS}),
        pytest.param("Reacher-v5", {"default_camera_config": LENS}, marks=pytest.mark.slow),
        ("InvertedDoublePendulum-v4", {}),
        ("Hopper-v4", {"camera_name": "track"}),
        (
            "Hopper-v5",
            {
                "max_geom": 100,
                "visual_options": {
                    int(mujoco.mjtVisFlag.mjVIS_CONTACTPOINT): True,
                    int(mujoco.mjtVisFlag.mjVIS_TRANSPARENT): True,
                },
            },
        ),
    ],
)
def test_pictures_are_those_of_gymnasium(env_id: str, options: dict[str, Any]) -> None:
    options = {**SIZE, **options}
    theirs = mujoco_oracle.make_gymnasium(env_id, render_mode="rgb_array", **options)
    with rollouts.make_vec(env_id, seed=3, num_threads=1, from_pixels=True, **options) as ours:
        obs, _ = ours.reset()
        mujoco_oracle.begin_equal(theirs, mujoco_oracle.physics_state(ours))
        check_picture(obs[0], theirs.render())
        for _, action in zip(range(STEPS), random_actions(ours), strict=False):
            obs, *_ = ours.step(action[None])
            theirs.step(action)
            # a picture shows the bodies one substep before, as MuJoCo leaves them
            check_picture(obs[0], theirs.render())
    theirs.close()


def test_the_wrappers_of_gymnasium_have_the_same_spaces_and_numbers() -> None:
    bare = mujoco_oracle.make_gymnasium("Swimmer-v5", render_mode="rgb_array", **SIZE)
    both = AddRenderObservation(bare, render_only=False)
    with rollouts.make_vec(
        "Swimmer-v5", seed=3, num_threads=1, from_pixels=True, flatten_observation=False, **SIZE
    ) as ours:
        assert ours.single_observation_space == both.observation_space
        obs, _ = ours.reset()
        state = mujoco_oracle.begin_equal(bare, mujoco_oracle.physics_state(ours))
        want = both.observation(state)
        assert obs.keys() == want.keys()
        for name, value in want.items():
            np.testing.assert_array_equal(obs[name][0], value)

    gray = GrayscaleObservation(AddRenderObservation(bare))
    with rollouts.make_vec(
        "Swimmer-v5", seed=3, num_threads=1, from_pixels=True, grayscale=True, **SIZE
    ) as ours:
        assert ours.single_observation_space == gray.observation_space
        obs, _ = ours.reset()
        mujoco_oracle.begin_equal(bare, mujoco_oracle.physics_state(ours))
        np.testing.assert_array_equal(obs[0], gray.observation(bare.render()))
    bare.close()


@pytest.fixture
def real_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """dm_control with OpenGL, which dm_control_oracle takes away."""
    engine = importlib.import_module("dm_control.mujoco.engine")
    suite_oracle.suite()
    # whatever it found when it was imported
    egl_renderer = importlib.import_module("dm_control._render.pyopengl.egl_renderer")
    monkeypatch.setattr(engine._render, "Renderer", egl_renderer.EGLContext)
    monkeypatch.setattr(engine.Physics, "contexts", suite_oracle.gl_contexts())


# a camera of the model by number and by name, and the free one; a target that each episode draws
# in the model; a terrain, and range finders
@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("CheetahRun-v1", {"camera_id": -1}),
        ("FishSwim-v1", {"camera_name": "fixed_top"}),
        ("QuadrupedEscape-v1", {"camera_id": 2}),
    ],
)
def test_pictures_are_those_of_dm_control(
    env_id: str, options: dict[str, Any], real_contexts: None
) -> None:
    theirs = suite_oracle.make_dm_control(env_id)
    physics = theirs.physics
    (camera,) = options.values()
    with rollouts.make_vec(
        env_id, seed=3, num_threads=1, from_pixels=True, **SIZE, **options
    ) as ours:
        obs, _ = ours.reset()
        suite_oracle.begin_equal(theirs, ours.get_state()[0])
        if physics.model.nhfield:
            with physics.contexts.gl.make_current() as context:
                pointer = physics.contexts.mujoco.ptr
                context.call(mujoco.mjr_uploadHField, physics.model.ptr, pointer, 0)
        check_picture(obs[0], physics.render(camera_id=camera, **SIZE))
        for _, action in zip(range(STEPS), random_actions(ours), strict=False):
            obs, *_ = ours.step(action[None])
            theirs.step(action)
            check_picture(obs[0], physics.render(camera_id=camera, **SIZE))
    physics.free()


def test_a_camera_without_a_place_of_its_own_is_the_same_in_all_episodes() -> None:
    """Gymnasium's camera looks at the middle of what each environment showed first."""
    model = gymnasium.make("InvertedPendulum-v5").unwrapped.model
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    middle = np.median(data.geom_xpos, axis=0)
    lens = {"distance": 2.04, "trackbodyid": 0, "lookat": middle}
    pictures = []
    for options in ({}, {"default_camera_config": lens}):
        with rollouts.make_vec(
            "InvertedPendulum-v5", 2, seed=1, num_threads=1, from_pixels=True, **SIZE, **options
        ) as env:
            pictures += [env.reset()[0].copy(), env.reset()[0].copy()]
    np.testing.assert_array_equal(pictures[:2], pictures[2:])
    assert (pictures[0] != pictures[1]).any()
