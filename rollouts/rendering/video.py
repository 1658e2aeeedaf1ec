# SPDX-License-Identifier: Apache-2.0
"""Writes frames into a video, with imageio of the extra `render`."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rollouts.errors import EngineError, SpecError

SUFFIXES = (".mp4", ".gif")
_GIF_FRAMES_PER_S = 50  # viewers show faster ones slowly


class VideoWriter:
    """A video file that grows frame by frame. The file appears with the first one.

    Attributes:
      path: Of the file.
      frames_per_s: Of the video.
      num_frames: Written so far.
      size: (height, width) of the frames, in pixels; None before the first.
    """

    def __init__(self, path: Path, frames_per_s: float) -> None:
        """Checks that a video can be written there.

        Args:
          path: Ends in .mp4 or .gif; a file that is there is replaced.
          frames_per_s: Pace; a .gif has 50 at most.

        Raises:
          SpecError: Another ending, or no file can be made there.
          EngineError: imageio, or the ffmpeg that it runs, is missing.
        """
        check_path(path)
        is_gif = path.suffix.lower() == ".gif"
        self.path, self.num_frames = path, 0
        self.frames_per_s = min(frames_per_s, _GIF_FRAMES_PER_S) if is_gif else frames_per_s
        self.size: tuple[int, int] | None = None
        self._imageio = _load_imageio(is_gif)
        self._writer: Any = None

    def write(self, frame: npt.NDArray[np.uint8]) -> None:
        """Adds a frame (height, width, 3).

        Raises:
          SpecError: It has not the size of those before, or one that no .mp4 has.
        """
        height, width = frame.shape[:2]
        if self.size is None:
            self._open(height, width)
            self.size = height, width
        if self.size != (height, width):
            raise SpecError(
                f"a frame is {width} x {height} pixels, expected {self.size[1]} x {self.size[0]}: "
                "frames of a video have one size"
            )
        self._writer.append_data(frame)
        self.num_frames += 1

    def close(self) -> None:
        """Completes the file; may be called twice."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, height: int, width: int) -> None:
        if self.path.suffix.lower() == ".gif":
            pace: dict[str, Any] = {"duration": 1000 / self.frames_per_s, "loop": 0}
        elif height % 2 or width % 2:
            raise SpecError(
                f"frames are {width} x {height} pixels, and an .mp4 needs even numbers: choose "
                "another --width and --height, or write a .gif"
            )
        else:
            # 2: by default it would scale frames to multiples of 16
            pace = {
                "fps": self.frames_per_s,
                "codec": "libx264",
                "quality": 8,
                "macro_block_size": 2,
                "ffmpeg_log_level": "error",
            }
        self._writer = self._imageio.get_writer(self.path, **pace)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def check_path(path: Path) -> None:
    """Checks that a video may have this path.

    Raises:
      SpecError: Its ending is unknown, or nothing can be written there.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise SpecError(f"a video ends in {' or '.join(SUFFIXES)}, got {str(path)!r}")
    folder = path.parent
    if not folder.is_dir():
        raise SpecError(f"the folder of {path} does not exist: make it, or choose another")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise SpecError(f"{path} cannot be written: choose a file in a folder that can")


def _load_imageio(is_gif: bool) -> Any:
    try:
        if not is_gif:
            importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
        return importlib.import_module("imageio.v2")
    except (ImportError, RuntimeError) as error:  # RuntimeError: no ffmpeg was found
        raise EngineError(
            f"a video needs imageio and its ffmpeg, which are missing ({error}): "
            "pip install 'rollouts[render]'"
        ) from error
