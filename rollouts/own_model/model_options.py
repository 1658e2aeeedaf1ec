# SPDX-License-Identifier: Apache-2.0
"""Options of MuJoCo-v0, from the user's form to that of the native core."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rollouts.errors import DTypeError, SpecError
from rollouts.own_model.step import BatchFunction, ModelStep

ENV_ID = "MuJoCo-v0"

_FUNCTIONS = ("reward", "terminated")
_NAMES = ("observation", "info")


class PortableFunction:
    """A function that can be pickled wherever it was defined, by cloudpickle; also a lambda."""

    def __init__(self, function: BatchFunction) -> None:
        """Wraps a function of a ModelStep."""
        self.function = function

    def __call__(self, step: ModelStep) -> Any:
        """Calls the function."""
        return self.function(step)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the function by value if no module has it."""
        import cloudpickle  # type: ignore[import-untyped]

        return _unpickled, (cloudpickle.dumps(self.function),)


def is_own_model(env_id: object) -> bool:
    """Tells if an id, or a list of one, is MuJoCo-v0.

    Raises:
      SpecError: It is one id among several of a mixed pool.
    """
    if isinstance(env_id, str) or not isinstance(env_id, Sequence):
        return env_id == ENV_ID
    if ENV_ID in env_id and len(env_id) > 1:
        raise SpecError(
            f"{ENV_ID} cannot be in a mixed pool, as reward and terminated are of the whole batch: "
            f'pass id="{ENV_ID}" and num_envs={len(env_id)}; xml_file may be a list of models'
        )
    return list(env_id) == [ENV_ID]


def split_functions(
    options: Mapping[str, Any], own_model: bool
) -> tuple[dict[str, Any], dict[str, PortableFunction]]:
    """Splits options of MuJoCo-v0 into those of the native core, and functions.

    Args:
      options: As `make_vec` takes them.
      own_model: Whether they are options of MuJoCo-v0. Those of other ids have no functions.

    Returns:
      Plain options (lists of names as text, paths as absolute text), and functions by name.

    Raises:
      DTypeError: reward or terminated is no function, or names are no str.
    """
    plain = dict(options)
    if not own_model:
        return plain, {}
    functions: dict[str, PortableFunction] = {}
    for name in _FUNCTIONS:
        function = plain.pop(name, None)
        if function is None:
            continue
        if not callable(function):
            raise DTypeError(
                f"{name} is {function!r}, expected a function of a rollouts.own_model.ModelStep "
                f"that returns {'(B,) bools' if name == 'terminated' else '(B,) numbers'}"
            )
        own = isinstance(function, PortableFunction)
        functions[name] = function if own else PortableFunction(function)
    for name in _NAMES:
        if name in plain:
            plain[name] = _joined(name, plain[name])
    if "xml_file" in plain:
        given = plain["xml_file"]
        several = isinstance(given, (list, tuple))
        plain["xml_file"] = [_absolute(one) for one in given] if several else _absolute(given)
    return plain, functions


def _joined(option: str, names: Any) -> Any:
    if isinstance(names, str):
        return names
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise DTypeError(
            f"option {option!r} is {names!r}, expected names such as ['qpos', 'xpos:torso']"
        )
    for name in names:
        if "," in name:
            raise SpecError(f"option {option!r} names {name!r}, expected a name without commas")
    return ", ".join(names)


def _absolute(xml_file: Any) -> Any:
    """An existing path as absolute text; the native core refuses others."""
    if not isinstance(xml_file, (str, os.PathLike)) or not str(xml_file):
        return xml_file
    path = Path(xml_file).expanduser()
    return str(path.absolute()) if path.exists() else str(xml_file)


def _unpickled(function: bytes) -> PortableFunction:
    import cloudpickle

    return PortableFunction(cloudpickle.loads(function))
