# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's library and Gymnasium's models.

mujoco is imported only when one of its environments is used.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rollouts import _native
from rollouts.errors import EngineError
from rollouts.families.family import Family


@functools.cache
def load_engine() -> None:
    """Imports mujoco and passes its library to our native core; once per process.

    Raises:
      EngineError: mujoco is missing, or is of a release that is not supported.
    """
    install = f'pip install "{requirement()}"'
    try:
        module = importlib.import_module("mujoco")
    except ImportError as error:
        raise EngineError(
            f"this environment needs the mujoco package, which cannot be imported ({error}): "
            f"{install}"
        ) from error
    except Exception as error:  # PyOpenGL and mujoco raise errors of several kinds
        raise EngineError(
            f"this environment needs the mujoco package, which cannot be imported "
            f"({type(error).__name__}: {error}) while MUJOCO_GL is "
            f"{os.environ.get('MUJOCO_GL')!r}: mujoco loads OpenGL by it. Unset it to step "
            "without OpenGL; rollouts chooses one with the first frame that is rendered"
        ) from error
    folder = Path(str(module.__file__)).parent
    libraries = [*sorted(folder.glob("libmujoco.*")), *sorted(folder.glob("mujoco.dll"))]
    if not libraries:
        raise EngineError(f"no libmujoco in {folder}: {install} --force-reinstall")
    _native.load_mujoco(str(libraries[0]), importlib.metadata.version("mujoco"))


def do_without_timer() -> None:
    """Makes pools step without the timer that the mujoco package sets at its import.

    A user's own callback (mujoco.set_mjcb_time) stays as it is, and so do the timers of the user's
    own simulations.
    """
    module = importlib.import_module("mujoco")
    # the present timer is the package's own, unless a user has set another one
    if module.get_mjcb_time() is None:
        _native.learn_mujoco_timer(str(Path(str(module.__file__)).parent))


def requirement() -> str:
    """The supported releases in pip's form, such as "mujoco>=3.14,<4.1"."""
    first, last = _native.MUJOCO_RELEASES[0], _native.MUJOCO_RELEASES[-1]
    major, minor = (int(part) for part in last.split("."))
    return f"mujoco>={first},<{major}.{minor + 1}"


@functools.cache
def assets_dir() -> Path:
    """The folder with Gymnasium's XML files.

    Raises:
      EngineError: This Gymnasium has no such files.
    """
    # finding a top-level package does not import it, and Gymnasium's MuJoCo package is slow
    spec = importlib.util.find_spec("gymnasium")
    origin = spec.origin if spec is not None else None
    folder = Path(str(origin)).parent / "envs" / "mujoco" / "assets"
    if not folder.is_dir():
        raise EngineError(
            f"no models of Gymnasium in {folder}: pip install --force-reinstall gymnasium"
        )
    return folder


def _model_file(options: Mapping[str, Any]) -> str:
    """The file of an environment's model, found in the same way as by the native core."""
    file = str(options["xml_file"])
    if file.startswith(("/", ".")):
        return file
    if file.startswith("~/") and "HOME" in os.environ:
        return os.environ["HOME"] + file[1:]
    return f"{options['assets']}/{file}"


ALL_PARTS = "all_parts"  # set by flatten_observation=False
# defaults of the options that rollouts/rendering/pixels.py adds for from_pixels
PIXEL_OPTIONS: Mapping[str, str | int] = MappingProxyType(
    {
        "pixel_width": 84,
        "pixel_height": 84,
        "pixel_max_geom": 1000,
        "pixel_camera_id": -2,
        "pixel_camera_name": "",
        "pixel_gymnasium": False,
        "pixel_lens": "",
        "pixel_flags": "",
    }
)
# options that every environment on MuJoCo takes
COMMON_OPTIONS: Mapping[str, str | int] = MappingProxyType({ALL_PARTS: False, **PIXEL_OPTIONS})


def _load(id: str, header: str) -> dict[str, str | int]:
    load_engine()
    do_without_timer()
    return {"assets": str(assets_dir()), **COMMON_OPTIONS}


FAMILY = Family(
    headers="envs/mujoco/",
    drawer="mujoco",
    load=_load,
    internal=frozenset({"assets", *COMMON_OPTIONS}),
    parts_option=ALL_PARTS,
    model_file=_model_file,
)
