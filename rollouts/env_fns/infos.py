# SPDX-License-Identifier: Apache-2.0
"""Infos of single environments merged into the dict of arrays that Gymnasium has for batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Info = dict[str, Any]


def merge_infos(num_rows: int, rows: Sequence[int], infos: Sequence[Mapping[str, Any]]) -> Info:
    """Merges infos column by column; equal to `gymnasium.vector.VectorEnv._add_info` in turn.

    Args:
      num_rows: Rows B of the batch.
      rows: Which row each info belongs to, in rising order.
      infos: One dict per entry of `rows`.

    Returns:
      key -> (B, ...) array and `_key` -> (B,) bool, true where the row has the key. Dicts
      become nested dicts, observations under "final_obs" and whatever fits no array become
      arrays of objects.
    """
    columns: dict[str, tuple[list[int], list[Any]]] = {}
    for row, info in zip(rows, infos, strict=True):
        for key, value in info.items():
            column = columns.get(key)
            if column is None:
                columns[key] = ([row], [value])
            else:
                column[0].append(row)
                column[1].append(value)
    merged: Info = {}
    for key, (at, values) in columns.items():
        if key == "final_obs":
            merged[key] = _objects(num_rows, at, values)
        elif all(isinstance(value, dict) for value in values):
            merged[key] = merge_infos(num_rows, at, values)
        else:
            merged[key] = _column(num_rows, at, values)
        mask = np.zeros(num_rows, np.bool_)
        mask[at] = True
        merged[f"_{key}"] = mask
    return merged


def _column(num_rows: int, at: list[int], values: list[Any]) -> Array:
    first = values[0]
    # the first value decides, as in Gymnasium
    if type(first) in (int, float, bool) or isinstance(first, np.number):
        column = np.zeros(num_rows, type(first))
    elif isinstance(first, np.ndarray):
        column = np.zeros((num_rows, *first.shape), first.dtype)
    else:
        return _objects(num_rows, at, values)
    try:
        column[at] = values
    except (TypeError, ValueError):
        # a None among numbers, arrays of several shapes
        return _objects(num_rows, at, values)
    return column


def _objects(num_rows: int, at: list[int], values: list[Any]) -> Array:
    column = np.full(num_rows, None, dtype=object)
    for row, value in zip(at, values, strict=True):
        column[row] = value
    return column
