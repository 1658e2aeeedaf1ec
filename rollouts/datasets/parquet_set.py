# SPDX-License-Identifier: Apache-2.0
"""`ParquetSet`: a data set as a folder of Parquet files, each of whole episodes.

A row is a step: `episode`, `step`, `observation`, `action`, `reward`, `terminated`, `truncated`,
`env_id` and infos. Arrays are lists of one length; arrays of bytes (frames) are bytes. An episode
of T steps has T + 1 rows; in the last one only the observation counts. If observations are stacks
of S frames, `observation` is the newest frame, and S - 1 rows before, with negative steps, have the
other frames of the first stack.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rollouts.datasets.about import METADATA, About
from rollouts.datasets.cutter import joined
from rollouts.datasets.episodes import Episode
from rollouts.datasets.part_files import make_folder, part_name, write_part, write_whole
from rollouts.support.extras import needs

with needs("datasets", "a data set in Parquet"):
    import pyarrow as pa
    import pyarrow.parquet as pq

Array = NDArray[Any]

# readers of a folder skip files with this prefix
ABOUT = f"_{METADATA}"
EPISODES = b"rollouts.episodes"
_BATCH_ROWS = 1 << 16  # rows that pyarrow encodes at once


class ParquetPart:
    """Episodes that become one file; see `rollouts.datasets.set_parts.Part`."""

    def __init__(self, first_id: int, compression: str) -> None:
        """Begins without episodes."""
        self.nbytes = self.num_episodes = 0
        self._first_id, self._compression = first_id, compression
        self._episodes: list[Episode] = []

    def add(self, episode: Episode) -> None:
        """Adds an episode."""
        self._episodes.append(episode)
        self.num_episodes += 1
        self.nbytes += episode.nbytes

    def write(self, file: BinaryIO) -> None:
        """Writes the episodes as one file."""
        columns = self._columns()
        about = [
            {
                "episode": self._first_id + index,
                "num_steps": each.num_steps,
                "env_id": each.env_id,
                "start": each.start,
                "state": None if each.state is None else base64.b64encode(each.state).decode(),
            }
            for index, each in enumerate(self._episodes)
        ]
        bytes_like = {name for name, rows in columns.items() if _is_packed(rows)}
        how = {"auto": "zstd", "gzip": "gzip"}.get(self._compression, "none")
        arrays = [_to_arrow(rows) for rows in columns.values()]
        # a nullable field would store a definition level for each number
        fields = [
            pa.field(name, array.type, nullable=False)
            for name, array in zip(columns, arrays, strict=True)
        ]
        schema = pa.schema(fields, {EPISODES: json.dumps(about).encode()})
        table = pa.Table.from_arrays(arrays, schema=schema)
        pq.write_table(
            table, file, use_dictionary=False, write_statistics=["episode", "step"],
            row_group_size=max(1, len(table)), write_batch_size=_BATCH_ROWS,
            compression={
                # columns of lists are named after their elements
                f"{name}.list.element" if pa.types.is_fixed_size_list(table[name].type) else name:
                how if name in bytes_like else "none" for name in columns
            },
        )  # fmt: skip

    def _columns(self) -> dict[str, Array]:
        all_of = self._episodes
        rows = [len(each.frames) for each in all_of]
        ahead = [each.stack_num - 1 for each in all_of]
        numbers = np.arange(self._first_id, self._first_id + len(all_of))
        columns = {
            "episode": np.repeat(numbers, rows),
            "env_id": np.repeat([each.env_id for each in all_of], rows),
            "step": np.concatenate(
                [np.arange(-a, n - a, dtype=np.int32) for n, a in zip(rows, ahead, strict=True)]
            ),
            "observation": joined([each.frames for each in all_of]),
        }
        for name in ("action", "reward", "terminated", "truncated"):
            columns[name] = _padded([getattr(each, name) for each in all_of], ahead)
        for name in all_of[0].infos:
            columns[name] = _padded([each.infos[name] for each in all_of], ahead)
        return columns


class ParquetSet:
    """A folder of parts and `_metadata.json`; see `rollouts.datasets.set_parts.Target`.

    Attributes:
      path: The folder.
    """

    def __init__(self, path: Path, about: About, compression: str) -> None:
        """Writes nothing yet."""
        self.path, self._about, self._compression = path, about, compression
        self._num_parts = 0

    def begin(self) -> None:
        """See `Target`."""
        make_folder(self.path, str(self.path))
        write_whole(self.path / ABOUT, json.dumps(self._about.to_metadata()).encode())

    def part(self, first_id: int) -> ParquetPart:
        """See `Target`."""
        return ParquetPart(first_id, self._compression)

    def publish(self, part: ParquetPart, num_steps: int) -> None:
        """See `Target`."""
        write_part(self.path / part_name(self._num_parts, ".parquet"), part)
        self._num_parts += 1

    def close(self) -> None:
        """Does nothing; see `Target`."""


def _padded(parts: list[Array], ahead: list[int]) -> Array:
    """Rows of steps; `ahead` rows of zeros precede those of an episode, and one follows them."""
    zero = np.zeros_like(parts[0][:1])
    rows = [
        each
        for part, count in zip(parts, ahead, strict=True)
        for each in (*[zero] * count, part, zero)
    ]
    return np.concatenate(rows)


def _is_packed(rows: Array) -> bool:
    return rows.ndim > 1 and rows.dtype.itemsize == 1


def _to_arrow(rows: Array) -> Any:
    if rows.ndim == 1:
        return _numbers(rows)
    if _is_packed(rows):
        # Parquet has no numbers of one byte: each would take four bytes
        kind = pa.binary(rows[0].nbytes)
        buffer = pa.py_buffer(np.ascontiguousarray(rows))
        return pa.FixedSizeBinaryArray.from_buffers(kind, len(rows), [None, buffer])
    flat = _numbers(rows.reshape(-1))
    element = pa.field("element", flat.type, nullable=False)
    kind = pa.list_(element, int(np.prod(rows.shape[1:])))
    return pa.FixedSizeListArray.from_arrays(flat, type=kind)


def _numbers(rows: Array) -> Any:
    """Numbers (N,) as Arrow's; `pa.array` would import pandas, which takes about a second."""
    kind = pa.from_numpy_dtype(rows.dtype)
    bits = rows.dtype == np.bool_
    data = np.packbits(rows, bitorder="little") if bits else np.ascontiguousarray(rows)
    return pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(data)])
