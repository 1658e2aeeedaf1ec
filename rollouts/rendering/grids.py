# SPDX-License-Identifier: Apache-2.0
"""Draws grids of MiniGrid and BabyAI like minigrid: tiles of 32 pixels, visible ones lighter."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import _native

FRAMES_PER_S = 10
TILE = 32  # pixels of a side

_SUBPIXELS = 3  # parts of a pixel's side
_LINE = 0.031  # width of the grid's lines, tiles
# minigrid's colours, by number
_COLORS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (112, 39, 195), (255, 255, 0), (100, 100, 100))
_WALL, _DOOR, _KEY, _BALL, _BOX, _GOAL, _LAVA = 2, 4, 5, 6, 7, 8, 9
_OPEN, _LOCKED = 0, 2
# the first bytes of a grid in memory: native/include/rollouts/envs/minigrid/grid.h
_GRID = np.dtype(
    [(name, "<i4") for name in ("width", "height", "x", "y", "dir")]
    + [("carrying", "<u4"), ("steps", "<i4", 2), ("items", "<i4", 17), ("words", "u1", 76)]
    + [("num_words", "<i4"), ("cells", "<u4", 625)]
)
_SHOWN = 0x0003070F  # a cell's type, colour and state

Color = tuple[int, int, int]
Image = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]


def draw(state: bytes, options: Mapping[str, Any]) -> Image:
    """Draws a state.

    Args:
      state: One entry of `VectorEnv.get_state`, of an environment that was reset.
      options: The environment's own options; `agent_view_size` and `see_through_walls` define the
        visible cells, and `highlight` makes them lighter.

    Returns:
      (32 rows, 32 columns, 3) uint8, the rows and columns of the grid in tiles of 32 pixels.
    """
    grid = np.frombuffer(_native.env_state(state), _GRID, count=1)[0]
    width, height = int(grid["width"]), int(grid["height"])
    cells = grid["cells"][: width * height].reshape(height, width) & _SHOWN
    agent = int(grid["x"]), int(grid["y"]), int(grid["dir"])
    seen = _seen(cells, *agent, int(options["agent_view_size"]), bool(options["see_through_walls"]))
    if not options["highlight"]:
        seen[:] = False
    frame = np.empty((height, TILE, width, TILE, 3), np.uint8)
    for y, x in np.ndindex(height, width):
        facing = agent[2] if (x, y) == agent[:2] else -1
        frame[y, :, x] = _tile(int(cells[y, x]), facing, bool(seen[y, x]))
    return frame.reshape(height * TILE, width * TILE, 3)


def _seen(
    cells: npt.NDArray[np.uint32], x: int, y: int, facing: int, side: int, see_through: bool
) -> Mask:
    """Cells (height, width) that are visible to the agent."""
    height, width = cells.shape
    dx, dy = ((1, 0), (0, 1), (-1, 0), (0, -1))[facing]
    # columns and rows of the view; the agent is in the middle of the last row
    columns, rows = np.indices((side, side))
    across, ahead = columns - side // 2, side - 1 - rows
    xs, ys = x + dx * ahead - dy * across, y + dy * ahead + dx * across
    inside = (xs >= 0) & (xs < width) & (ys >= 0) & (ys < height)
    view = np.full((side, side), _WALL, np.uint32)
    view[inside] = cells[ys[inside], xs[inside]]
    kinds, states = view & 15, view >> 16
    opaque = (kinds == _WALL) | ((kinds == _DOOR) & (states != _OPEN))
    visible = np.ones((side, side), bool) if see_through else _spread(~opaque)
    seen = np.zeros((height, width), bool)
    shown = inside & visible
    seen[ys[shown], xs[shown]] = True
    return seen


def _spread(clear: Mask) -> Mask:
    """Marks the cells of a view (columns, rows) that are visible from the middle of its last row.

    A cell that is visible and clear makes the cells beside it and the three before it visible:
    first to the right, then to the left.
    """
    side = len(clear)
    seen = np.zeros_like(clear)
    seen[side // 2, -1] = True
    for row in reversed(range(side)):
        for step in (1, -1):
            for column in range(side)[::step]:
                beside = column + step
                if not (0 <= beside < side and seen[column, row] and clear[column, row]):
                    continue
                seen[beside, row] = True
                if row > 0:
                    seen[[column, beside], row - 1] = True
    return seen


@functools.cache
def _tile(cell: int, facing: int, is_seen: bool) -> Image:
    """Draws a cell, with the agent if `facing` is a direction (-1: without)."""
    tile = _Tile()
    tile.fill(tile.rectangle(0, _LINE, 0, 1), _COLORS[5])
    tile.fill(tile.rectangle(0, 1, 0, _LINE), _COLORS[5])
    kind, color, state = cell & 15, _COLORS[cell >> 8 & 7], cell >> 16
    if kind in (_WALL, _GOAL):
        tile.fill(tile.rectangle(0, 1, 0, 1), color)
    elif kind == _DOOR:
        _draw_door(tile, color, state)
    elif kind == _KEY:
        _draw_key(tile, color)
    elif kind == _BALL:
        tile.fill(tile.circle(0.5, 0.5, 0.31), color)
    elif kind == _BOX:
        tile.fill(tile.rectangle(0.12, 0.88, 0.12, 0.88), color)
        tile.fill(tile.rectangle(0.18, 0.82, 0.18, 0.82), (0, 0, 0))
        tile.fill(tile.rectangle(0.16, 0.84, 0.47, 0.53), color)
    elif kind == _LAVA:
        _draw_lava(tile)
    if facing >= 0:
        tile.fill(tile.agent(facing), _COLORS[0])
    return tile.image(is_seen)


def _draw_door(tile: _Tile, color: Color, state: int) -> None:
    if state == _OPEN:
        tile.fill(tile.rectangle(0.88, 1.00, 0.00, 1.00), color)
        tile.fill(tile.rectangle(0.92, 0.96, 0.04, 0.96), (0, 0, 0))
        return
    tile.fill(tile.rectangle(0, 1, 0, 1), color)
    if state == _LOCKED:
        dark = tuple(int(0.45 * part) for part in color)
        tile.fill(tile.rectangle(0.06, 0.94, 0.06, 0.94), dark)
        tile.fill(tile.rectangle(0.52, 0.75, 0.50, 0.56), color)
        return
    for edge, filled in ((0.04, (0, 0, 0)), (0.08, color), (0.12, (0, 0, 0))):
        tile.fill(tile.rectangle(edge, 1 - edge, edge, 1 - edge), filled)
    tile.fill(tile.circle(0.75, 0.50, 0.08), color)


def _draw_key(tile: _Tile, color: Color) -> None:
    tile.fill(tile.rectangle(0.50, 0.63, 0.31, 0.88), color)
    tile.fill(tile.rectangle(0.38, 0.50, 0.59, 0.66), color)
    tile.fill(tile.rectangle(0.38, 0.50, 0.81, 0.88), color)
    tile.fill(tile.circle(0.56, 0.28, 0.190), color)
    tile.fill(tile.circle(0.56, 0.28, 0.064), (0, 0, 0))


def _draw_lava(tile: _Tile) -> None:
    tile.fill(tile.rectangle(0, 1, 0, 1), (255, 128, 0))
    for wave in range(3):
        low, high = 0.3 + 0.2 * wave, 0.4 + 0.2 * wave
        for start, end in pairwise([(0.1, low), (0.3, high), (0.5, low), (0.7, high), (0.9, low)]):
            tile.fill(tile.line(start, end, 0.03), (0, 0, 0))


class _Tile:
    """A tile at three times its size, for shapes with coordinates from 0 to 1."""

    def __init__(self) -> None:
        size = TILE * _SUBPIXELS
        self._image = np.zeros((size, size, 3), np.uint8)
        middles = (np.arange(size) + 0.5) / size
        self._x: Numbers = np.broadcast_to(middles, (size, size))
        self._y: Numbers = np.broadcast_to(middles[:, None], (size, size))

    def fill(self, where: Mask, color: tuple[int, ...]) -> None:
        self._image[where] = color

    def rectangle(self, left: float, right: float, top: float, bottom: float) -> Mask:
        return (self._x >= left) & (self._x <= right) & (self._y >= top) & (self._y <= bottom)

    def circle(self, x: float, y: float, radius: float) -> Mask:
        inside: Mask = (self._x - x) ** 2 + (self._y - y) ** 2 <= radius * radius
        return inside

    def line(self, start: tuple[float, float], end: tuple[float, float], radius: float) -> Mask:
        """Pixels of a line, within the box of its ends and `radius`."""
        (x0, y0), (x1, y1) = np.array([start, end], np.float32)
        length = np.hypot(x1 - x0, y1 - y0)
        dx, dy = (x1 - x0) / length, (y1 - y0) / length
        along = np.clip((self._x - x0) * dx + (self._y - y0) * dy, 0, length)
        distance = np.hypot(self._x - (x0 + along * dx), self._y - (y0 + along * dy))
        box = self.rectangle(
            min(start[0], end[0]) - radius,
            max(start[0], end[0]) + radius,
            min(start[1], end[1]) - radius,
            max(start[1], end[1]) + radius,
        )
        near: Mask = box & (distance <= radius)
        return near

    def agent(self, facing: int) -> Mask:
        """A triangle that points in the agent's direction."""
        a, b, c = np.array([(0.12, 0.19), (0.87, 0.50), (0.12, 0.81)], np.float32)
        cos, sin = math.cos(-0.5 * math.pi * facing), math.sin(-0.5 * math.pi * facing)
        x, y = self._x - 0.5, self._y - 0.5
        px, py = 0.5 + x * cos - y * sin - a[0], 0.5 + y * cos + x * sin - a[1]
        (x0, y0), (x1, y1) = c - a, b - a
        area = x0 * y1 - x1 * y0
        u, v = (px * y1 - x1 * py) / area, (x0 * py - px * y0) / area
        inside: Mask = (u >= 0) & (v >= 0) & (u + v < 1)
        return inside

    def image(self, is_seen: bool) -> Image:
        """(32, 32, 3); visible cells are lighter."""
        image = self._image
        if is_seen:
            image = (image + 0.30 * (255 - image)).clip(0, 255).astype(np.uint8)
        parts = image.reshape(TILE, _SUBPIXELS, TILE, _SUBPIXELS, 3)
        small: Image = parts.mean(axis=3).mean(axis=1).astype(np.uint8)
        return small
