# SPDX-License-Identifier: Apache-2.0
"""The bilinear resize of Atari frames against OpenCV's algorithm written down in plain Python.

test_atari_observations.py compares growing frames with OpenCV itself, through ale-py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rollouts import _native

SIZES = [(84, 84), (210, 160), (300, 200), (256, 256), (100, 300), (420, 320), (1, 1), (211, 84)]


def taps(src_size: int, dst_size: int, *, by_area: bool, edges: bool) -> list[tuple[int, int, int]]:
    """(source index, its weight, the next one's weight) by destination index; weights of 2048."""
    growth = dst_size / src_size
    scale = 1 / growth
    table = []
    for dst in range(dst_size):
        if by_area:
            first = math.floor(dst * scale)
            part = np.float32((dst + 1) - (first + 1) * growth)
            part = np.float32(0) if part <= 0 else part - np.floor(part)
        else:
            where = np.float32((dst + 0.5) * scale - 0.5)
            first = math.floor(where)
            part = where - np.float32(first)
        if edges and not 0 <= first < src_size - 1:
            first, part = min(max(first, 0), src_size - 1), np.float32(0)
        weights = (int(np.rint((np.float32(1) - part) * 2048)), int(np.rint(part * 2048)))
        table.append((first, *weights))
    return table


def slow_resize(image: np.ndarray, height: int, width: int, *, by_area: bool) -> np.ndarray:
    """Columns first, then rows, in whole numbers, which lose bits where OpenCV's do."""
    pixels = image.astype(int)
    rows, columns = image.shape[:2]
    wide = np.zeros((rows, width, *image.shape[2:]), int)
    for x, (at, *w) in enumerate(taps(columns, width, by_area=by_area, edges=True)):
        wide[:, x] = pixels[:, at] * w[0] + pixels[:, min(at + 1, columns - 1)] * w[1]
    result = np.zeros((height, width, *image.shape[2:]), int)
    for y, (at, *w) in enumerate(taps(rows, height, by_area=by_area, edges=False)):
        first, second = (wide[min(max(at + i, 0), rows - 1)] >> 4 for i in (0, 1))
        result[y] = (((w[0] * first) >> 16) + ((w[1] * second) >> 16) + 2) >> 2
    return result.astype(np.uint8)


@pytest.mark.parametrize("channels", [0, 3])
@pytest.mark.parametrize("size", SIZES)
def test_equals_a_slow_interpolation(size: tuple[int, int], channels: int) -> None:
    rng = np.random.default_rng(0)
    shape = (210, 160, channels) if channels else (210, 160)
    noise = rng.integers(0, 256, shape).astype(np.uint8)
    for image in (noise, np.full(shape, 255, np.uint8)):
        ours = _native.resize_frame(image, *size, by_area=False)
        np.testing.assert_array_equal(ours, slow_resize(image, *size, by_area=False))
        # what grows in a direction is interpolated with either name
        if size[0] > 210 or size[1] > 160:
            ours = _native.resize_frame(image, *size, by_area=True)
            np.testing.assert_array_equal(ours, slow_resize(image, *size, by_area=True))


def test_halves_are_averages_by_either_name() -> None:
    image = np.random.default_rng(1).integers(0, 256, (210, 160)).astype(np.uint8)
    both = [_native.resize_frame(image, 105, 80, by_area=by_area) for by_area in (False, True)]
    np.testing.assert_array_equal(*both)
