# SPDX-License-Identifier: Apache-2.0
"""The resize of Atari frames against OpenCV's algorithm written down in plain Python.

tests/oracle/test_atari.py compares it with OpenCV itself, through ale-py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rollouts import _native
from rollouts.errors import SpecError


def terms(src_size: int, dst_size: int) -> list[list[tuple[int, np.float32]]]:
    """(source index, weight) of every destination index, in the order they are added."""
    scale = src_size / dst_size
    table = []
    for dst in range(dst_size):
        begin, end = dst * scale, dst * scale + scale
        cell = min(scale, src_size - begin)
        last = min(math.floor(end), src_size - 1)
        first = min(math.ceil(begin), last)
        row = []
        if first - begin > 1e-3:
            row.append((first - 1, np.float32((first - begin) / cell)))
        row += [(src, np.float32(1 / cell)) for src in range(first, last)]
        if end - last > 1e-3:
            row.append((last, np.float32(min(end - last, 1.0, cell) / cell)))
        table.append(row)
    return table


def slow_resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Columns first, then rows, in float32; rounds half to even, 2x2 cells half up."""
    down, across = image.shape[0] / height, image.shape[1] / width
    if down == across == 2:
        quads = image.reshape(height, 2, width, 2, -1).astype(int).sum(axis=(1, 3))
        return ((quads + 2) >> 2).astype(np.uint8).reshape(height, width, *image.shape[2:])
    if down.is_integer() and across.is_integer():
        cells = image.reshape(height, int(down), width, int(across), -1).astype(int)
        mean = cells.sum(axis=(1, 3)).astype(np.float32) * np.float32(1 / (down * across))
        return np.rint(mean).astype(np.uint8).reshape(height, width, *image.shape[2:])
    pixels = image.astype(np.float32)
    columns = np.zeros((image.shape[0], width, *image.shape[2:]), np.float32)
    for x, row in enumerate(terms(image.shape[1], width)):
        for src, weight in row:
            columns[:, x] += pixels[:, src] * weight
    result = np.zeros((height, width, *image.shape[2:]), np.float32)
    for y, row in enumerate(terms(image.shape[0], height)):
        for src, weight in row:
            result[y] += columns[src] * weight
    return np.rint(result).astype(np.uint8)


@pytest.mark.parametrize("channels", [0, 3])
@pytest.mark.parametrize("height", [210, 250])
@pytest.mark.parametrize(
    "size",
    [(84, 84), (96, 96), (64, 64), (105, 80), (210, 80), (70, 53), (42, 42), (50, 160), (1, 1),
     (7, 5), (105, 159), (125, 80), (30, 40)],
)  # fmt: skip
def test_equals_a_slow_area_average(size: tuple[int, int], height: int, channels: int) -> None:
    rng = np.random.default_rng(0)
    shape = (height, 160, channels) if channels else (height, 160)
    noise = rng.integers(0, 256, shape).astype(np.uint8)
    cartoon = rng.choice(np.array([0, 1, 50, 51, 255], np.uint8), shape)
    for image in (noise, cartoon, np.full(shape, 255, np.uint8)):
        np.testing.assert_array_equal(_native.resize_frame(image, *size), slow_resize(image, *size))


def test_equal_size_is_a_copy() -> None:
    image = np.random.default_rng(1).integers(0, 256, (210, 160)).astype(np.uint8)
    np.testing.assert_array_equal(_native.resize_frame(image, 210, 160), image)


@pytest.mark.parametrize("size", [(4097, 84), (84, 4097), (0, 84), (84, -1)])
def test_sizes_that_no_frame_can_have_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(SpecError, match="expected 1 to 4096 each"):
        _native.resize_frame(np.zeros((210, 160), np.uint8), *size)
