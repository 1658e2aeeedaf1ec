# SPDX-License-Identifier: Apache-2.0
"""Checks of what users pass to a replay: numbers, keys and priorities."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollouts.checks import whole_number
from rollouts.errors import DTypeError, SpecError

Array = NDArray[Any]

_LONGEST_S = 1e9  # seconds; longer timeouts are reduced to this, which locks accept
_MOST_ITEMS = 2**31 - 1  # most items in a table, and in a batch


def as_batch_size(batch_size: object) -> int:
    """Returns a number of items; raises SpecError for anything else."""
    return whole_number("batch_size", batch_size, 1, _MOST_ITEMS)


def as_count(n: object) -> int:
    """Returns a number of inserts or samples; raises SpecError for anything else."""
    return whole_number("n", n, 0, _MOST_ITEMS)


def as_beta(beta: Any) -> float:
    """Returns an exponent of importance weights.

    Raises:
      SpecError: Negative or not finite. DTypeError: Not a number.
    """
    number = _as_float("beta", beta)
    if not (math.isfinite(number) and number >= 0):
        raise SpecError(
            f"beta is {number}, expected a finite number of at least 0, most often to 1"
        )
    return number


def as_timeout(timeout_s: Any) -> float | None:
    """Returns seconds to wait, or None.

    Raises:
      SpecError: Negative or nan. DTypeError: Not a number.
    """
    if timeout_s is None:
        return None
    number = _as_float("timeout_s", timeout_s)
    if not number >= 0:
        raise SpecError(f"timeout_s is {number}, expected 0 or more seconds, or None for ever")
    return min(number, _LONGEST_S)


def as_whole(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """Takes whole numbers (B,) as an array, a sequence or a tensor of any device.

    Raises:
      DTypeError: They are not whole numbers. SpecError: Not (B,), or a number exceeds 64 bits.
    """
    array = _as_array(name, values)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, np.int64)
    if array.dtype.kind not in "iu":
        # a number that is too large for NumPy's integers becomes an object
        beyond = array.dtype.kind == "O" and all(isinstance(v, int) for v in array.flat)
        if beyond:
            raise SpecError(f"{name} has a number beyond 64 bits, expected those of a batch")
        raise DTypeError(f"{name} has dtype {array.dtype}, expected (B,) whole numbers")
    if array.ndim != 1:
        raise SpecError(f"{name} has shape {array.shape}, expected (B,)")
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        raise SpecError(f"{name} has a number beyond 64 bits, expected those of a batch")
    return np.ascontiguousarray(array, np.int64)


def as_example(name: str, value: Any) -> Array:
    """Returns an example of a column, an array or a number; raises DTypeError for anything else."""
    array = _as_array(name, value)
    if array.dtype.kind not in "biuf":
        raise DTypeError(f"{name} has dtype {array.dtype}, expected bool, integers or floats")
    return array


def as_floats(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Takes real numbers as an array, a sequence or a tensor of any device.

    Raises:
      DTypeError: They are not real numbers.
    """
    array = _as_array(name, values)
    if array.size and array.dtype.kind not in "biuf":
        raise DTypeError(f"{name} has dtype {array.dtype}, expected real numbers")
    return array.astype(np.float64, order="C", copy=False)


def as_path(path: Any) -> Path:
    """Returns the path of a file or directory; raises DTypeError for anything else."""
    if not isinstance(path, str | os.PathLike):
        raise DTypeError(f"path is {path!r}, expected a str or a pathlib.Path")
    return Path(path)


def as_priorities(priority: ArrayLike | None, shape: tuple[int, ...]) -> float | Array | None:
    """Returns priorities in the form of the adding methods: none, one, or an array of `shape`.

    The core checks the numbers.

    Raises:
      SpecError: Another shape. DTypeError: They are not numbers.
    """
    if priority is None:
        return None
    given = as_floats("priority", priority)
    if given.shape not in ((), shape):
        raise SpecError(
            f"priority has shape {given.shape}, expected one number or {shape}: one per step, of "
            "the item that begins there"
        )
    return np.ascontiguousarray(given) if given.ndim else float(given)


def check_updates(keys: Array, priorities: Array, most: float) -> None:
    """Checks keys and priorities (B,) of `update_priorities`.

    Raises:
      SpecError: Different numbers of keys and priorities, or a priority outside 0 to `most`.
    """
    if keys.ndim != 1 or keys.shape != priorities.shape:
        raise SpecError(
            f"keys have shape {keys.shape} and priorities {priorities.shape}, expected (B,) of both"
        )
    is_bad = ~((priorities >= 0) & (priorities <= most))
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise SpecError(
            f"priorities[{row}] is {priorities[row]}, expected a finite number from 0 to {most:g}, "
            "so that sums of priority ** exponent stay finite"
        )


def _as_array(name: str, values: Any) -> Array:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DTypeError(f"{name} is no array of numbers: {error}") from None


def _as_float(name: str, value: Any) -> float:
    # text is refused, though float() would read it
    if isinstance(value, str | bytes) or not (
        hasattr(value, "__float__") or hasattr(value, "__index__")
    ):
        raise DTypeError(f"{name} is {value!r}, expected a number")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise DTypeError(f"{name} is {value!r}, expected a number: {error}") from None


def file_path(path: Any) -> str:
    """Returns a path as text; "" for None.

    Raises:
      DTypeError: It is not a path.
    """
    try:
        text: str = os.fspath(path)
        return text
    except TypeError:
        raise DTypeError(f"path is {path!r}, expected that of a file, or ''") from None
