# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's library, Gymnasium's models, and Gymnasium's way to write options.

Nothing here imports mujoco before one of its environments is asked for.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.errors import EngineError, SpecError
from rollouts.families.model_fields import Scaled as Scaled
from rollouts.families.model_fields import Uniform as Uniform

HEADERS = "envs/mujoco/"  # where the headers of its environments are

_RANGE = "_range"

# what a saved state begins with (native/include/rollouts/pool/state.h)
_SEAL = struct.Struct("<8sIIQQQ")  # magic, version, bytes of the type's name, three more
_CLOCK = struct.Struct("<QIIIidB")
_PHYSICS = struct.Struct("<iQ")  # MuJoCo's release, numbers that follow


@functools.cache
def load_engine() -> None:
    """Imports mujoco and hands its library to our native core; once per process.

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
    except Exception as error:  # of PyOpenGL, or of mujoco itself
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


def requirement() -> str:
    """The supported releases as pip takes them, such as "mujoco>=3.14,<4.1"."""
    first, last = _native.MUJOCO_RELEASES[0], _native.MUJOCO_RELEASES[-1]
    major, minor = (int(part) for part in last.split("."))
    return f"mujoco>={first},<{major}.{minor + 1}"


@functools.cache
def assets_dir() -> Path:
    """The folder with Gymnasium's XML files.

    Raises:
      EngineError: This Gymnasium carries none.
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


def plain_options(options: Mapping[str, Any], num_envs: int | None) -> dict[str, Any]:
    """Writes options as the native core has them: one value each.

    Gymnasium's `healthy_z_range=(0.2, 1.0)` becomes `healthy_z_min=0.2, healthy_z_max=1.0`,
    and its `main_body=1` becomes "1". Everything else stays.

    Args:
      options: By name; a range is a pair (low, high), or one pair for each environment:
        an (N, 2) array or a sequence of N pairs.
      num_envs: N; None: as many as are given.

    Raises:
      SpecError: A range that is no pair, or is given beside its own _min or _max.
    """
    result: dict[str, Any] = {}
    for name, value in options.items():
        if name.endswith(_RANGE):
            stem = name.removesuffix(_RANGE)
            low, high = _low_and_high(name, value, num_envs)
            for half, part in ((f"{stem}_min", low), (f"{stem}_max", high)):
                if half in options:
                    raise SpecError(f"options {name!r} and {half!r} say the same: leave out one")
                result[half] = part
        elif name == "main_body":
            result[name] = _as_text(value)
        else:
            result[name] = value
    return result


def integration_state(state: bytes) -> npt.NDArray[np.float64]:
    """MuJoCo's own state within a state that `get_state` of one of its environments returned.

    Args:
      state: One entry of `VectorEnv.get_state`.

    Returns:
      The vector of `mujoco.mj_getState(..., mjSTATE_INTEGRATION)`, read-only: time, positions,
      velocities and what else the next step depends on. `mujoco.mj_setState` takes it.
    """
    at = state_offset(state)
    _, length = _PHYSICS.unpack_from(state, at)
    return np.frombuffer(state, np.float64, length, at + _PHYSICS.size)


def state_offset(state: bytes) -> int:
    """Where the environment begins in a state of `VectorEnv.get_state`, after seal and episode."""
    return _SEAL.size + int(_SEAL.unpack_from(state)[2]) + _CLOCK.size


# what the file of a model is told by
PATH_OPTIONS = ("assets", "xml_file")


def model_path(options: Mapping[str, Any]) -> str:
    """The file that an environment's model was made of, as native/src/mujoco_env.cpp finds it.

    Args:
      options: Those of PATH_OPTIONS, as the pool has them.
    """
    file = str(options["xml_file"])
    if file.startswith(("/", ".")):
        return file
    if file.startswith("~/") and "HOME" in os.environ:
        return os.environ["HOME"] + file[1:]
    return f"{options['assets']}/{file}"


def _low_and_high(name: str, value: Any, num_envs: int | None) -> tuple[Any, Any]:
    """The halves of a range, or of a range for each environment."""
    try:
        pairs = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    if pairs.shape == (2,):
        return float(pairs[0]), float(pairs[1])
    if pairs.ndim == 2 and pairs.shape[1] == 2 and num_envs in (None, len(pairs)):
        return pairs[:, 0], pairs[:, 1]
    count = "N" if num_envs is None else num_envs
    raise SpecError(
        f"option {name!r} must be a pair (low, high), or one pair for each of the {count} "
        f"environments, got {value!r}"
    )


def _as_text(value: Any) -> Any:
    """Numbers of bodies as the text that the native core reads; lists element by element."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_as_text(each) for each in value]
    is_number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return str(value) if is_number else value
