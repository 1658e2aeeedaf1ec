# SPDX-License-Identifier: Apache-2.0
"""mujoco_warp and Warp, imported once, without their output on stdout."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rollouts.errors import EngineError

_INSTALL = "pip install 'rollouts[mujoco-warp]'"


def load_library() -> None:
    """Imports both.

    Raises:
      EngineError: mujoco_warp or Warp is missing, or their releases do not fit.
    """
    try:
        warp = importlib.import_module("warp")
        with quiet():
            warp.init()
            importlib.import_module("mujoco_warp")
    except ImportError as error:
        raise EngineError(
            f"MuJoCo's tasks on a device need mujoco_warp, which cannot be imported ({error}): "
            f"{_INSTALL}, or leave device out: C++ threads step them"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Suppresses Warp's line for each module that compiles, but not its warnings."""
    warp: Any = importlib.import_module("warp")
    before = warp.config.log_level
    warp.config.log_level = max(before, warp.LOG_WARNING)
    try:
        yield
    finally:
        warp.config.log_level = before
