# SPDX-License-Identifier: Apache-2.0
"""Places of a model's named parts in the arrays of a pool."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.families import mujoco_engine
from rollouts.specs import OptionValue

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A range of numbers with a name: [begin, end) of a row, and their shape."""

    begin: int
    end: int
    shape: tuple[int, ...]

    def of(self, rows: Array) -> Array:
        """A view of this part, (B, *shape), of rows (B, D)."""
        return rows[:, self.begin : self.end].reshape(len(rows), *self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """Parts by name, in the order listed."""

    observation: Mapping[str, Part]
    info: Mapping[str, Part]

    @classmethod
    def of(cls, options: Mapping[str, OptionValue]) -> Layout:
        """Finds the parts that MuJoCo-v0's options name, in the options' model.

        If observations are images, it finds only the parts of infos.

        Raises:
          SpecError: A name does not exist in the model. EngineError: The model cannot be read.
        """
        mujoco_engine.load_engine()
        path = _model_path(str(options["xml_file"]))
        return cls(
            *(
                _placed(_native.mujoco_parts(path, name, str(options[name])))
                if name == "info" or not options.get("from_pixels")
                else {}
                for name in ("observation", "info")
            )
        )

    def views(self, obs: Array, told: Array) -> dict[str, Array]:
        """Parts (B, ...) of observations and infos by name; infos, being more exact, come first."""
        views = {name: part.of(obs) for name, part in self.observation.items()}
        views.update((name, part.of(told)) for name, part in self.info.items())
        return views


def common_layout(
    defaults: Mapping[str, OptionValue], columns: Mapping[str, OptionValue | list[OptionValue]]
) -> Layout:
    """The layout that all environments of a pool share.

    Args:
      defaults: All options in force.
      columns: The given options, of which xml_file may differ by environment.

    Raises:
      SpecError: Parts of two models differ in shape.
    """
    given = columns.get("xml_file", defaults["xml_file"])
    files = list(dict.fromkeys(given)) if isinstance(given, list) else [given]
    layouts = [Layout.of({**defaults, "xml_file": one}) for one in files]
    for one, layout in zip(files, layouts, strict=True):
        if layout != layouts[0]:
            raise SpecError(
                f"the models of a pool must have the same parts, and those that observation and "
                f"info name differ in their shapes between {files[0]} and {one}"
            )
    return layouts[0]


def observation_slices(env: Any) -> dict[str, slice]:
    """The slice of each name of `observation` in a MuJoCo-v0 environment's observation.

    Args:
      env: The `rollouts.VectorEnv`.

    Example:
      obs[:, observation_slices(env)["gyro"]]
    """
    parts = Layout.of(env.env_spec.options).observation
    return {name: slice(part.begin, part.end) for name, part in parts.items()}


def _placed(found: list[tuple[str, tuple[int, ...], str, int]]) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    begin = 0
    for name, shape, *_ in found:
        end = begin + math.prod(shape)
        parts[name] = Part(begin, end, shape)
        begin = end
    return parts


def _model_path(xml_file: str) -> str:
    """The path for the native core; own_model.options has made users' paths absolute."""
    if xml_file.startswith(("/", ".")):
        return xml_file
    return str(mujoco_engine.assets_dir() / Path(xml_file).expanduser())
