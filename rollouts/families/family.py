# SPDX-License-Identifier: Apache-2.0
"""Family: what Python code needs to know about environments that are made in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

# renderers: Gymnasium's own, OpenGL with MuJoCo's scene, the engine in the pool, or
# particles.py, tag.py, box2d.py and grids.py of rollouts/rendering/
Drawer = Literal["gymnasium", "mujoco", "engine", "particles", "tag", "box2d", "grids"]


def _itself(native_id: str) -> list[str]:
    return [native_id]


def _no_warning(id: str, columns: Mapping[str, Any]) -> None:
    pass


def _nothing(id: str, header: str) -> Mapping[str, str | int]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A row of `rollouts.families.table.FAMILIES`.

    Attributes:
      headers: Folder of the environments' headers, such as "envs/atari/", which determines the
        family of an environment.
      drawer: Name of the renderer; None: frames cannot be drawn.
      ids: Maps the id of an entry in native/envs.cmake to the ids that `make_vec` takes for it,
        which depend on what is installed.
      prefix: Prefix of ids without entries of their own, which share `entry`.
      entry: Id of the common entry.
      load: Loads the engine, and returns internal options of the native core, such as files of the
        engine, by (id, header). Raises EngineError.
      internal: Names of those options.
      parts_option: The option that splits observations into parts, if they have none without it.
      warn: Warns the user of options that may mislead, by (id, the pool's options, each a value or
        a list of them).
      model_file: Path of the MuJoCo model of an environment with the given options.
    """

    headers: str
    drawer: Drawer | None = None
    ids: Callable[[str], list[str]] = _itself
    prefix: str | None = None
    entry: str | None = None
    load: Callable[[str, str], Mapping[str, str | int]] = _nothing
    internal: frozenset[str] = frozenset()
    parts_option: str | None = None
    warn: Callable[[str, Mapping[str, Any]], None] = _no_warning
    model_file: Callable[[Mapping[str, Any]], str] | None = None
