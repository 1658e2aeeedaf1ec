# SPDX-License-Identifier: Apache-2.0
"""Stable-Baselines3 draws and films what native environments show."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from rollouts.integrations.sb3 import RolloutsVecEnv
from stable_baselines3.common.vec_env import VecVideoRecorder


class ImageSequenceClip:
    """The part of moviepy that the recorder calls; it wants an older Pillow than the tests have.

    Writes with imageio, as moviepy does; where moviepy is installed, it is taken.
    """

    def __init__(self, frames: list[NDArray[np.uint8]], fps: int) -> None:
        self.frames, self.fps = frames, fps

    def write_videofile(self, path: str) -> None:
        imageio = importlib.import_module("imageio.v2")
        imageio.mimwrite(path, self.frames, fps=self.fps, macro_block_size=2)


def test_frames_are_those_of_the_pool() -> None:
    pytest.importorskip("pygame", reason="CartPole is drawn with pygame")
    env = RolloutsVecEnv("CartPole-v1", 3, seed=1, render_mode="rgb_array")
    env.reset()
    frames = env.pool.render()
    assert len(frames) == 3
    np.testing.assert_array_equal(env.get_images(), frames)
    np.testing.assert_array_equal(env.env_method("render", indices=1)[0], frames[1])
    # Stable-Baselines3 tiles them
    assert env.render().shape == (800, 1200, 3)
    assert env.get_attr("render_mode") == ["rgb_array"] * 3


def test_without_a_render_mode_the_missing_argument_is_named() -> None:
    env = RolloutsVecEnv("CartPole-v1", 2)
    with pytest.warns(UserWarning, match="no `render_mode` was passed"):
        assert env.render() is None
    assert env.get_images() == [None, None]


def test_a_video_recorder_writes_what_the_environments_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imageio = pytest.importorskip("imageio.v2", reason="writes and reads the video")
    pytest.importorskip("pygame", reason="CartPole is drawn with pygame")
    if importlib.util.find_spec("moviepy") is None:
        monkeypatch.setitem(sys.modules, "moviepy", types.ModuleType("moviepy"))
        for name in ("video", "video.io", "video.io.ImageSequenceClip"):
            module = types.ModuleType(f"moviepy.{name}")
            module.ImageSequenceClip = ImageSequenceClip  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, module.__name__, module)

    env = VecVideoRecorder(
        RolloutsVecEnv("CartPole-v1", 2, seed=1, render_mode="rgb_array"),
        str(tmp_path),
        record_video_trigger=lambda step: step == 0,
        video_length=5,
    )
    env.reset()
    shown = env.render()
    for _ in range(6):
        env.step(np.zeros(2, np.int64))
    env.close()

    (file,) = tmp_path.glob("*.mp4")
    with imageio.get_reader(file) as video:
        assert video.get_meta_data()["fps"] == 50  # CartPole's, not the 30 of no pace
        frames = [np.asarray(frame) for frame in video]
    assert len(frames) == 6
    assert isinstance(shown, np.ndarray)
    # the codec loses a little
    np.testing.assert_allclose(frames[0].mean(), shown.mean(), atol=2)
    assert frames[0].shape == shown.shape
