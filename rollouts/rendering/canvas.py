# SPDX-License-Identifier: Apache-2.0
"""pygame, from the extra `render`, for drawing without a window."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.errors import EngineError


@contextmanager
def quiet_pygame() -> Iterator[None]:
    """Keeps pygame, which starts with the first frame, from printing a greeting and opening audio.

    Where no display exists, it also keeps pygame from searching for one and from warning about
    XDG_RUNTIME_DIR.
    """
    quiet = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_AUDIODRIVER": "dummy"}
    if "DISPLAY" not in os.environ and "WAYLAND_DISPLAY" not in os.environ:
        quiet["SDL_VIDEODRIVER"] = "dummy"
    added = {name: value for name, value in quiet.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def missing_pygame(what: str, error: Exception) -> EngineError:
    """The error that says what to install."""
    return EngineError(
        f"frames of {what} need pygame, which is missing ({error}): pip install 'rollouts[render]'"
    )


@functools.cache
def load_pygame() -> Any:
    """The pygame module with its fonts; loaded once.

    Raises:
      EngineError: It is missing.
    """
    try:
        with quiet_pygame():
            pygame = importlib.import_module("pygame")
            importlib.import_module("pygame.freetype").init()
    except ImportError as error:
        raise missing_pygame("Box2D and of several agents", error) from error
    return pygame


def font(size: int) -> Any:
    """The font that comes with pygame, `size` pixels high."""
    freetype = load_pygame().freetype
    if not freetype.get_init():
        # other code may have quit pygame, as Gymnasium's environments do in `close`
        freetype.init()
        _font.cache_clear()
    return _font(size)


@functools.cache
def _font(size: int) -> Any:
    return load_pygame().freetype.Font(None, size)


def pixels(surface: Any) -> npt.NDArray[np.uint8]:
    """A copy of a surface's pixels: (height, width, 3) uint8."""
    columns = load_pygame().surfarray.array3d(surface)
    return np.ascontiguousarray(columns.transpose(1, 0, 2))
