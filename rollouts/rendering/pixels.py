# SPDX-License-Identifier: Apache-2.0
"""Observations that are images of MuJoCo's scene: their options in the native core's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rollouts import _native
from rollouts.errors import EngineError, SpecError
from rollouts.families.mujoco_engine import PIXEL_OPTIONS
from rollouts.rendering import opengl
from rollouts.rendering.frame_options import SIZE, read_options
from rollouts.rendering.mujoco_scene import camera_config, usual_flags

_USUAL_CAMERA = PIXEL_OPTIONS["pixel_camera_id"]
_NATIVE_LIBRARIES = ("egl", "osmesa")


def asks_for_pixels(options: Mapping[str, Any]) -> bool:
    """Tells if an environment with these options observes images."""
    given = options.get("from_pixels", False)
    return bool(np.any(given))


def pixel_frames(frames: Mapping[str, Any]) -> dict[str, Any]:
    """Options of frames for observations, which have a default size of their own."""
    given = {name: value for name, value in frames.items() if value is not None}
    usual = {name: PIXEL_OPTIONS[f"pixel_{name}"] for name in SIZE}
    return {**usual, **given}


def native_options(id: str, frames: Mapping[str, Any]) -> dict[str, str | int | bool]:
    """Options of the native core for the images of an id.

    Args:
      id: The id whose camera to use.
      frames: Options by their names in Gymnasium, see `rollouts.rendering.frame_options.NAMES`.

    Raises:
      SpecError, DTypeError: An option has an impossible value.
    """
    look = read_options(pixel_frames(frames))
    usual = camera_config(id)
    config = look.default_camera_config
    lens = (usual or {}) if config is None else config
    flags = {**usual_flags(id), **look.visual_options}
    return {
        "pixel_width": look.width,
        "pixel_height": look.height,
        "pixel_max_geom": look.max_geom,
        "pixel_camera_id": look.camera if isinstance(look.camera, int) else _USUAL_CAMERA,
        "pixel_camera_name": look.camera if isinstance(look.camera, str) else "",
        "pixel_gymnasium": usual is not None,
        "pixel_lens": " ".join(f"{name}={_numbers(name, value)}" for name, value in lens.items()),
        "pixel_flags": " ".join(f"{int(flag)}={int(value)}" for flag, value in flags.items()),
    }


def load_opengl() -> None:
    """Makes the native core use the same OpenGL library as frames.

    Raises:
      EngineError: There is none, it needs a display, or this process was forked from one that has
        rendered.
    """
    library, reason = opengl.choose_backend()
    if library not in _NATIVE_LIBRARIES:
        raise EngineError(
            f"observations cannot be drawn by {library} ({reason}), which needs a display: "
            f"from_pixels is for EGL and OSMesa, on Linux. {opengl.HELP}"
        )
    opengl.gl_thread.refuse_forked()
    _native.choose_opengl(library)


def _numbers(name: str, value: Any) -> str:
    expected = 3 if name == "lookat" else 1
    try:
        numbers = np.asarray(value, np.float64).ravel()
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.size != expected or not np.isfinite(numbers).all():
        raise SpecError(
            f"default_camera_config[{name!r}] must be {expected} finite "
            f"{'numbers' if expected > 1 else 'number'}, got {value!r}"
        )
    return ",".join(repr(float(number)) for number in numbers)
