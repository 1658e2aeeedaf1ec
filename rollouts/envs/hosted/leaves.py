# SPDX-License-Identifier: Apache-2.0
"""Spaces as flat lists of leaves: what fits an array is shared, everything else is pickled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from rollouts.errors import DTypeError, SpecError

Array = npt.NDArray[Any]

_ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One part of a nested space that is itself neither a Dict nor a Tuple.

    Attributes:
      path: Keys and indices that lead from a whole value to this part of it.
      shape: Shape of one environment's value; () for an object.
      dtype: Dtype of the shared array; None: values are objects, which travel pickled.
    """

    path: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None

    @property
    def name(self) -> str:
        """The leaf in messages, such as `['camera']['left']`; "" for a space without parts."""
        return "".join(f"[{key!r}]" for key in self.path)

    def of(self, value: Any) -> Any:
        """Returns this part of a whole value, of one environment or of a batch."""
        for key in self.path:
            value = value[key]
        return value


def leaves_of(space: Space[Any], path: tuple[Any, ...] = ()) -> tuple[Leaf, ...]:
    """Lists the leaves of a space, depth first."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return tuple(leaf for key, part in parts for leaf in leaves_of(part, (*path, key)))
    if isinstance(space, _ARRAY_SPACES):
        assert space.shape is not None and space.dtype is not None
        return (Leaf(path, tuple(space.shape), np.dtype(space.dtype)),)
    return (Leaf(path, (), None),)


def nest(space: Space[Any], values: Iterable[Any]) -> Any:
    """Puts one value per leaf back into the nesting of the space: the reverse of `leaves_of`."""
    return _nest(space, iter(values))


def _nest(space: Space[Any], values: Iterator[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _nest(part, values) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_nest(part, values) for part in space.spaces)
    return next(values)


def action_columns(leaves: Sequence[Leaf], actions: Any, rows: int) -> list[Any]:
    """Splits a batch of actions into one column per leaf.

    Args:
      leaves: Leaves of the single action space.
      actions: Nested as the batched action space.
      rows: How many actions are expected.

    Returns:
      Per leaf an array (rows, *shape) of its dtype, or a list of objects.

    Raises:
      SpecError: Not one action per row, a wrong shape, or a part is missing.
      DTypeError: No batch at all, or a dtype whose values would change.
    """
    columns = []
    for leaf in leaves:
        try:
            column = leaf.of(actions)
        except (KeyError, IndexError, TypeError) as error:
            raise SpecError(
                f"actions has no part {leaf.name}: expected a batch of the action space, got "
                f"{type(actions).__name__}"
            ) from error
        columns.append(
            _objects(leaf, column, rows) if leaf.dtype is None else _array(leaf, column, rows)
        )
    return columns


def _objects(leaf: Leaf, column: Any, rows: int) -> list[Any]:
    if not hasattr(column, "__len__") or isinstance(column, str):
        raise DTypeError(
            f"actions{leaf.name} is of type {type(column).__name__}, expected a sequence of {rows}"
        )
    if len(column) != rows:
        raise SpecError(
            f"actions{leaf.name} has {len(column)} entries, expected {rows}: one per env_id"
        )
    return list(column)


def _array(leaf: Leaf, column: Any, rows: int) -> Array:
    try:
        array = np.asarray(column)
    except ValueError as error:
        raise SpecError(f"actions{leaf.name} is no array: {error}") from error
    if array.ndim == 0:
        raise DTypeError(
            f"actions{leaf.name} is the single value {column!r}, expected {rows} actions"
        )
    assert leaf.dtype is not None
    expected = (rows, *leaf.shape)
    if array.shape != expected:
        raise SpecError(
            f"actions{leaf.name} has shape {array.shape}, expected {expected}: one row per env_id"
        )
    if array.dtype == leaf.dtype or np.can_cast(array.dtype, leaf.dtype, "same_kind"):
        return array
    # signed numbers in place of unsigned ones, or floats without a fraction, are accepted as long
    # as no value changes
    with np.errstate(invalid="ignore"):
        converted = array.astype(leaf.dtype) if array.dtype.kind in "biuf" else None
    if converted is None or not np.array_equal(converted, array):
        raise DTypeError(
            f"actions{leaf.name} has dtype {array.dtype}, expected {leaf.dtype}: "
            "a conversion would change values"
        )
    return converted
