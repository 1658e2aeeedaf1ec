# SPDX-License-Identifier: Apache-2.0
"""Writes an animated GIF frame by frame, with only one frame in memory."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

_LOOP_FOR_EVER = b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
_LONGEST_MS = 600_000  # longest frame: the format has 16 bits of 10 ms


class GifWriter:
    """Appends frames to an open file.

    Each has its own palette, and covers only the part of the image that changed. A frame is written
    when the next one differs, because its duration comes before it in the file.
    """

    def __init__(self, file: BinaryIO, size: tuple[int, int], frame_ms: float) -> None:
        """Writes the header.

        Args:
          file: Written in order, from its present position.
          size: (height, width) of all frames.
          frame_ms: Duration of each frame.
        """
        self._file, self._frame_ms = file, frame_ms
        self._shown: npt.NDArray[np.uint8] | None = None
        self._pending: tuple[Any, tuple[int, int]] | None = None
        self._pending_ms = 0.0
        height, width = size
        # no common palette, 8 bits a colour
        file.write(b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little"))
        file.write(b"\x70\x00\x00" + _LOOP_FOR_EVER)

    def write(self, frame: npt.NDArray[np.uint8]) -> None:
        """Adds a frame (height, width, 3)."""
        from PIL import Image

        changed = _changed(self._shown, frame)
        if changed is None and self._pending_ms < _LONGEST_MS:
            self._pending_ms += self._frame_ms
            return
        self._flush()
        rows, columns = changed or (slice(0, 1), slice(0, 1))
        part = Image.fromarray(np.ascontiguousarray(frame[rows, columns]))
        picture = part.convert("P", palette=Image.Palette.ADAPTIVE)
        self._pending = picture, (columns.start, rows.start)
        self._pending_ms = self._frame_ms
        self._shown = frame.copy()

    def close(self) -> None:
        """Writes the last frame and the end."""
        self._flush()
        self._file.write(b";")

    def _flush(self) -> None:
        from PIL import GifImagePlugin

        if self._pending is not None:
            picture, offset = self._pending
            how: dict[str, Any] = {"duration": self._pending_ms, "include_color_table": True}
            parts = GifImagePlugin.getdata(picture, offset, **how)
            self._file.writelines(parts)
            parts.clear()  # Pillow keeps the list until the next garbage collection
            self._pending = None


def _changed(
    before: npt.NDArray[np.uint8] | None, frame: npt.NDArray[np.uint8]
) -> tuple[slice, slice] | None:
    """Rows and columns outside which a frame equals the one before; None: they are equal."""
    if before is None:
        return slice(0, frame.shape[0]), slice(0, frame.shape[1])
    differs = (before != frame).any(axis=-1)
    rows, columns = (np.flatnonzero(differs.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
