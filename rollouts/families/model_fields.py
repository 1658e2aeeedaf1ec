# SPDX-License-Identifier: Apache-2.0
"""Fields of MuJoCo models, such as masses, with values that differ from the model's file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rollouts.errors import SpecError
from rollouts.support.keywords import explains_fields

Array = npt.NDArray[Any]
# (field, whether each environment has its own values, low or None, high or None) for
# `_native.CpuPool.change`
Column = tuple[str, bool, Array | None, Array | None]


@explains_fields
@dataclass(frozen=True, slots=True)
class Uniform:
    """Values of a model field that every episode draws anew, each element on its own.

    Attributes:
      low: Inclusive; a number, an array of the field's shape, or one for each environment.
      high: Exclusive; as low. Elements with low == high are not drawn.
    """

    low: npt.ArrayLike
    high: npt.ArrayLike

    def __post_init__(self) -> None:
        """Raises SpecError unless the bounds are finite numbers and low is not above high."""
        _check_bounds("Uniform", self.low, self.high)


@explains_fields
@dataclass(frozen=True, slots=True)
class Scaled:
    """A distribution like Uniform, with bounds that are multiples of the file's values.

    Attributes:
      low: Factor, as in Uniform.
      high: Factor.
    """

    low: npt.ArrayLike
    high: npt.ArrayLike

    def __post_init__(self) -> None:
        """Raises SpecError as `Uniform`."""
        _check_bounds("Scaled", self.low, self.high)


class ModelReader(Protocol):
    """A pool whose environments have models."""

    def read_model(self, env: int, field: str, of_file: bool) -> Array:
        """Returns an environment's values of a field, or its file's. Raises SpecError."""
        ...

    def model_fields(self, env: int) -> list[str]:
        """Names of the fields that may be changed."""
        ...


Value = npt.ArrayLike | Uniform | Scaled | None


def model_columns(given: Any, pool: ModelReader, num_envs: int, mask: Array | None) -> list[Column]:
    """Reads options["model"] of `reset`.

    Args:
      given: Values by field.
      pool: The pool whose environments get them.
      num_envs: N.
      mask: (N,) bool: the environments that get them; None: all.

    Raises:
      SpecError: Not a mapping, an unknown field, or values of a wrong shape or kind.
    """
    if not isinstance(given, Mapping):
        raise SpecError(
            f"options['model'] must be a mapping of fields to values, got {type(given).__name__}"
        )
    envs = range(num_envs) if mask is None else [int(env) for env in np.flatnonzero(mask)]
    return [_column(name, value, pool, num_envs, envs) for name, value in given.items()]


def read_field(pool: ModelReader, env: int, field: str, of_file: bool) -> Array:
    """One environment's values of a field.

    Raises:
      SpecError: There is no such field, or it cannot be changed; or the environment has no model.
    """
    if not isinstance(field, str):
        raise SpecError(f"a model field is a str such as 'body_mass', got {field!r}")
    try:
        return pool.read_model(env, field, of_file)
    except SpecError as error:
        close = difflib.get_close_matches(field, pool.model_fields(env), n=3)
        hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
        raise SpecError(f"{error}; {hint}VectorEnv.model_fields lists what can be set") from None


def _check_bounds(name: str, low: object, high: object) -> None:
    for side, bound in (("low", low), ("high", high)):
        try:
            is_finite = bool(np.isfinite(np.asarray(bound)).all())
        except (TypeError, ValueError):
            is_finite = False
        if not is_finite:
            raise SpecError(f"{name}.{side} is {bound!r}, expected finite numbers")
    try:
        pairs = np.broadcast_arrays(np.asarray(low), np.asarray(high))
    except ValueError:
        shapes = np.asarray(low).shape, np.asarray(high).shape
        raise SpecError(
            f"{name} has low of shape {shapes[0]} and high of {shapes[1]}, expected numbers or "
            "arrays of the field's shape"
        ) from None
    if (pairs[0] > pairs[1]).any():
        raise SpecError(
            f"{name}({low!r}, {high!r}) has low above high, expected low <= high: "
            f"{name}({high!r}, {low!r})?"
        )


def _column(
    name: str, value: Value, pool: ModelReader, num_envs: int, envs: Sequence[int]
) -> Column:
    nominal = read_field(pool, envs[0], name, True)
    if value is None:
        return name, False, None, None
    if not isinstance(value, (Uniform, Scaled)):
        values = _values(name, value, nominal.shape, num_envs)
        by_env = values.ndim > nominal.ndim
        return name, by_env, np.ascontiguousarray(values), None
    bounds = []
    for bound in (value.low, value.high):
        # a plain number counts for all elements
        shape = () if np.ndim(bound) == 0 else nominal.shape
        bounds.append(_values(name, bound, shape, num_envs))
    if isinstance(value, Scaled):
        files = _files(name, nominal, pool, num_envs, envs)
        scaled = [bound * files for bound in bounds]
        bounds = [np.minimum(*scaled), np.maximum(*scaled)]
    low, high, _ = np.broadcast_arrays(*bounds, nominal)
    by_env = low.ndim > nominal.ndim
    return name, by_env, np.ascontiguousarray(low), np.ascontiguousarray(high)


def _files(
    name: str, nominal: Array, pool: ModelReader, num_envs: int, envs: Sequence[int]
) -> Array:
    """The values in the files: one for all, or one for each environment if files differ."""
    rows = np.broadcast_to(nominal.astype(np.float64), (num_envs, *nominal.shape)).copy()
    for env in envs:
        file = read_field(pool, env, name, True)
        if file.shape != nominal.shape:
            raise SpecError(f"model field {name!r} has another shape in other environments")
        rows[env] = file
    return rows if (rows != rows[0]).any() else rows[0]


def _values(name: str, value: npt.ArrayLike, shape: tuple[int, ...], num_envs: int) -> Array:
    try:
        values = np.asarray(value)
    except ValueError:
        values = np.asarray(value, dtype=object)
    if values.dtype.kind not in "biuf":
        raise SpecError(f"model field {name!r} must be numbers, got {value!r}")
    if values.shape not in (shape, (num_envs, *shape)):
        raise SpecError(
            f"model field {name!r} has shape {values.shape}, expected {shape} for all "
            f"environments or {(num_envs, *shape)} for each"
        )
    return values.astype(np.float64)
