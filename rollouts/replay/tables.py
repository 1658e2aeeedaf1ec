# SPDX-License-Identifier: Apache-2.0
"""The tables of one buffer: their names, and the native store that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rollouts import _native
from rollouts.checks import whole_number
from rollouts.errors import DTypeError, SpecError
from rollouts.replay.columns import Columns
from rollouts.replay.config import TableConfig
from rollouts.replay.items import reach_rows


def by_name(tables: TableConfig | Sequence[TableConfig] | None) -> Mapping[str, TableConfig]:
    """Returns the tables by name, in their order; None: one `TableConfig()`.

    Raises:
      SpecError: There is no table, or two have one name. DTypeError: It is no TableConfig.
    """
    if tables is None:
        tables = TableConfig()
    given = tuple(tables) if isinstance(tables, Sequence) else (tables,)
    for table in given:
        if not isinstance(table, TableConfig):
            raise DTypeError(f"a table is {table!r}, expected a TableConfig")
    names = [table.name for table in given]
    if not names or len(set(names)) < len(names):
        raise SpecError(f"tables are named {names}, expected at least one and no name twice")
    return MappingProxyType(dict(zip(names, given, strict=True)))


def history_rows(tables: Mapping[str, TableConfig], max_batch_length: int) -> int:
    """Returns how many rows before a stream's newest row a new item may begin.

    Raises:
      SpecError: max_batch_length < 1.
    """
    steps = whole_number("max_batch_length", max_batch_length, 1, 2**31 - 1)
    # at worst, a final row follows each row of a batch, a cut has rows before and after it, and the
    # rows of waiting items come on top
    reach = max(reach_rows(table.items) for table in tables.values())
    return 2 * steps + reach + 4


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
    """Makes the native store, without streams; raises the errors of ReplayBuffer."""
    seed = whole_number("seed", seed, 0, 2**63 - 1)
    max_bytes = whole_number("max_bytes", max_bytes, 0, 2**63 - 1)
    num_threads = whole_number("num_threads", num_threads, 1, 4096)
    return _native.ReplayStore(
        columns.native,
        [table.to_native(seed + i) for i, table in enumerate(tables.values())],
        num_streams=0,
        history_rows=history_rows,
        max_bytes=max_bytes,
        num_threads=num_threads,
        path=path,
    )
