# SPDX-License-Identifier: Apache-2.0
"""Gymnasium's dict of arrays with masks, split into one dict per environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def info_rows(columns: Mapping[str, Any], num_rows: int) -> list[dict[str, Any]]:
    """Returns one info per environment, with the keys that it reported.

    Args:
      columns: name -> (N, ...) array, or a dict of such; `_name` (N,) bool marks environments that
        reported it. Without it, all of them did.
      num_rows: Environments N.
    """
    rows: list[dict[str, Any]] = [{} for _ in range(num_rows)]
    for name, column in columns.items():
        if isinstance(name, str) and name.startswith("_") and name[1:] in columns:
            continue
        mask = columns.get(f"_{name}")
        told = range(num_rows) if mask is None else np.flatnonzero(mask).tolist()
        values = info_rows(column, num_rows) if isinstance(column, dict) else _plain(column)
        for row in told:
            rows[row][name] = values[row]
    return rows


def _plain(column: Any) -> Any:
    """Plain numbers where a column has one value per row, as environments give them."""
    array = np.asarray(column)
    return array.tolist() if array.ndim == 1 and array.dtype != object else column
