# SPDX-License-Identifier: Apache-2.0
"""Infos of single environments merged into the dict of arrays that Gymnasium has for batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.envs.reserved_names import is_told_by_pools

Array = npt.NDArray[Any]
Info = dict[str, Any]

# put before a key of an environment's info that the library uses itself
OWN_PREFIX = "env_info:"


def own_key(key: Any) -> Any:
    """The name under which a batch shows a key of an environment's own info.

    `env_id`, `episode_return`, `episode_length`, `env_error` and all that begins with `final_`
    are the library's, and so are their masks, which begin with an underscore. An environment's
    own `env_id` is `env_info:env_id`; every other key stays as it is.
    """
    if not isinstance(key, str):
        return key
    return f"{OWN_PREFIX}{key}" if is_told_by_pools(key) else key


def merge_own_infos(num_rows: int, rows: Sequence[int], infos: Sequence[Info]) -> Info:
    """Merges what environments reported, as `merge_infos`, under the names of `own_key`."""
    renamed = [{own_key(key): value for key, value in info.items()} for info in infos]
    return merge_infos(num_rows, rows, renamed)


def merge_infos(num_rows: int, rows: Sequence[int], infos: Sequence[dict[Any, Any]]) -> Info:
    """Merges infos column by column.

    The result equals that of a `gymnasium.vector.VectorEnv._add_info` per info, where the latter
    keeps every value: it casts all values to the type of the first, and raises where it cannot.

    Args:
      num_rows: Rows B of the batch.
      rows: The row of each info, in rising order.
      infos: One dict per entry of `rows`.

    Returns:
      key -> (B, ...) array and `_key` -> (B,) bool, true where the row has the key. Dicts
      become nested dicts. Numbers of several types become a column of a type that holds them
      all; whatever fits no array (text, lists, integers of more than 64 bits, arrays that differ
      in shape or dtype) becomes a column of objects.
    """
    columns: dict[Any, tuple[list[int], list[Any]]] = {}
    for row, info in zip(rows, infos, strict=True):
        for key, value in dict.items(info):  # by dict's own method, which a subclass may override
            column = columns.get(key)
            if column is None:
                columns[key] = ([row], [value])
            else:
                column[0].append(row)
                column[1].append(value)
    merged: Info = {}
    for key, (at, values) in columns.items():
        if isinstance(key, str) and key.startswith("_") and key[1:] in columns:
            # the key has the name of another key's mask
            key = f"{OWN_PREFIX}{key}"
        if all(isinstance(value, dict) for value in values):
            merged[key] = merge_infos(num_rows, at, values)
        else:
            merged[key] = _column(num_rows, at, values)
        merged[f"_{key}"] = mask_of(num_rows, at)
    return merged


def mask_of(num_rows: int, at: Sequence[int]) -> Array:
    """(B,) bool, true in the rows `at`."""
    mask = np.zeros(num_rows, np.bool_)
    mask[at] = True
    return mask


def object_column(num_rows: int, at: Sequence[int], values: Sequence[Any]) -> Array:
    """(B,) objects, None in the rows that have no value."""
    column = np.full(num_rows, None, dtype=object)
    for row, value in zip(at, values, strict=True):
        column[row] = value
    return column


def _column(num_rows: int, at: list[int], values: list[Any]) -> Array:
    kinds = {type(value) for value in values}
    try:
        if all(_is_number(kind) for kind in kinds):
            dtype = np.result_type(*(np.dtype(kind) for kind in kinds))
            column = np.zeros(num_rows, dtype)
            column[at] = values
            if len(kinds) == 1 or _holds(column, at, values):
                return column
        elif kinds == {np.ndarray} and len({(one.shape, one.dtype) for one in values}) == 1:
            column = np.zeros((num_rows, *values[0].shape), values[0].dtype)
            column[at] = values
            return column
    except (TypeError, ValueError, OverflowError):
        pass  # an integer of more than 64 bits
    return object_column(num_rows, at, values)


def _is_number(kind: type) -> bool:
    return kind in (int, float, bool) or issubclass(kind, np.number)


def _holds(column: Array, at: list[int], values: list[Any]) -> bool:
    """Returns whether the column has the values as they were given; NaN equals NaN."""
    # compares Python's own numbers, which is exact
    given = (value.item() if isinstance(value, np.generic) else value for value in values)
    return all(
        kept == value or (kept != kept and value != value)
        for kept, value in zip(column[at].tolist(), given, strict=True)
    )
