# SPDX-License-Identifier: Apache-2.0
"""`VectorEnv.render`: which environments, when, in which threads and processes, and its errors."""

from __future__ import annotations

import gc
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from processes import run_drawing

import rollouts
from rollouts.errors import ClosedError, DTypeError, ProtocolError, SpecError
from rollouts.rendering.mujoco_scene import MujocoScene

pytestmark = pytest.mark.system

SMALL: dict[str, Any] = {"width": 64, "height": 48, "num_threads": 1, "seed": 1}


@pytest.fixture(scope="module")
def hoppers() -> Iterator[rollouts.VectorEnv]:
    with rollouts.make_vec("Hopper-v5", 3, env_id_offset=10, **SMALL) as env:
        env.reset()
        yield env


def test_frames_come_one_for_each_environment(hoppers: rollouts.VectorEnv) -> None:
    frames = hoppers.render()
    assert isinstance(frames, tuple)
    assert [(frame.shape, frame.dtype) for frame in frames] == [((48, 64, 3), np.uint8)] * 3
    chosen = hoppers.render([12, 10])
    np.testing.assert_array_equal(chosen[0], frames[2])
    np.testing.assert_array_equal(chosen[1], frames[0])
    np.testing.assert_array_equal(hoppers.render(11)[0], frames[1])
    assert hoppers.render([]) == ()


def test_rendering_changes_nothing() -> None:
    def play(renders: bool) -> list[bytes]:
        with rollouts.make_vec("Hopper-v5", 2, **SMALL) as env:
            env.action_space.seed(0)
            env.reset()
            for _ in range(20):
                env.step(env.action_space.sample())
                if renders:
                    env.render()
            return env.get_state()

    assert play(renders=True) == play(renders=False)


def test_a_camera_may_be_chosen_by_number_or_name(hoppers: rollouts.VectorEnv) -> None:
    track, free = hoppers.render(10, "track")[0], hoppers.render(10, camera=-1)[0]
    np.testing.assert_array_equal(track, hoppers.render(10, 0)[0])
    np.testing.assert_array_equal(track, hoppers.render(10)[0])
    assert (track != free).any()
    with pytest.raises(SpecError, match=r"no camera 'side'; it has -1 \(the free one\), 0 \(tr"):
        hoppers.render(camera="side")
    with pytest.raises(SpecError, match="no camera 1;"):
        hoppers.render(camera=1)


def test_unknown_environments_are_named(hoppers: rollouts.VectorEnv) -> None:
    with pytest.raises(SpecError, match=r"env_ids has \[9, 13\], expected ids from 10 to 12"):
        hoppers.render([9, 10, 13])
    with pytest.raises(DTypeError, match="whole numbers"):
        hoppers.render([0.5])


@pytest.mark.parametrize("env_id", ["Hopper-v5", "ALE/Pong-v5"])
def test_an_environment_is_drawn_between_steps_alone(env_id: str) -> None:
    with rollouts.make_vec(env_id, 2, num_threads=1) as env:
        with pytest.raises(ProtocolError, match="never reset"):
            env.render()
        env.reset()
        env.send(env.action_space.sample())
        with pytest.raises(ProtocolError, match="in flight"):
            env.render()
        env.recv()
        assert len(env.render()) == 2
    with pytest.raises(ClosedError):
        env.render()


def test_any_thread_may_render(hoppers: rollouts.VectorEnv) -> None:
    expected = hoppers.render()
    frames: list[tuple[np.ndarray, ...]] = []
    threads = [threading.Thread(target=lambda: frames.append(hoppers.render())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(frames) == 3
    for each in frames:
        np.testing.assert_array_equal(each, expected)


def test_close_frees_the_context_and_so_does_oblivion() -> None:
    env = rollouts.make_vec("Hopper-v5", **SMALL)
    env.reset()
    before = len(MujocoScene._live)
    env.render()
    assert len(MujocoScene._live) == before + 1
    env.close()
    assert len(MujocoScene._live) == before

    env = rollouts.make_vec("Hopper-v5", **SMALL)
    env.reset()
    env.render()
    del env
    gc.collect()
    # what was posted to the thread before is done before what follows
    with rollouts.make_vec("Hopper-v5", **SMALL) as other:
        other.reset()
        other.render()
        assert len(MujocoScene._live) == before + 1


def test_a_mixed_pool_draws_each_environment_by_its_own_engine() -> None:
    with rollouts.make_vec(["ALE/Pong-v5", "ALE/Carnival-v5"], full_action_space=True) as env:
        env.reset()
        # Carnival's screen is taller
        assert [frame.shape for frame in env.render()] == [(210, 160, 3), (214, 160, 3)]
        with pytest.raises(SpecError, match="only MuJoCo models have any"):
            env.render(camera=0)


def test_options_that_change_the_model_change_the_frame(tmp_path: Any) -> None:
    body = '<body pos="0 0 {}"><joint axis="0 1 0"/><geom size=".4"/></body>'
    actuator = '<actuator><motor joint="j" ctrlrange="-1 1"/></actuator>'
    for name, height in (("low", 0), ("high", 1)):
        inner = body.format(height).replace("<joint", '<joint name="j"')
        light = '<light pos="0 0 3"/>'
        (tmp_path / f"{name}.xml").write_text(
            f"<mujoco><worldbody>{light}{inner}<body><joint/><geom size='.1'/></body></worldbody>"
            f"{actuator}</mujoco>"
        )
    low, high = str(tmp_path / "low.xml"), str(tmp_path / "high.xml")
    with rollouts.make_vec("Swimmer-v5", 2, xml_file=[low, high], **SMALL) as env:
        env.reset()
        first, second = env.render()
        assert (first != second).any()
        env.reset(options={"xml_file": high})
        assert (env.render()[0] != first).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width is 0, expected a whole number from 1"),
        ({"width": 10, "render_width": 10}, "say the same"),
        ({"camera_id": 0, "camera_name": "track"}, "leave out one"),
        ({"default_camera_config": {"zoom": 2}}, r"unknown fields \['zoom'\]"),
        ({"render_mode": "human"}, "render_mode must be None or 'rgb_array'"),
    ],
)
def test_impossible_options_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        rollouts.make_vec("Hopper-v5", **options)


def test_atari_takes_no_size() -> None:
    with pytest.raises(SpecError, match="only frames of MuJoCo environments"):
        rollouts.make_vec("ALE/Pong-v5", width=84)


def test_what_nothing_draws_says_so() -> None:
    with rollouts.make_vec("NChain-v0") as env:
        env.reset()
        assert env.metadata["render_modes"] == []
        with pytest.raises(SpecError, match=r"NChain-v0 .* cannot be rendered"):
            env.render()
    with pytest.raises(SpecError, match=r"NChain-v0 .* cannot be rendered"):
        rollouts.make_vec("NChain-v0", render_mode="rgb_array")


def test_names_of_envpool_work_and_survive_pickling() -> None:
    given = {"render_width": 32, "render_height": 16, "render_camera_id": -1}
    env = rollouts.make_vec("Hopper-v5", render_mode="rgb_array", seed=1, **given)
    with env, pickle.loads(pickle.dumps(env)) as copy:
        assert copy.render_mode == "rgb_array"
        assert copy.metadata["render_fps"] == 125
        env.reset()
        copy.reset()
        np.testing.assert_array_equal(env.render(), copy.render())
        assert env.render()[0].shape == (16, 32, 3)


def test_gymnasium_makes_environments_that_render() -> None:
    kwargs = {"render_mode": "rgb_array", "width": 64, "height": 48}
    envs = gymnasium.make_vec("rollouts/Hopper-v5", num_envs=2, **kwargs)
    envs.reset(seed=1)
    # gymnasium.wrappers.vector.RecordVideo asks for these
    assert envs.render_mode == "rgb_array"
    assert envs.metadata["render_fps"] == 125
    frames = envs.render()
    assert isinstance(frames, tuple)
    assert np.array(frames).shape == (2, 48, 64, 3)
    envs.close()

    env = gymnasium.make("rollouts/Hopper-v5", **kwargs)
    env.reset(seed=1)
    np.testing.assert_array_equal(env.render(), frames[0])
    env.close()


RENDER = """
import rollouts
env = rollouts.make_vec("Hopper-v5", width=32, height=32, num_threads=1)
env.reset()
try:
    print("frame", env.render()[0].shape)
except rollouts.errors.EngineError as error:
    print("error", error)
"""

FORK = """
import os, sys
import rollouts
def render():
    with rollouts.make_vec("Hopper-v5", width=32, height=32, num_threads=1) as env:
        env.reset()
        return env.render()[0].shape
def in_child():
    pid = os.fork()
    if pid == 0:
        try:
            print("child", render(), flush=True)
        except rollouts.errors.EngineError as error:
            print("child", error, flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
in_child()
env = rollouts.make_vec("Hopper-v5", width=32, height=32, num_threads=1)
env.reset()
print("parent", env.render()[0].shape, flush=True)
in_child()
if os.fork() == 0:
    env.close()
    print("closed", env.closed, flush=True)
    os._exit(0)
os.wait()
env.close()
"""


def test_a_back_end_is_found_without_a_variable_and_ends_quietly() -> None:
    out, err = run_drawing(RENDER)
    assert out == "frame (32, 32, 3)\n"
    assert err == ""


def test_rendering_turned_off_says_what_helps() -> None:
    out, _ = run_drawing(RENDER, MUJOCO_GL="disable")
    assert out.startswith("error nothing can be rendered: MUJOCO_GL is 'disable'")
    assert "MUJOCO_GL=egl" in out and "libegl1" in out and "libosmesa6" in out


def test_a_back_end_that_fails_says_what_helps() -> None:
    # a display that there is not; found out when the context is made
    out, _ = run_drawing(RENDER, MUJOCO_GL="glfw", DISPLAY=":987")
    assert out.startswith("error nothing can be rendered: OpenGL's back-end 'glfw'")
    assert "libegl1" in out and "libosmesa6" in out


def test_an_unknown_back_end_is_refused_before_anything_steps() -> None:
    code = """
import rollouts
try:
    rollouts.make_vec("Hopper-v5")
except rollouts.errors.EngineError as error:
    print(error)
"""
    out, _ = run_drawing(code, MUJOCO_GL="bogus")
    assert "MUJOCO_GL is 'bogus'" in out and "Unset it" in out


def test_a_fork_renders_if_its_parent_did_not_and_else_says_why() -> None:
    first, parent, second, third = run_drawing(FORK)[0].splitlines()
    assert first == "child (32, 32, 3)"
    assert parent == "parent (32, 32, 3)"
    assert "was forked from one that has rendered" in second
    assert third == "closed True"
