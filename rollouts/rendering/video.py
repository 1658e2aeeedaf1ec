# SPDX-License-Identifier: Apache-2.0
"""Writes frames into a video, with the ffmpeg and the Pillow that come with imageio."""

from __future__ import annotations

import contextlib
import importlib
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rollouts.errors import EngineError, SpecError
from rollouts.rendering.gif import GifWriter
from rollouts.support.whole_file import naming_the_file, replace_whole

SUFFIXES = (".mp4", ".gif")
_GIF_FRAMES_PER_S = 50  # viewers show faster ones slowly


class VideoWriter:
    """A video that is written frame by frame into a file beside its path, then renamed to it.
    A `with` block that fails leaves the old file and no other.

    Attributes:
      path: Path of the file.
      frames_per_s: Rate of the video.
      num_frames: Written so far.
      size: (height, width) of the frames, in pixels; None before the first.
    """

    def __init__(self, path: Path, frames_per_s: float) -> None:
        """Checks that a video can be written at the path.

        Args:
          path: Ends in .mp4 or .gif; a file that is there is replaced.
          frames_per_s: Frame rate; at most 50 for a .gif.

        Raises:
          SpecError: The path has another ending, or no file can be made there.
          EngineError: imageio, or the ffmpeg that it runs, is missing.
        """
        check_path(path)
        self._is_gif = path.suffix.lower() == ".gif"
        self.path, self.num_frames = path, 0
        self.frames_per_s = min(frames_per_s, _GIF_FRAMES_PER_S) if self._is_gif else frames_per_s
        self.size: tuple[int, int] | None = None
        self._ffmpeg = _load_libraries(self._is_gif)
        self._file: Any = None  # the context manager of the unfinished file
        self._writer: GifWriter | _Mp4Writer | None = None

    def write(self, frame: npt.NDArray[np.uint8]) -> None:
        """Adds a frame (height, width, 3).

        Raises:
          SpecError: Its size differs from the frames before, or is impossible for an .mp4.
          FileError: The disk is full.
        """
        height, width = frame.shape[:2]
        if self.size is None:
            self._check_size(height, width)
            self.size = height, width
        if self.size != (height, width):
            raise SpecError(
                f"a frame is {width} x {height} pixels, expected {self.size[1]} x {self.size[0]}: "
                "frames of a video have one size"
            )
        with naming_the_file(self.path):
            if self._writer is None:
                self._writer = self._open(self.size)
            self._writer.write(frame)
        self.num_frames += 1

    def close(self) -> None:
        """Completes the file; may be called twice.

        Raises:
          FileError: The disk is full; the old file stays.
        """
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            with naming_the_file(self.path):
                writer.close()
        except BaseException:
            self._abandon()
            raise
        self._file.__exit__(None, None, None)

    def _open(self, size: tuple[int, int]) -> GifWriter | _Mp4Writer:
        self._file = replace_whole(self.path)
        file = self._file.__enter__()
        if self._is_gif:
            return GifWriter(file, size, 1000 / self.frames_per_s)
        return _Mp4Writer(self._ffmpeg, Path(file.name), size, self.frames_per_s)

    def _check_size(self, height: int, width: int) -> None:
        if not self._is_gif and (height % 2 or width % 2):
            raise SpecError(
                f"frames are {width} x {height} pixels, and an .mp4 needs even numbers: choose "
                "another --width and --height, or write a .gif"
            )

    def _abandon(self) -> None:
        """Removes what was written."""
        writer, self._writer = self._writer, None
        if isinstance(writer, _Mp4Writer):
            writer.kill()
        if self._file is not None:
            with contextlib.suppress(_Unfinished):
                error = _Unfinished()
                self._file.__exit__(type(error), error, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            self.close()
        else:
            self._abandon()


class _Unfinished(Exception):
    """Raised to leave the old file in place if the video is not complete."""


class _Mp4Writer:
    """An .mp4 that an ffmpeg process writes from frames as they come."""

    def __init__(self, ffmpeg: Any, path: Path, size: tuple[int, int], frames_per_s: float) -> None:
        """Starts ffmpeg; the path need not end in .mp4."""
        self._path = path
        self._frames = ffmpeg.write_frames(
            str(path),
            size[::-1],
            fps=frames_per_s,
            codec="libx264",
            quality=8,
            macro_block_size=2,  # by default imageio would scale frames to multiples of 16
            ffmpeg_log_level="fatal",
            output_params=["-f", "mp4"],
        )
        self._frames.send(None)

    def write(self, frame: npt.NDArray[np.uint8]) -> None:
        """Adds a frame (height, width, 3).

        Raises:
          OSError: ffmpeg has ended, for example because the disk is full.
        """
        try:
            self._frames.send(np.ascontiguousarray(frame))
        except OSError as error:  # the error's message has ffmpeg's whole command line
            raise OSError("ffmpeg cannot write it") from error

    def close(self) -> None:
        """Waits until ffmpeg has written everything.

        Raises:
          OSError: ffmpeg has failed.
        """
        self._frames.close()
        if not _is_complete(self._path):
            raise OSError("ffmpeg could not complete it")

    def kill(self) -> None:
        """Ends ffmpeg at once."""
        with contextlib.suppress(KeyboardInterrupt, StopIteration):
            self._frames.throw(KeyboardInterrupt)


def _is_complete(path: Path) -> bool:
    """Tells if an .mp4 has its index, which comes last; ffmpeg does not report a failure."""
    with path.open("rb") as file:
        while len(head := file.read(8)) == 8:
            size, kind = int.from_bytes(head[:4], "big"), head[4:]
            if kind == b"moov":
                return file.seek(size - 8, os.SEEK_CUR) <= path.stat().st_size
            if size == 1:  # 64 bits follow
                size = int.from_bytes(file.read(8), "big") - 8
            if size < 8:
                break
            file.seek(size - 8, os.SEEK_CUR)
    return False


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


def _load_libraries(is_gif: bool) -> Any:
    """Returns imageio_ffmpeg for an .mp4; for a .gif, checks that Pillow is installed."""
    try:
        if is_gif:
            importlib.import_module("PIL.GifImagePlugin")
            return None
        ffmpeg = importlib.import_module("imageio_ffmpeg")
        ffmpeg.get_ffmpeg_exe()
        return ffmpeg
    except (ImportError, RuntimeError) as error:  # RuntimeError: no ffmpeg was found
        raise EngineError(
            f"a video needs imageio, its ffmpeg and Pillow, which are missing ({error}): "
            "pip install 'rollouts[render]'"
        ) from error
