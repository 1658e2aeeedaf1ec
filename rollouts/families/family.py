# SPDX-License-Identifier: Apache-2.0
"""Family: what Python has to know of environments that are made in the same way."""

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
      headers: Folder of the environments' headers, such as "envs/atari/"; says which family an
        environment is of.
      drawer: Name of what draws frames; None: nothing.
      ids: From the id of an entry in native/envs.cmake to those that `make_vec` takes of it now,
        with what is installed.
      prefix: What ids begin with that are no entries of their own; with `entry`.
      entry: Id of the one entry for all of them.
      load: Loads the engine, and returns options of the native core that users do not give, such
        as files of the engine, by (id, header). Raises EngineError.
      internal: Names of those options.
      parts_option: The one that has observations consist of parts, where they do not without it.
      warn: Warns the user of options that are not what they seem, by (id, the pool's options,
        each a value or a list of them).
      model_file: Path of the MuJoCo model that an environment of such options has.
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
