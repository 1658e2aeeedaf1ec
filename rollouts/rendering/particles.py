# SPDX-License-Identifier: Apache-2.0
"""Draws the scenarios of MPE like Farama's mpe2 1.1: discs, and what agents say.

The discs equal those of mpe2 in each pixel. Two things differ. Messages are written in pygame's own
font. Agents of simple_crypto have no positions, because nothing depends on them, so they are drawn
where they cover nothing.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.rendering.agent_frames import WorldView
from rollouts.rendering.canvas import font, load_pygame, pixels

Array = npt.NDArray[Any]
Color = tuple[float, float, float]
Options = Mapping[str, Any]
# (size in units of the world, colour as parts of _BRIGHTEST)
Disc = tuple[float, Color]

_SIDE = 700  # pixels
_UNIT = 350  # pixels of one unit of the world, before the view is scaled
_BRIGHTEST = 200  # largest value of a colour's part
_INSET = 0.9  # part of the frame that discs fill
_LINE = 0.05  # height of a line of text, and its distance from the edge, as parts of a frame's side
_LETTERS = 24  # pixels

_SIZE = 0.05  # size of agents and landmarks without a size of their own
_DARK: Color = (0.25, 0.25, 0.25)
_RED: Color = (0.75, 0.25, 0.25)


@dataclass(frozen=True, slots=True)
class Scene:
    """The contents of a frame.

    Attributes:
      agents, landmarks: Their discs; later ones cover earlier ones.
      places: (landmarks, 2) positions of the landmarks.
      speakers: Agents that may speak.
      said: (speakers, words) their last words; zeros before the first.
      positions: (agents, 2) positions of the agents; None: those of the world.
    """

    agents: Sequence[Disc]
    landmarks: Sequence[Disc]
    places: Array
    speakers: Sequence[int] = ()
    said: Array | None = None
    positions: Array | None = None


class ParticleRenderer:
    """Draws worlds of one scenario."""

    frames_per_s = 10
    asks_for_start = True

    def __init__(self, id: str) -> None:
        """Takes the id of an MPE scenario."""
        self._scene = _SCENES[id]

    def draw(self, view: WorldView) -> npt.NDArray[np.uint8]:
        """See `WorldRenderer`; 700 x 700 pixels."""
        assert view.start is not None
        scene = self._scene(view.now, view.options)
        begun = self._scene(view.start, view.options)
        things = _everything(scene, view.now)
        reach = _reach(things)
        zoom = _INSET * _reach(_everything(begun, view.start)) / reach
        pygame = load_pygame()
        surface = pygame.Surface((_SIDE, _SIDE), depth=32)
        surface.fill("white")
        # like mpe2, rounds to whole pixels before discs are moved towards the middle
        centers = things * (1, -1) / reach * _SIDE // 2 * _INSET + _SIDE // 2
        discs = zip((*scene.agents, *scene.landmarks), centers.tolist(), strict=True)
        for number, ((size, color), center) in enumerate(discs):
            radius = size * _UNIT * zoom
            filling = [int(part * _BRIGHTEST) for part in color]
            pygame.draw.circle(surface, filling, center, radius)
            pygame.draw.circle(surface, "black", center, radius, 1)
            # later discs cover the text
            if number in scene.speakers:
                self._write(surface, view, scene, scene.speakers.index(number))
        return pixels(surface)

    def _write(self, surface: Any, view: WorldView, scene: Scene, line: int) -> None:
        """Writes a speaker's words, on a line of its own, counted from the bottom."""
        assert scene.said is not None
        word = _word(scene.said[line], spelled=not view.options["continuous_actions"])
        at = (_SIDE * _LINE, _SIDE * (1 - _LINE) - _SIDE * _LINE * line)
        text = f"{view.agents[scene.speakers[line]]} sends {word}"
        font(_LETTERS).render_to(surface, at, text, "black")


def _everything(scene: Scene, world: Mapping[str, Array]) -> Array:
    """Positions of all discs: (agents + landmarks, 2)."""
    agents = world["position"] if scene.positions is None else scene.positions
    return np.concatenate([agents, scene.places])


def _reach(places: Array) -> float:
    """Distance of the farthest disc from the middle."""
    # if all discs are at the origin, the distance would be 0
    return float(np.abs(places).max()) or 1.0


def _word(said: Array, *, spelled: bool) -> str:
    if not said.any():
        return "_"
    if spelled:
        return string.ascii_uppercase[int(said.argmax())]
    return "[" + ",".join(f"{each:.2f}" for each in said) + "]"


# -- scenarios: sizes and colours as in mpe2 -------------------------------------------


def _simple(world: Mapping[str, Array], options: Options) -> Scene:
    return Scene([(_SIZE, _DARK)], [(_SIZE, _RED)], world["landmark"][None])


def _spread(world: Mapping[str, Array], options: Options) -> Scene:
    count = options["N"]
    agents = [(0.15, (0.35, 0.35, 0.85))] * count
    return Scene(agents, [(_SIZE, _DARK)] * count, world["landmarks"][:count])


def _tag(world: Mapping[str, Array], options: Options) -> Scene:
    obstacles = options["num_obstacles"]
    agents: list[Disc] = [(0.075, (0.85, 0.35, 0.35))] * options["num_adversaries"]
    agents += [(0.05, (0.35, 0.85, 0.35))] * options["num_good"]
    return Scene(agents, [(0.2, _DARK)] * obstacles, world["obstacles"][:obstacles])


def _adversary(world: Mapping[str, Array], options: Options) -> Scene:
    count = options["N"]
    agents: list[Disc] = [(0.15, (0.85, 0.35, 0.35)), *[(0.15, (0.35, 0.35, 0.85))] * count]
    landmarks: list[Disc] = [(0.08, (0.15, 0.15, 0.15))] * count
    landmarks[int(world["goal"])] = (0.08, (0.15, 0.65, 0.15))
    return Scene(agents, landmarks, world["landmarks"][:count])


def _push(world: Mapping[str, Array], options: Options) -> Scene:
    # the agent gets the colour of its goal
    own: Color = (0.25, 0.75, 0.25) if world["goal"] == 0 else (0.25, 0.25, 0.75)
    landmarks: list[Disc] = [(_SIZE, (0.1, 0.9, 0.1)), (_SIZE, (0.1, 0.1, 0.9))]
    return Scene([(_SIZE, _RED), (_SIZE, own)], landmarks, world["landmarks"])


def _crypto(world: Mapping[str, Array], options: Options) -> Scene:
    secrets: list[Color] = [(1, 0, 0), (0, 1, 0)]
    # Bob is drawn in the colour that Alice means, which he must find out
    agents: list[Disc] = [(_SIZE, _RED), (_SIZE, secrets[int(world["goal"])]), (_SIZE, _DARK)]
    return Scene(
        agents,
        [(_SIZE, color) for color in secrets],
        np.array([[-0.25, 0.8], [0.25, 0.8]]),
        speakers=(0, 1, 2),
        said=world["said"],
        # Eve listens between Bob and Alice
        positions=np.array([[0.0, -0.3], [1.0, 0.2], [-1.0, 0.2]]),
    )


def _reference(world: Mapping[str, Array], options: Options) -> Scene:
    colors: list[Color] = [_RED, (0.25, 0.75, 0.25), (0.25, 0.25, 0.75)]
    # an agent has the colour of the landmark to which the other agent wants it to go
    first, second = (colors[goal] for goal in world["goals"])
    agents = [(_SIZE, second), (_SIZE, first)]
    landmarks = [(_SIZE, color) for color in colors]
    return Scene(agents, landmarks, world["landmarks"], speakers=(0, 1), said=world["said"])


def _speaker_listener(world: Mapping[str, Array], options: Options) -> Scene:
    colors: list[Color] = [(0.65, 0.15, 0.15), (0.15, 0.65, 0.15), (0.15, 0.15, 0.65)]
    red, green, blue = colors[int(world["goal"])]
    listener: Color = (red + 0.45, green + 0.45, blue + 0.45)
    landmarks = [(0.04, color) for color in colors]
    agents = [(0.075, _DARK), (0.075, listener)]
    return Scene(agents, landmarks, world["landmarks"], speakers=(0,), said=world["said"][:1])


def _world_comm(world: Mapping[str, Array], options: Options) -> Scene:
    counts = [options[name] for name in ("num_obstacles", "num_food", "num_forests")]
    kinds: list[Disc] = [(0.2, _DARK), (0.03, (0.15, 0.15, 0.65)), (0.3, (0.6, 0.9, 0.6))]
    landmarks = [disc for disc, count in zip(kinds, counts, strict=True) for _ in range(count)]
    agents: list[Disc] = [(0.075, (0.95 - 0.3, 0.45 - 0.3, 0.45 - 0.3))]
    agents += [(0.075, (0.95, 0.45, 0.45))] * (options["num_adversaries"] - 1)
    agents += [(0.045, (0.45, 0.95, 0.45))] * options["num_good"]
    places = world["landmarks"][: len(landmarks)]
    return Scene(agents, landmarks, places, speakers=(0,), said=world["said"][None])


_SCENES: dict[str, Callable[[Mapping[str, Array], Options], Scene]] = {
    "simple_v3": _simple,
    "simple_spread_v3": _spread,
    "simple_tag_v3": _tag,
    "simple_adversary_v3": _adversary,
    "simple_push_v3": _push,
    "simple_crypto_v3": _crypto,
    "simple_reference_v3": _reference,
    "simple_speaker_listener_v4": _speaker_listener,
    "simple_world_comm_v3": _world_comm,
}
