# SPDX-License-Identifier: Apache-2.0
"""Draws LunarLander and BipedalWalker as Gymnasium does, with pygame.

Not drawn: the lander's particles, and the walker's ray that flickers from frame to frame. Both
serve only drawing, and states do not contain them.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.rendering.canvas import load_pygame, pixels

FRAMES_PER_S = 50

_SCALE = 30.0  # pixels in a metre
_WIDTH, _HEIGHT = 600, 400  # pixels
_STEP = 14 / _SCALE  # width of a step of the walker's ground, metres
_NUM_CLOUDS = 10

Corners = npt.NDArray[np.float64]
Color = tuple[int, int, int]


def draw(header: str, state: bytes) -> npt.NDArray[np.uint8]:
    """Draws a state.

    Args:
      header: The environment's header.
      state: An entry of `VectorEnv.get_state` for an environment that was reset.

    Returns:
      (400, 600, 3) uint8.

    Raises:
      EngineError: pygame is missing.
    """
    inside = _native.env_state(state)
    count = int.from_bytes(inside[:8], "little")
    scene = np.frombuffer(inside, np.float64, count, offset=8)
    if header.endswith("lunar_lander.h"):
        return _draw_lander(scene)
    return _draw_walker(scene)


class _Surface:
    """A pygame surface with the two ways in which Gymnasium fills a polygon."""

    def __init__(self, width: float) -> None:
        self.pygame = load_pygame()
        self.surface = self.pygame.Surface((width, _HEIGHT))
        self._gfxdraw: Any = importlib.import_module("pygame.gfxdraw")

    def fill(self, corners: Any, color: Color, *, smooth: bool = True) -> None:
        self.pygame.draw.polygon(self.surface, color, corners)
        if smooth:
            self._gfxdraw.aapolygon(self.surface, corners, color)

    def outline(self, corners: Any, color: Color) -> None:
        """Draws an outline one pixel wide, as around the walker's parts."""
        closed = [*corners, corners[0]]
        self.pygame.draw.polygon(self.surface, color, closed, width=1)
        self._gfxdraw.aapolygon(self.surface, closed, color)

    def frame(self) -> npt.NDArray[np.uint8]:
        """Returns the frame, with the ground at the bottom."""
        return pixels(self.surface)[::-1]


def _scaled(numbers: npt.NDArray[np.float64]) -> list[tuple[float, float]]:
    """Converts corners from metres to pixels, in float32 as Box2D does."""
    points = numbers.astype(np.float32).reshape(-1, 2) * np.float32(_SCALE)
    return [(float(x), float(y)) for x, y in points]


def _split(numbers: npt.NDArray[np.float64], counts: Sequence[int]) -> list[Any]:
    """Splits an array into parts of these lengths, and the rest."""
    return np.split(numbers, np.cumsum(counts))


def _draw_lander(scene: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    heights, *parts, _ = _split(scene, [11, 12, 8, 8])
    on = _Surface(_WIDTH)
    pygame = on.pygame
    on.surface.fill((255, 255, 255))
    # the sky is drawn black, and the part that stays white is the moon
    width, height = _WIDTH / _SCALE, _HEIGHT / _SCALE
    xs = [width / 10 * i for i in range(11)]
    for i in range(10):
        sky = [(xs[i], heights[i]), (xs[i + 1], heights[i + 1]), (xs[i + 1], height)]
        on.fill([(x * _SCALE, y * _SCALE) for x, y in [*sky, (xs[i], height)]], (0, 0, 0))
    for part in parts:
        corners = _scaled(part)
        on.fill(corners, (128, 102, 230))
        pygame.draw.aalines(on.surface, (77, 77, 128), True, corners)
        for x in (xs[4] * _SCALE, xs[6] * _SCALE):
            foot = height / 4 * _SCALE
            top = foot + 50
            pygame.draw.line(on.surface, (255, 255, 255), (x, foot), (x, top))
            on.fill([(x, top), (x, top - 10), (x + 25, top - 5)], (204, 204, 0))
    return on.frame()


def _draw_walker(scene: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    (x,), heights, clouds, hull, legs, obstacles = _split(scene, [1, 200, _NUM_CLOUDS * 10, 10, 32])
    scroll = float(x) - _WIDTH / _SCALE / 5
    on = _Surface(_WIDTH + max(0.0, scroll) * _SCALE)
    left = scroll * _SCALE
    view = [(left, 0), (left + _WIDTH, 0), (left + _WIDTH, _HEIGHT), (left, _HEIGHT)]
    on.fill(view, (215, 215, 255), smooth=False)
    _draw_clouds(on, clouds.reshape(-1, 5, 2), scroll)
    _draw_ground(on, heights, obstacles, scroll)
    # upper and lower legs, the far ones first
    for i, leg in zip((-1, -1, 1, 1), legs.reshape(4, 8), strict=True):
        on.fill(_scaled(leg), (153 - i * 25, 76 - i * 25, 127 - i * 25))
        on.outline(_scaled(leg), (102 - i * 25, 51 - i * 25, 76 - i * 25))
    on.fill(_scaled(hull), (127, 51, 229))
    on.outline(_scaled(hull), (76, 76, 127))
    _draw_flag(on)
    return on.frame()[:, -_WIDTH:]


def _draw_clouds(on: _Surface, clouds: Corners, scroll: float) -> None:
    for cloud in clouds:
        # clouds move half as fast as the ground
        if cloud[:, 0].max() < scroll / 2 or cloud[:, 0].min() > scroll / 2 + _WIDTH / _SCALE:
            continue
        corners = [(x * _SCALE + scroll * _SCALE / 2, y * _SCALE) for x, y in cloud.tolist()]
        on.fill(corners, (255, 255, 255))


def _draw_ground(
    on: _Surface, heights: Corners, obstacles: npt.NDArray[np.float64], scroll: float
) -> None:
    line = [(i * _STEP, float(y)) for i, y in enumerate(heights)]
    for first, second in pairwise(line):
        if second[0] < scroll or first[0] > scroll + _WIDTH / _SCALE:
            continue
        earth = [first, second, (second[0], 0), (first[0], 0)]
        on.fill([(x * _SCALE, y * _SCALE) for x, y in earth], (102, 153, 76))
    # as in Gymnasium, the last part is drawn first
    for i in reversed(range(len(line) - 1)):
        ends = _scaled(np.array([line[i], line[i + 1]]))
        color = (76, 255 if i % 2 == 0 else 204, 76)
        on.pygame.draw.aaline(on.surface, color, *ends)
    for obstacle in obstacles.reshape(-1, 8)[::-1]:
        on.fill(_scaled(obstacle), (255, 255, 255))
        on.outline(_scaled(obstacle), (153, 153, 153))


def _draw_flag(on: _Surface) -> None:
    foot = _HEIGHT / _SCALE / 4 * _SCALE
    x, top = _STEP * 3 * _SCALE, foot + 50
    on.pygame.draw.aaline(on.surface, (0, 0, 0), (x, foot), (x, top))
    flag = [(x, top), (x, top - 10), (x + 25, top - 5)]
    on.fill(flag, (230, 51, 0), smooth=False)
    on.pygame.draw.lines(on.surface, (0, 0, 0), False, [*flag, flag[0]])
