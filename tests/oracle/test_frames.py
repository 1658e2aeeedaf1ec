# SPDX-License-Identifier: Apache-2.0
"""Frames beside those of Gymnasium's renderer and of ale-py, in the same states: equal pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from atari_oracle import load_emulator

import rollouts
from rollouts.mujoco import integration_state
from rollouts.rendering.frame_options import read_options
from rollouts.rendering.mujoco_scene import CAMERA_CONFIGS, MujocoScene
from rollouts.rendering.opengl import gl_thread

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def egl(monkeypatch: pytest.MonkeyPatch) -> None:
    # Gymnasium would take glfw, which needs a display
    monkeypatch.setenv("MUJOCO_GL", "egl")


# a camera that tracks; a free one of the task's own that looks at the first frame's middle; another
@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        ("Ant-v5", {}),
        ("Pusher-v5", {}),
        ("InvertedDoublePendulum-v5", {}),
        (
            "Hopper-v5",
            {
                "width": 320,
                "height": 240,
                "camera_id": -1,
                "default_camera_config": {"distance": 6.0, "lookat": np.array([0.0, 0.0, 1.0])},
                "visual_options": {int(mujoco.mjtVisFlag.mjVIS_CONTACTPOINT): True},
            },
        ),
    ],
)
def test_mujoco_frames_are_those_of_gymnasium(env_id: str, options: dict[str, Any]) -> None:
    reference = gymnasium.make(env_id, render_mode="rgb_array", **options).unwrapped
    with rollouts.make_vec(env_id, 3, seed=3, num_threads=1, **options) as env:
        env.action_space.seed(0)
        env.reset()
        reference.reset(seed=0)
        for _ in range(3):
            state = integration_state(env.get_state([1])[0])
            signature = mujoco.mjtState.mjSTATE_INTEGRATION
            mujoco.mj_setState(reference.model, reference.data, state, signature)
            # after a step the arrays that it draws are those of one substep before
            mujoco.mj_forward(reference.model, reference.data)
            (frame,) = env.render(1)
            np.testing.assert_array_equal(frame, reference.render())
            assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 50  # something is to be seen
            for _ in range(7):
                env.step(env.action_space.sample())
    reference.close()


def test_the_pace_is_that_of_gymnasium() -> None:
    for env_id in CAMERA_CONFIGS:
        reference = gymnasium.make(env_id)
        with rollouts.make_vec(env_id, num_threads=1, render_mode="rgb_array") as env:
            assert env.metadata["render_fps"] == reference.metadata["render_fps"]


def test_atari_frames_are_the_emulators_screen_in_every_step() -> None:
    ale = load_emulator("breakout")
    options = {"noop_max": 0, "use_fire_reset": False, "repeat_action_probability": 0.0}
    with rollouts.make_vec("ALE/Breakout-v5", 2, frameskip=3, num_threads=1, **options) as env:
        actions = ale.getMinimalActionSet()
        rng = np.random.default_rng(0)
        env.reset()
        np.testing.assert_array_equal(env.render([1])[0], ale.getScreenRGB())
        colours = set()
        ended = False
        while not ended:
            action = int(rng.integers(len(actions)))
            for _ in range(3):
                if not ale.game_over():
                    ale.act(actions[action])
            *_, terminated, _, _ = env.step(np.array([0, action]))
            (frame,) = env.render([1])
            # the frame that ends the game is shown, too
            np.testing.assert_array_equal(frame, ale.getScreenRGB())
            colours |= {tuple(colour) for colour in frame[::7, ::5].reshape(-1, 3)}
            ended = bool(terminated[1])
        assert len(colours) > 5


@pytest.mark.parametrize("engine", ("ale", "native"))
def test_what_a_loaded_atari_state_shows(engine: str) -> None:
    """ALE's states have no picture: the next one is two frames ahead. Ours have theirs."""
    ale = load_emulator("pong")
    options = {"noop_max": 0, "use_fire_reset": False, "repeat_action_probability": 0.0}
    with rollouts.make_vec(
        "ALE/Pong-v5", 2, engine=engine, frameskip=1, num_threads=1, **options
    ) as env:
        env.reset()
        for _ in range(80):
            env.step(np.array([2, 0]))
            ale.act(ale.getMinimalActionSet()[2])
        ids = np.arange(env.env_id_offset, env.env_id_offset + env.num_envs)
        env.set_state(ids[1:], env.get_state(ids[:1]))
        np.testing.assert_array_equal(env.render(0)[0], ale.getScreenRGB())
        for _ in range(2 if engine == "ale" else 0):
            ale.act(0)
        np.testing.assert_array_equal(env.render(1)[0], ale.getScreenRGB())
        env.step(np.array([0, 0]))
        first, second = env.render()
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0"])
def test_classic_frames_are_those_of_gymnasium(env_id: str) -> None:
    reference = gymnasium.make(env_id, render_mode="rgb_array").unwrapped
    reference.reset(seed=0)
    with rollouts.make_vec(env_id, 2, seed=1, num_threads=1, render_mode="rgb_array") as env:
        assert env.metadata["render_fps"] == reference.metadata["render_fps"]
        env.reset()
        for _ in range(4):
            env.step(env.action_space.sample())
        reference.state = np.frombuffer(env.engine.pool.get_state(1), np.float64)
        frames = env.render()
        np.testing.assert_array_equal(frames[1], reference.render())
        assert (frames[0] != frames[1]).any()


def test_a_pole_is_drawn_as_long_as_it_is() -> None:
    with rollouts.make_vec("CartPole-v1", 2, pole_half_length=[0.25, 0.5]) as env:
        env.reset(seed=0)
        env.engine.pool.set_state(1, env.engine.pool.get_state(0))
        short, long = env.render()
        assert (short != long).any()


def draw(
    model: mujoco.MjModel,
    env: rollouts.VectorEnv,
    row: int,
    names: list[str],
    size: dict[str, Any],
    camera: str | None = None,
) -> np.ndarray:
    """A frame of one environment from a model of its own, which has the fields `names` changed."""
    for name in names:
        field = getattr(model, name)
        field[...] = env.model_field(name)[row].reshape(field.shape)
    state = integration_state(env.get_state([row])[0])

    def in_thread() -> np.ndarray:
        # its frames are Gymnasium's, see above
        scene = MujocoScene(model, "", env.env_spec.id, read_options(size))
        frame = scene.draw(0, state, camera)
        scene.free()
        return frame

    return gl_thread.run(in_thread)


@pytest.mark.parametrize("env_id", ["FishSwim-v1", "QuadrupedEscape-v1"])
def test_targets_and_terrains_are_each_environment_s_own(env_id: str) -> None:
    dm_control = pytest.importorskip("rollouts.families.dm_control")
    if not dm_control.installed():
        pytest.skip("dm-control is not installed")
    size = {"width": 96, "height": 64}
    names = ["geom_pos", "geom_size"] + ["hfield_data"] * env_id.startswith("Quadruped")
    with rollouts.make_vec(env_id, 2, seed=1, **size) as env:
        env.reset()
        frames = env.render()
        header = rollouts.env_spec(env_id).header
        for row, frame in enumerate(frames):
            model = mujoco.MjModel.from_binary_path(str(dm_control.model_file(env_id, header)))
            np.testing.assert_array_equal(frame, draw(model, env, row, names, size))
        assert np.abs(frames[0].astype(int) - frames[1]).max() > 50


def test_own_fields_of_a_model_are_drawn() -> None:
    with rollouts.make_vec("Hopper-v5", 2, seed=1, width=64, height=48) as env:
        env.reset()
        before = env.render()
        colours = env.model_field("geom_rgba")
        colours[1, 1:, :3] = 0, 0, 1
        env.reset(seed=1, options={"model": {"geom_rgba": colours}})
        after = env.render()
        np.testing.assert_array_equal(after[0], before[0])
        # orange has become blue
        change = after[1].astype(int) - before[1]
        assert change[..., 0].min() < -50 and change[..., 2].max() > 50


def test_joints_lights_and_cameras_are_drawn_where_they_are() -> None:
    size = {"width": 64, "height": 48}
    with rollouts.make_vec("Hopper-v5", 2, seed=1, **size) as env:
        env.reset()
        names = ["jnt_pos", "light_diffuse", "cam_fovy"]
        own = {name: env.model_field(name) for name in names}
        own["jnt_pos"][1, 3:, 2] += 0.3
        own["light_diffuse"][1] = 0.2
        own["cam_fovy"][1] = 80
        for name, value in own.items():
            plain = env.model_field(name, of_file=True)
            env.reset(seed=1, options={"model": {name: value}})
            env.step(np.full((2, 3), 0.5, np.float32))
            # the other environment has the file's
            frame = env.render(camera="track")[1]
            file = str(Path(rollouts.mujoco.assets_dir()) / "hopper.xml")
            model = mujoco.MjModel.from_xml_path(file)
            np.testing.assert_array_equal(frame, draw(model, env, 1, [name], size, "track"))
            env.reset(options={"model": {name: plain}})
            env.reset(seed=1)
            env.step(np.full((2, 3), 0.5, np.float32))
            assert np.abs(frame.astype(int) - env.render(camera="track")[1]).max() > 20, name
