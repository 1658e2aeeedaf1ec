# SPDX-License-Identifier: Apache-2.0
"""`VideoWriter`: frames become a file as they come, whole or not at all."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import pytest
from PIL import Image, ImageSequence
from processes import run_in_child

from rollouts.errors import EngineError, FileError, SpecError
from rollouts.rendering import video
from rollouts.rendering.video import VideoWriter, check_path

pytestmark = pytest.mark.system

BOTH = pytest.mark.parametrize("name", ["a.gif", "a.mp4"])


def frame(height: int = 4, width: int = 6, level: int = 0) -> Any:
    return np.full((height, width, 3), level, np.uint8)


def noise(count: int, side: int = 64) -> Iterator[Any]:
    random = np.random.default_rng(0)
    for _ in range(count):
        yield random.integers(0, 256, (side, side, 3), np.uint8)


def moving(count: int) -> list[Any]:
    """Pictures of few colours: a square that moves and now and then rests."""
    frames = []
    for number in range(count):
        made = frame(24, 32, 200)
        at = 2 * (number - number // 5)
        made[at % 18 : at % 18 + 5, at % 26 : at % 26 + 5] = (number % 7, 250, 30)
        frames.append(made)
    return frames


def read_gif(path: Path) -> list[tuple[Any, float]]:
    with Image.open(path) as picture:
        return [
            (np.array(one.convert("RGB")), one.info["duration"])
            for one in ImageSequence.Iterator(picture)
        ]


def test_a_gif_has_every_frame_for_its_time(tmp_path: Path) -> None:
    frames = moving(40)
    with VideoWriter(tmp_path / "a.gif", 20) as writer:
        for one in frames:
            writer.write(one)
    assert (writer.num_frames, writer.size) == (40, (24, 32))
    shown = [seen for seen, ms in read_gif(tmp_path / "a.gif") for _ in range(round(ms / 50))]
    assert len(shown) == 40 and all(map(np.array_equal, shown, frames))


def test_a_gif_of_many_colours_is_close(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    one = np.stack([*np.meshgrid(ramp, ramp), np.full((64, 64), 90, np.uint8)], axis=-1)
    with VideoWriter(tmp_path / "a.gif", 20) as writer:
        writer.write(one)
    ((shown, _),) = read_gif(tmp_path / "a.gif")
    # 256 of 4096 colours
    assert np.abs(shown.astype(int) - one).mean() < 8


def test_an_mp4_has_every_frame(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "a.MP4", 30) as writer:
        for level in (0, 100, 200):
            writer.write(frame(16, 32, level))
    with imageio.get_reader(tmp_path / "a.MP4", format="FFMPEG") as reader:
        levels = [int(one.mean()) for one in reader]
        assert reader.get_meta_data()["fps"] == 30
    assert levels == pytest.approx([0, 100, 200], abs=3)


@BOTH
def test_frames_are_written_as_they_come(name: str, tmp_path: Path) -> None:
    run_in_child(assert_frames_are_not_held, tmp_path / name)


def assert_frames_are_not_held(path: Path) -> None:
    with VideoWriter(path, 30) as writer:
        for one in noise(3):
            writer.write(one)  # imports, buffers
        tracemalloc.start()
        try:
            for one in noise(200):
                writer.write(one)
            gc.collect()  # Pillow makes a class for each frame of a .gif, which refers to itself
            held, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    one_frame = 64 * 64 * 3
    assert held < 8 * one_frame
    assert peak < 40 * one_frame


@BOTH
def test_the_file_appears_when_it_is_complete(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")
    with VideoWriter(path, 30) as writer:
        assert writer.size is None
        writer.write(frame())
        assert path.read_bytes() == b"old"
    assert path.stat().st_size > 50
    assert os.listdir(tmp_path) == [name]
    writer.close()


@BOTH
def test_no_frames_make_no_file(name: str, tmp_path: Path) -> None:
    VideoWriter(tmp_path / name, 30).close()
    with VideoWriter(tmp_path / name, 30):
        pass
    assert os.listdir(tmp_path) == []


@BOTH
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError("of the environment")])
def test_an_interrupted_video_leaves_nothing(name: str, error: Any, tmp_path: Path) -> None:
    kind = error if isinstance(error, type) else type(error)
    with pytest.raises(kind) as caught, VideoWriter(tmp_path / name, 30) as writer:
        for one in noise(20):
            writer.write(one)
        raise error
    assert not isinstance(caught.value, FileError)
    assert os.listdir(tmp_path) == []


@BOTH
def test_a_full_disk_is_named_and_leaves_the_old_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with (
            pytest.raises(FileError, match=rf"{name} cannot be written, .*: choose a folder with"),
            VideoWriter(path, 30) as writer,
        ):
            for one in noise(100):
                writer.write(one)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [name]


# films for ever, and says so once a frame is written
FILMS = """
import signal, sys
# a shell's background job inherits a SIGINT that is ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
from rollouts.cli import main
from rollouts.cli import record
record.show_progress = lambda text: print("frame", flush=True)
sys.stderr.isatty = lambda: True
sys.exit(main.main(["record", "--env-id", "CartPole-v1", "--option", "max_episode_steps=0",
    "--option", "gravity=0.0", "--option", "force_mag=0.0", "--max-steps", "1000000",
    "--out", sys.argv[1]]))
"""


@BOTH
def test_ctrl_c_ends_a_recording_and_removes_the_file(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILMS, str(tmp_path / name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as film:
        assert film.stdout is not None and film.stderr is not None
        for _ in range(30):
            assert film.stdout.readline() == b"frame\n", film.stderr.read()
        film.send_signal(signal.SIGINT)
        out, err = film.communicate(timeout=120)
    assert film.returncode == 130 and b"interrupted" in err, err
    # what was filmed before the signal came, and not thousands of frames that were kept
    assert out.count(b"frame") < 2000
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("asked", "shown"), [(20, 20), (50, 50), (60, 50)])
def test_a_gif_has_fifty_frames_a_second_at_most(tmp_path: Path, asked: int, shown: int) -> None:
    with VideoWriter(tmp_path / "a.gif", asked) as writer:
        assert writer.frames_per_s == shown
        writer.write(frame(3, 5))  # any size will do
    ((_, duration),) = read_gif(tmp_path / "a.gif")
    assert duration == 1000 / shown


@pytest.mark.parametrize(("height", "width"), [(3, 4), (4, 3), (5, 5)])
def test_an_mp4_needs_even_sides(tmp_path: Path, height: int, width: int) -> None:
    with VideoWriter(tmp_path / "a.mp4", 30) as writer:
        with pytest.raises(SpecError, match=f"frames are {width} x {height} pixels, and an .mp4"):
            writer.write(frame(height, width))
        # a frame that fits may still come
        writer.write(frame())
        assert writer.num_frames == 1


def test_frames_of_a_video_have_one_size(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "a.gif", 30) as writer:
        writer.write(frame(4, 6))
        with pytest.raises(SpecError, match="a frame is 4 x 6 pixels, expected 6 x 4"):
            writer.write(frame(6, 4))
        assert writer.num_frames == 1


def test_where_a_video_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "folder.mp4").mkdir()
    for path, message in (
        ("a.avi", r"a video ends in \.mp4 or \.gif, got"),
        ("a", r"a video ends in"),
        ("gone/a.mp4", "does not exist: make it, or choose another"),
        ("folder.mp4", "cannot be written: choose a file in a folder that can"),
    ):
        with pytest.raises(SpecError, match=message):
            check_path(tmp_path / path)
    check_path(tmp_path / "a.mp4")
    assert not (tmp_path / "a.mp4").exists()


@pytest.mark.parametrize("error", [ImportError("no imageio"), RuntimeError("No ffmpeg exe")])
def test_a_missing_part_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    def refuse(name: str) -> Any:
        raise error

    monkeypatch.setattr(video.importlib, "import_module", refuse)
    with pytest.raises(EngineError, match=r"which are missing \(.*\): pip install 'rollouts\[rend"):
        VideoWriter(tmp_path / "a.mp4", 30)
