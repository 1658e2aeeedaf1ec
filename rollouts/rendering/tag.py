# SPDX-License-Identifier: Apache-2.0
"""Draws TagContinuous and TagGridWorld: a square world, with step and remaining runners above.

Taggers are orange, runners blue. In TagContinuous, darts point in the direction of movement, the
pale disc around a tagger is its reach, a cross is a runner tagged in this step, and a grey dot is a
place where a runner left earlier. In TagGridWorld, a number shows how many taggers share a cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.rendering.agent_frames import WorldView
from rollouts.rendering.canvas import font, load_pygame, pixels

Array = npt.NDArray[Any]
Color = tuple[int, int, int]

_PAPER: Color = (236, 238, 241)
_FLOOR: Color = (255, 255, 255)
_LINES: Color = (222, 226, 231)
_FRAME: Color = (120, 128, 138)
_INK: Color = (40, 44, 52)
_TAGGER: Color = (222, 84, 30)
_REACH: Color = (253, 226, 212)
_RUNNER: Color = (28, 104, 184)
_GONE: Color = (208, 212, 218)

# corners of a dart that points along x, in units of its size
_DART = np.array([[1.4, 0.0], [-0.8, 0.75], [-0.35, 0.0], [-0.8, -0.75]])
_DIAMOND = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
_CROSS = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
# shapes are drawn with pixels this many times as fine, which smooths their edges
_FINE = 3
_COARSE_FROM = 1024  # pixels of a frame's longer side from which shapes are not drawn finer


class TagRenderer:
    """Draws worlds of one id."""

    frames_per_s = 10
    asks_for_start = False

    def __init__(self, id: str, width: int, height: int) -> None:
        """Takes the id, and the size of frames in pixels."""
        self._draw_world = _draw_grid if id.startswith("TagGrid") else _draw_plane
        self._width, self._height = width, height

    def draw(self, view: WorldView) -> npt.NDArray[np.uint8]:
        """See `WorldRenderer`; frames have the given size."""
        picture = _Picture(self._width, self._height)
        self._draw_world(picture, view)
        surface = picture.finish()
        time = f"{int(view.now['elapsed_steps'])}"
        if view.max_episode_steps is not None:
            time += f"/{view.max_episode_steps}"
        runs = ~_is_tagger(view)
        left = f"{int((_is_there(view.now) & runs).sum())}/{int(runs.sum())}"
        picture.write_head(f"step {time}", f"runners left {left}", short=(time, left))
        return pixels(surface)


def _is_tagger(view: WorldView) -> Array:
    return np.arange(len(view.agents)) < int(view.options["num_taggers"])


def _is_there(world: Mapping[str, Array]) -> Array:
    """Marks the agents that are in the episode after this step."""
    there: Array = (world["active"] != 0) & (world["terminated"] == 0)
    return there


def _draw_plane(picture: _Picture, view: WorldView) -> None:
    world, side = view.now, float(view.options["grid_length"])
    places = np.stack([world["x"], world["y"]], axis=1) / side
    tags, there = _is_tagger(view), _is_there(world)
    # before the first step no runner has been tagged
    tagged = (world["catcher"] >= 0) & (int(world["elapsed_steps"]) > 0)
    # more agents are drawn smaller
    size = min(0.022, max(0.006, 0.12 / len(tags) ** 0.5))
    reach = float(view.options["tagging_distance"])
    for place in places[tags]:
        picture.disc(place, reach, _REACH, least=0)
    picture.draw_edge()
    for place in places[~there & ~tagged]:
        picture.disc(place, size / 2, _GONE)
    turns = zip(places, world["heading"], tags, there, tagged, strict=True)
    for place, heading, is_tagger, is_there, is_tagged in turns:
        if is_there:
            color, own_size = (_TAGGER, 1.3 * size) if is_tagger else (_RUNNER, size)
            picture.dart(place, own_size, float(heading), color)
        if is_tagged:
            picture.cross(place, size, _TAGGER)


def _draw_grid(picture: _Picture, view: WorldView) -> None:
    cells = int(view.options["grid_length"]) + 1
    picture.draw_lines(cells)
    picture.draw_edge()
    world, tags = view.now, _is_tagger(view)
    # agents stay visible even in cells that are too small
    size = max(0.38 / cells, 0.008)
    spots = np.stack([world["x"], world["y"]], axis=1)
    places = (spots + 0.5) / cells
    ((runner_x, runner_y),) = spots[~tags]
    for spot, count in zip(*np.unique(spots[tags], axis=0, return_counts=True), strict=True):
        picture.disc((spot + 0.5) / cells, size, _TAGGER)
        if count > 1 and (spot != (runner_x, runner_y)).any():
            picture.number((spot + 0.5) / cells, size, int(count))
    caught = (spots[tags] == (runner_x, runner_y)).all(axis=1).any()
    (place,) = places[~tags]
    picture.diamond(place, size * (0.6 if caught else 1.1), _RUNNER)


def _shrink(surface: Any, times: int) -> Any:
    """A surface at 1 / `times` of the size, whose pixels are means of squares of pixels."""
    width, height = surface.get_size()
    rows = np.frombuffer(surface.get_buffer().raw, np.uint8).reshape(height, 4 * width)
    total = rows[::times].astype(np.uint16)
    for row in range(1, times):
        total += rows[row::times]
    # the sums of a pixel's four channels are added as one number
    columns = total.view(np.uint64)
    sums = columns[:, ::times].copy()
    for column in range(1, times):
        sums += columns[:, column::times]
    means = (sums.view(np.uint16) + times**2 // 2) // times**2
    small = load_pygame().Surface((width // times, height // times), depth=32)
    small.get_buffer().write(means.astype(np.uint8).tobytes())
    return small


class _Picture:
    """A square world in a frame; places and sizes are relative to the world's side, y upwards."""

    def __init__(self, width: int, height: int) -> None:
        self._pygame = load_pygame()
        self._fine = _FINE if max(width, height) < _COARSE_FROM else 1
        self._head = max(8, height // 14)
        # a margin around the world, so that agents at its edge are drawn whole
        self._margin = max(2, min(width, height) // 32)
        self._top = self._head + self._margin // 3
        self._side = max(4, min(width - 2 * self._margin, height - self._top - self._margin))
        self._left = (width - self._side) // 2
        self._width, self._height = width, height
        self._fine_side = self._side * self._fine
        self._area = self._pygame.Rect((self._margin * self._fine,) * 2, (self._fine_side,) * 2)
        self._world = self._pygame.Surface(
            ((self._side + 2 * self._margin) * self._fine,) * 2, depth=32
        )
        self._world.fill(_PAPER)
        self._world.fill(_FLOOR, self._area)
        self._numbers: list[tuple[Array, float, int]] = []
        self._surface: Any = None

    def disc(self, place: Array, radius: float, color: Color, *, least: float = 1.5) -> None:
        """Draws a disc; `least` is its smallest radius in pixels."""
        pixels_of_radius = max(least * self._fine, radius * self._fine_side)
        self._pygame.draw.circle(self._world, color, self._at(place), pixels_of_radius)

    def dart(self, place: Array, size: float, heading: float, color: Color) -> None:
        """Draws a dart that points to `heading`, in radians."""
        along = np.array([np.cos(heading), np.sin(heading)])
        across = np.array([-along[1], along[0]])
        self._polygon(place, _DART @ np.stack([along, across]), size, color, edge=_FLOOR)

    def diamond(self, place: Array, size: float, color: Color) -> None:
        """Draws a square on its corner, with a white edge."""
        self._polygon(place, _DIAMOND, size, color, edge=_FLOOR)

    def cross(self, place: Array, size: float, color: Color) -> None:
        """Draws two strokes."""
        ends = np.array([self._at(place)]) + _CROSS * self._pixels(size)
        stroke = max(self._fine, round(self._pixels(size) / 2))
        for first, last in (ends[:2], ends[2:]):
            self._pygame.draw.line(self._world, color, first.tolist(), last.tolist(), stroke)

    def number(self, place: Array, radius: float, number: int) -> None:
        """Draws a number within a disc, if it is large enough to be read."""
        self._numbers.append((place, radius, number))

    def draw_lines(self, cells: int) -> None:
        """Draws lines between cells, if they are not too close."""
        if self._side / cells < 5:
            return
        for line in range(1, cells):
            at = line / cells
            for ends in (((at, 0), (at, 1)), ((0, at), (1, at))):
                first, last = (self._at(np.array(end)) for end in ends)
                self._pygame.draw.line(self._world, _LINES, first, last, self._fine)

    def draw_edge(self) -> None:
        """The world's edge."""
        self._pygame.draw.rect(self._world, _FRAME, self._area, self._fine)

    def finish(self) -> Any:
        """Returns the frame with the world; text is drawn on top later."""
        pygame = self._pygame
        self._surface = pygame.Surface((self._width, self._height), depth=32)
        self._surface.fill(_PAPER)
        world = self._world
        if self._fine > 1:
            world = _shrink(world, self._fine)
        corner = self._left - self._margin, self._top - self._margin
        self._surface.blit(world, corner)
        for place, radius, number in self._numbers:
            size = round(radius * self._side * (1.3 if number < 10 else 1.0))
            if size >= 6:
                x, y = np.array(self._at(place)) / self._fine + corner
                self._write(str(number), size, x, y, color=_FLOOR, align=0.5)
        return self._surface

    def write_head(self, left: str, right: str, *, short: tuple[str, str]) -> None:
        """Writes above the world; the short texts if there is no room."""
        size = max(7, round(self._head * 0.5))
        room = self._side - 2 * size
        if sum(font(size).get_rect(text).width for text in (left, right)) > room:
            left, right = short
        y = self._head / 2
        self._write(left, size, self._left, y, color=_INK, align=0)
        self._write(right, size, self._left + self._side, y, color=_INK, align=1)

    def _write(
        self, text: str, size: int, x: float, y: float, *, color: Color, align: float
    ) -> None:
        """Writes text around the height y, with the share `align` of its width to the left of x."""
        area = font(size).get_rect(text)
        # the height of digits, because letters below the line would lift the text
        height = font(size).get_rect("0").height
        top = round(y + height / 2) - area.top
        font(size).render_to(self._surface, (round(x - align * area.width), top), text, color)

    def _polygon(
        self, place: Array, corners: Array, size: float, color: Color, *, edge: Color
    ) -> None:
        points = np.array([self._at(place)]) + corners * (1, -1) * self._pixels(size)
        self._pygame.draw.polygon(self._world, color, points.tolist())
        if self._pixels(size) >= 5 * self._fine:
            self._pygame.draw.polygon(self._world, edge, points.tolist(), self._fine)

    def _pixels(self, size: float) -> float:
        return max(2.0 * self._fine, size * self._fine_side)

    def _at(self, place: Array) -> tuple[float, float]:
        x, y = self._area.left + place[0] * self._fine_side, (1 - place[1]) * self._fine_side
        return float(x), float(self._area.top + y)
