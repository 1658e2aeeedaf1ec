# SPDX-License-Identifier: Apache-2.0
"""Parquet that is written here, beside what Parquet's own library writes of the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rollouts.datasets import parquet_bytes
from rollouts.datasets.episodes import Episode
from rollouts.datasets.parquet_set import ParquetPart

OBS, ACTION = {"float64": (17,), "float32": (2, 3), "int64": (1,)}, {"float32": (6,), "int64": ()}


def part_of(obs: str, action: str, lengths: list[int], seed: int = 0) -> ParquetPart:
    """Episodes of random numbers of some kinds."""
    rng = np.random.default_rng(seed)

    def numbers(rows: int, kind: str, shape: tuple[int, ...]) -> Any:
        return rng.integers(-(2**20), 2**20, (rows, *shape)).astype(kind)

    part = ParquetPart(7, "auto")
    for steps in lengths:
        part.add(
            Episode(
                frames=numbers(steps + 1, obs, OBS[obs]),
                action=numbers(steps, action, ACTION[action]),
                reward=numbers(steps, "float32", ()),
                terminated=rng.random(steps) < 0.5,
                truncated=rng.random(steps) < 0.5,
                infos={"log_prob": numbers(steps, "float32", ())},
            )
        )
    return part


def both(part: ParquetPart, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Writes a part here, and by the library."""
    paths = [folder / "here.parquet", folder / "library.parquet"]
    for path in paths:
        with open(path, "wb") as file:
            part.write(file)
        assert parquet_bytes.can_write(part._columns()) is (path == paths[0])
        monkeypatch.setattr(parquet_bytes, "can_write", lambda columns: False)
    monkeypatch.undo()
    return paths


@pytest.mark.parametrize("action", ACTION)
@pytest.mark.parametrize("obs", OBS)
@pytest.mark.parametrize("page_bytes", [1 << 24, 1 << 10, 1])
def test_a_file_is_read_as_the_librarys_own(
    obs: str, action: str, page_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = part_of(obs, action, [1, 2, 40, 7])
    with monkeypatch.context() as patched:
        patched.setattr(parquet_bytes, "_PAGE_BYTES", page_bytes)
        here, library = both(part, tmp_path, patched)
    found, expected = pq.read_table(here), pq.read_table(library)
    found.validate(full=True)
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert found.equals(expected)
    ours, theirs = pq.ParquetFile(here).metadata, pq.ParquetFile(library).metadata
    assert ours.schema.equals(theirs.schema)
    for column in range(theirs.num_columns):
        one, other = (each.row_group(0).column(column) for each in (ours, theirs))
        assert (one.num_values, one.physical_type) == (other.num_values, other.physical_type)
        assert one.is_stats_set == other.is_stats_set
        if other.is_stats_set:
            assert one.statistics.null_count == other.statistics.null_count == 0
            assert (one.statistics.min, one.statistics.max) == (
                other.statistics.min,
                other.statistics.max,
            )
    # rows that a reader finds by bounds and by pages
    wanted = [("episode", "==", 9), ("step", ">", 20)]
    assert pq.read_table(here, filters=wanted).equals(pq.read_table(library, filters=wanted))


def test_a_reader_without_the_librarys_schema_finds_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = both(part_of("float64", "float32", [3, 5]), tmp_path, monkeypatch)
    column = pa.parquet.ParquetFile(here).schema.column(3)
    assert (column.path, column.physical_type) == ("observation.list.element", "DOUBLE")
    assert (column.max_definition_level, column.max_repetition_level) == (1, 1)


def test_many_columns_and_long_names_are_read(tmp_path: Path) -> None:
    columns = {f"{'column' * 30} {number}": np.arange(9.0) + number for number in range(40)}
    with open(tmp_path / "set.parquet", "wb") as file:
        parquet_bytes.write_file(file, columns, {b"text": b"x" * 1000}, ())
    found = pq.read_table(tmp_path / "set.parquet")
    assert found.schema.metadata == {b"text": b"x" * 1000}
    assert {name: found[name].to_numpy().tolist() for name in columns} == {
        name: rows.tolist() for name, rows in columns.items()
    }


@pytest.mark.parametrize("rows", [np.zeros((3, 4), np.uint8), np.zeros(3, np.int16), np.zeros(0)])
def test_rows_of_other_kinds_are_left_to_the_library(rows: Any) -> None:
    assert not parquet_bytes.can_write({"observation": rows})
