# SPDX-License-Identifier: Apache-2.0
"""Options of MuJoCo environments' frames, by the names of Gymnasium or EnvPool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rollouts.checks import whole_number
from rollouts.errors import DTypeError, SpecError

MODES = ("rgb_array",)
PREFIX = "render_"  # EnvPool's prefix: render_width is width

# fields of MuJoCo's free camera
CAMERA_FIELDS = (
    "azimuth",
    "distance",
    "elevation",
    "fixedcamid",
    "lookat",
    "orthographic",
    "trackbodyid",
    "type",
)
_MAX_SIDE = 16384  # pixels; no OpenGL draws into more


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """Size, camera and visual options of MuJoCo environments' frames; only the size for Tag.

    Attributes:
      width, height: Pixels.
      camera: Number or name of a camera of the model, -1 is the free one; None: "track" where
        the model has it, as in Gymnasium.
      default_camera_config: Fields of the free camera, such as {"distance": 4.0}; None: the
        task's own.
      max_geom: Geoms drawn at most.
      visual_options: Number of a flag (mujoco.mjtVisFlag) -> whether it is set.
    """

    width: int = 480
    height: int = 480
    camera: int | str | None = None
    default_camera_config: Mapping[str, Any] | None = None
    max_geom: int = 1000
    visual_options: Mapping[int, bool] = field(default_factory=dict)


SIZE = ("width", "height")
NAMES = (
    *SIZE,
    "camera_id",
    "camera_name",
    "default_camera_config",
    "max_geom",
    "visual_options",
)


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits options into those of frames, by their names in Gymnasium, and all others.

    Raises:
      SpecError: An option is given by both of its names.
    """
    frames: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in options.items():
        plain = name.removeprefix(PREFIX)
        if plain not in NAMES:
            others[name] = value
        elif plain in frames:
            raise SpecError(f"options {plain!r} and {PREFIX + plain!r} say the same: leave out one")
        else:
            frames[plain] = value
    return frames, others


def read_options(given: Mapping[str, Any]) -> RenderOptions:
    """Checks options of frames.

    Raises:
      SpecError: An impossible size or number, two cameras, or an unknown field.
      DTypeError: Not a dict where one is expected.
    """
    usual = RenderOptions()
    config = given.get("default_camera_config")
    if config is not None:
        _check_camera_config(config)
    flags = given.get("visual_options", {})
    if not isinstance(flags, Mapping):
        raise DTypeError(f"visual_options must be a dict of flag: bool, got {flags!r}")
    return RenderOptions(
        width=_side("width", given.get("width"), usual.width),
        height=_side("height", given.get("height"), usual.height),
        camera=_camera(given.get("camera_id"), given.get("camera_name")),
        default_camera_config=config,
        max_geom=whole_number("max_geom", given.get("max_geom", usual.max_geom), 1, 2**31 - 1),
        visual_options=dict(flags),
    )


def read_mode(render_mode: str | None) -> str | None:
    """Checks a render_mode.

    Raises:
      SpecError: There is no such mode.
    """
    if render_mode is None or (isinstance(render_mode, str) and render_mode in MODES):
        return render_mode
    raise SpecError(
        f"render_mode must be None or 'rgb_array', got {render_mode!r}: show the frames of "
        "render() with a viewer of your own, or write them with `rollouts record`"
    )


def _side(name: str, value: Any, usual: int) -> int:
    # None is EnvPool's default
    return usual if value is None else whole_number(name, value, 1, _MAX_SIDE)


def _camera(number: Any, name: Any) -> int | str | None:
    if number is not None and name is not None:
        raise SpecError(f"camera_id {number!r} and camera_name {name!r} are given: leave out one")
    if name is not None and not isinstance(name, str):
        raise SpecError(f"camera_name must be a str, got {name!r}")
    return name if number is None else whole_number("camera_id", number, -1, 2**31 - 1)


def _check_camera_config(config: Any) -> None:
    if not isinstance(config, Mapping):
        raise DTypeError(f"default_camera_config must be a dict such as {{'distance': 4.0}}, "
                         f"got {config!r}")  # fmt: skip
    unknown = sorted(set(config) - set(CAMERA_FIELDS))
    if unknown:
        raise SpecError(
            f"default_camera_config has the unknown fields {unknown}, expected some of "
            f"{', '.join(CAMERA_FIELDS)}"
        )
