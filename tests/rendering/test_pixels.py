# SPDX-License-Identifier: Apache-2.0
"""`from_pixels=True`: spaces, batches, autoreset, states, models, and what is refused."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import rollouts
from rollouts.errors import EngineError, SpecError
from rollouts.rendering import opengl

pytestmark = pytest.mark.system

# each thread that draws makes a context of OpenGL, which takes a second where the CPU draws
SMALL: dict[str, Any] = {"from_pixels": True, "width": 40, "height": 32, "seed": 1}
SMALL |= {"num_threads": 1}
has_suite = pytest.mark.skipif(
    importlib.util.find_spec("dm_control") is None, reason="dm-control is not installed"
)


def actions(env: rollouts.VectorEnv, steps: int) -> np.ndarray:
    shape = (steps, env.num_envs, *env.single_action_space.shape)
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def play(env: rollouts.VectorEnv, steps: int) -> list[np.ndarray]:
    """Frames after a reset and these steps."""
    return [env.reset()[0], *(env.step(action)[0] for action in actions(env, steps))]


@pytest.mark.parametrize(
    ("env_id", "options", "shape"),
    [
        ("HalfCheetah-v5", {}, (84, 84, 3)),
        ("HalfCheetah-v5", {"width": 64, "height": 48}, (48, 64, 3)),
        ("Ant-v4", {"render_width": 64, "render_height": None}, (84, 64, 3)),
        ("Hopper-v5", {"grayscale": True}, (84, 84)),
        ("Hopper-v5", {"frame_stack": 4}, (4, 84, 84, 3)),
        pytest.param("CheetahRun-v1", {}, (84, 84, 3), marks=has_suite),
        ("MuJoCo-v0", {"xml_file": "swimmer.xml"}, (84, 84, 3)),
    ],
)
def test_observations_are_pictures(
    env_id: str, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    assert rollouts.env_spec(env_id, from_pixels=True, **options).single_observation_space == space
    with rollouts.make_vec(env_id, 2, from_pixels=True, seed=1, num_threads=1, **options) as env:
        assert env.single_observation_space == space
        obs, _ = env.reset()
        assert (obs.shape, obs.dtype) == ((2, *shape), np.uint8)
        after, *_ = env.step(actions(env, 1)[0])
        assert (after != obs).any()


def test_frames_have_the_size_and_camera_of_observations() -> None:
    with rollouts.make_vec("Hopper-v5", 2, camera_id=-1, **SMALL) as env:
        obs, _ = env.reset()
        frames = env.render(camera="track")
        assert frames[0].shape == obs[0].shape
        assert (frames[0] != obs[0]).any()
    with rollouts.make_vec("Hopper-v5", 2, **SMALL) as env:
        obs, _ = env.reset()
        np.testing.assert_array_equal(obs, env.render())


def test_pictures_depend_neither_on_threads_nor_on_batches() -> None:
    def seen(**arguments: Any) -> list[np.ndarray]:
        with rollouts.make_vec("HalfCheetah-v5", 4, **{**SMALL, **arguments}) as env:
            return play(env, 4)

    alone = seen(num_threads=1)
    np.testing.assert_array_equal(alone, seen(num_threads=2))
    with rollouts.make_vec(
        "HalfCheetah-v5", 4, batch_size=2, env_id_offset=0, **{**SMALL, "num_threads": 2}
    ) as env:
        sent = actions(env, 4)
        taken = [0] * 4
        env.async_reset()
        while min(taken) < 5:
            obs, _, _, _, info = env.recv()
            ids = info["env_id"]
            for env_id, picture in zip(ids.tolist(), obs, strict=True):
                if taken[env_id] < 5:
                    np.testing.assert_array_equal(picture, alone[taken[env_id]][env_id])
                taken[env_id] += 1
            env.send(np.stack([sent[min(taken[i] - 1, 3), i] for i in ids.tolist()]), ids)


def test_the_last_picture_of_an_episode_is_shown() -> None:
    limit = {"max_episode_steps": 3}
    with rollouts.make_vec("Swimmer-v5", 2, autoreset_mode="disabled", **SMALL, **limit) as env:
        first, *_, last = play(env, 3)
        mask = np.array([True, True])
        begun, _ = env.reset(options={"reset_mask": mask})
    with rollouts.make_vec("Swimmer-v5", 2, autoreset_mode="same_step", **SMALL, **limit) as env:
        env.reset()
        for action in actions(env, 3):
            obs, _, _, truncated, info = env.step(action)
        assert truncated.all()
        np.testing.assert_array_equal(np.stack(info["final_obs"]), last)
        np.testing.assert_array_equal(obs, begun)
    with rollouts.make_vec("Swimmer-v5", 2, autoreset_mode="next_step", **SMALL, **limit) as env:
        seen = play(env, 4)
        np.testing.assert_array_equal(seen[3], last)
        np.testing.assert_array_equal(seen[4], begun)
    assert (first != begun).any()


@pytest.mark.parametrize("env_id", ["Ant-v5", pytest.param("QuadrupedEscape-v1", marks=has_suite)])
def test_a_loaded_state_shows_what_it_showed(env_id: str) -> None:
    with rollouts.make_vec(env_id, 2, **SMALL) as env:
        play(env, 3)
        saved, sent = env.get_state(), actions(env, 5)[3:]
        # a state is saved before its picture was asked for, too
        shown = env.reset(options={"reset_mask": np.zeros(2, np.bool_)})[0].copy()
        later = [env.step(action)[0].copy() for action in sent]
    with rollouts.make_vec(env_id, 2, **{**SMALL, "seed": 9}) as env:
        env.reset()
        # across each other
        env.set_state(np.array([1, 0]), saved)
        same, _ = env.reset(options={"reset_mask": np.zeros(2, np.bool_)})
        np.testing.assert_array_equal(same[::-1], shown)
        for action, want in zip(sent, later, strict=True):
            np.testing.assert_array_equal(env.step(action[::-1])[0][::-1], want)


def test_a_state_of_another_size_is_refused() -> None:
    with rollouts.make_vec("Ant-v5", **SMALL) as env:
        env.reset()
        state = env.get_state()
    with rollouts.make_vec("Ant-v5", **{**SMALL, "width": 41}) as env:
        env.reset()
        with pytest.raises(SpecError, match="options"):
            env.set_state(None, state)


def test_each_environment_has_its_own_model() -> None:
    with rollouts.make_vec("Hopper-v5", 2, **SMALL) as env:
        plain = env.reset(seed=1)[0].copy()
        colours = env.model_field("geom_rgba")
        colours[1, 1:, :3] = 0, 0, 1
        obs, _ = env.reset(seed=1, options={"model": {"geom_rgba": colours}})
        np.testing.assert_array_equal(obs[0], plain[0])
        # orange has become blue
        change = obs[1].astype(int) - plain[1]
        assert change[..., 0].min() < -50 and change[..., 2].max() > 50


def test_pictures_may_come_beside_numbers() -> None:
    with rollouts.make_vec("Hopper-v5", 3, seed=1, obs_dtype="float32") as env:
        numbers = play(env, 2)
    with rollouts.make_vec("Hopper-v5", 3, **SMALL) as env:
        pictures = play(env, 2)
    options = {"flatten_observation": False, "obs_dtype": "float32"}
    with rollouts.make_vec("Hopper-v5", 3, **SMALL, **options) as env:
        assert env.single_observation_space["state"].dtype == np.float32
        for both, number, picture in zip(play(env, 2), numbers, pictures, strict=True):
            np.testing.assert_array_equal(both["state"], number)
            np.testing.assert_array_equal(both["pixels"], picture)
            assert env.observation_space.contains(dict(both))


@has_suite
def test_pictures_may_come_beside_the_parts_of_dm_control() -> None:
    with rollouts.make_vec("FishSwim-v1", 2, seed=1, flatten_observation=False) as env:
        parts = env.reset()[0]
    with rollouts.make_vec("FishSwim-v1", 2, flatten_observation=False, **SMALL) as env:
        both, _ = env.reset()
        assert list(both) == [*parts, "pixels"]
        for name, value in parts.items():
            np.testing.assert_array_equal(both[name], value)
            assert both[name].dtype == value.dtype
        assert both["pixels"].shape == (2, 32, 40, 3)
        assert env.single_observation_space["upright"] == spaces.Box(-np.inf, np.inf, (), float)


def test_functions_of_a_model_of_one_s_own_see_infos() -> None:
    def forward(step: Any) -> np.ndarray:
        return (step["qpos"][:, 0] - step.previous["qpos"][:, 0]) / step.dt

    options = {"xml_file": "swimmer.xml", "reward": forward}
    with rollouts.make_vec("MuJoCo-v0", 2, info=["qpos"], **SMALL, **options) as env:
        env.reset()
        obs, reward, _, _, info = env.step(actions(env, 1)[0])
        assert obs.shape == (2, 32, 40, 3)
        assert (reward != 0).all() and info["qpos"].shape == (2, 5)


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("Ant-v5", {"camera_name": "side"}, r"no camera 'side'; it has -1 \(the free one\), 0 \("),
        ("Ant-v5", {"camera_id": 1}, "no camera 1; it has -1"),
        ("Ant-v5", {"visual_options": {99: True}}, "flag 99, expected a number of mujoco.mjtVis"),
        ("Ant-v5", {"default_camera_config": {"lookat": 1.0}}, r"\['lookat'\] must be 3 finite"),
        ("Ant-v5", {"default_camera_config": {"distance": "far"}}, r"must be 1 finite number"),
        ("Ant-v5", {"width": 0}, "width"),
        ("Ant-v5", {"from_pixels": False, "grayscale": True}, "needs from_pixels=True"),
        ("Ant-v5", {"normalize_observation": True}, "divide pixels by 255"),
        ("CartPole-v1", {}, "no option 'from_pixels'"),
        ("Ant-v5", {"device": "cpu-emulation"}, "from_pixels cannot be had of a pool on a device"),
    ],
)
def test_what_is_not_possible_is_refused(
    env_id: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        rollouts.make_vec(env_id, **{"from_pixels": True, **options})


def test_pictures_stay_what_a_pool_was_made_with() -> None:
    with (
        rollouts.make_vec("Hopper-v5", 2, num_threads=1) as env,
        pytest.raises(SpecError, match="would change the observation space"),
    ):
        env.reset(options={"from_pixels": True})


def test_without_a_library_the_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(opengl, "_LIBRARIES", {"egl": ("libnone.so.1",)})
    with pytest.raises(EngineError, match=r"libegl1 libgl1-mesa-dri.*libosmesa6"):
        rollouts.make_vec("Hopper-v5", from_pixels=True)
    # a spec needs none
    assert rollouts.env_spec("Hopper-v5", from_pixels=True).single_observation_space.shape


def test_a_back_end_with_a_display_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    with pytest.raises(
        EngineError, match=r"by glfw \(MUJOCO_GL is 'glfw'\), which needs a display"
    ):
        rollouts.make_vec("Hopper-v5", from_pixels=True)
