# SPDX-License-Identifier: Apache-2.0
"""The tables of one buffer: their names, and the native store that has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.replay.columns import Columns
from rollouts.replay.config import TableConfig
from rollouts.replay.items import reach_rows

Array = NDArray[Any]


def by_name(tables: TableConfig | Sequence[TableConfig] | None) -> Mapping[str, TableConfig]:
    """Returns the tables by name, in their order; None: one `TableConfig()`.

    Raises:
      SpecError: There is none, or a name is there twice.
    """
    if tables is None:
        tables = TableConfig()
    given = (tables,) if isinstance(tables, TableConfig) else tuple(tables)
    names = [table.name for table in given]
    if not names or len(set(names)) < len(names):
        raise SpecError(f"tables are named {names}, expected at least one and no name twice")
    return MappingProxyType(dict(zip(names, given, strict=True)))


def history_rows(tables: Mapping[str, TableConfig], max_batch_length: int) -> int:
    """Returns how many rows behind the newest one of a stream new items may begin.

    Raises:
      SpecError: max_batch_length < 1.
    """
    if max_batch_length < 1:
        raise SpecError(f"max_batch_length is {max_batch_length}, expected at least 1 step")
    # rows of a batch, a final one after each of them at worst, and of what waits for them
    reach = max(reach_rows(table.items) for table in tables.values())
    return 2 * max_batch_length + reach + 2


def make_store(
    columns: Columns,
    tables: Mapping[str, TableConfig],
    seed: int,
    *,
    history_rows: int,
    max_bytes: int,
    num_threads: int,
    path: str,
) -> _native.ReplayStore:
    """Makes the native store, without streams; the errors of ReplayBuffer."""
    return _native.ReplayStore(
        columns.native,
        [table.to_native(seed + i) for i, table in enumerate(tables.values())],
        num_streams=0,
        history_rows=history_rows,
        max_bytes=max_bytes,
        num_threads=num_threads,
        path=path,
    )


def as_array(values: ArrayLike, dtype: Any) -> Array:
    """Takes arrays, sequences and tensors of any device."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.ascontiguousarray(values, dtype)


def check_updates(keys: Array, priorities: Array) -> None:
    """Checks keys and priorities (B,) of `update_priorities`.

    Raises:
      SpecError: Not as many of both, or a priority that is negative or not finite.
    """
    if keys.ndim != 1 or keys.shape != priorities.shape:
        raise SpecError(
            f"keys have shape {keys.shape} and priorities {priorities.shape}, expected (B,) of both"
        )
    is_bad = ~(np.isfinite(priorities) & (priorities >= 0))
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise SpecError(
            f"priorities[{row}] is {priorities[row]}, expected a finite number of at least 0"
        )


def as_priorities(priority: ArrayLike | None, shape: tuple[int, ...]) -> float | Array | None:
    """Returns priorities as an adding method takes them: none, one, or an array of `shape`.

    Raises:
      SpecError: Another shape, or a priority that is negative or not finite.
    """
    if priority is None:
        return None
    given = as_array(priority, np.float64)
    if np.ndim(priority) == 0:
        given = given.reshape(())
    if given.shape not in ((), shape):
        raise SpecError(
            f"priority has shape {given.shape}, expected one number or {shape}: one per step, of "
            "the item that begins there"
        )
    if not (np.isfinite(given).all() and (given >= 0).all()):
        raise SpecError("priority has a number that is negative or not finite, expected 0 or more")
    return given if given.ndim else float(given)
