# SPDX-License-Identifier: Apache-2.0
"""Infos of rows merged into columns, compared with a slow reading of every row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollouts.envs.hosted.merged_infos import (
    mask_of,
    merge_infos,
    merge_own_infos,
    object_column,
    own_key,
)


def row_of(merged: dict[Any, Any], row: int) -> dict[Any, Any]:
    """One row of a merged dict: the slow way back."""
    found = {}
    for key, column in merged.items():
        mask = merged.get(f"_{key}")
        if mask is None or not mask[row]:
            continue
        found[key] = row_of(column, row) if isinstance(column, dict) else column[row]
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(other, dict):
        return (
            isinstance(one, dict)
            and set(one) == set(other)
            and all(same(one[key], other[key]) for key in other)
        )
    if isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(other, float) and math.isnan(other):
        return math.isnan(one)
    return bool(one == other)


numbers = st.one_of(
    st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=True, allow_infinity=True)
)
leaves = st.one_of(
    numbers,
    st.text(max_size=3),
    st.none(),
    st.lists(st.integers(), max_size=2),
    st.builds(np.float32, st.integers(-9, 9)),
    st.builds(lambda n: np.arange(n, dtype=np.int16), st.integers(0, 2)),
)
infos = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.one_of(leaves, st.dictionaries(st.sampled_from(["x", "y"]), leaves, max_size=2)),
    max_size=3,
)


@settings(max_examples=50)
@given(st.lists(infos, max_size=4), st.integers(0, 3))
def test_every_row_reads_what_it_reported(reported: list[dict[str, Any]], gap: int) -> None:
    rows = [gap + 2 * i for i in range(len(reported))]
    num_rows = gap + 2 * len(reported) + 1
    merged = merge_infos(num_rows, rows, reported)
    for row in range(num_rows):
        info = reported[rows.index(row)] if row in rows else {}
        assert same(row_of(merged, row), info), (merged, row)


def test_no_infos_make_no_columns() -> None:
    assert merge_infos(3, [], []) == {}
    assert merge_infos(3, [0, 2], [{}, {}]) == {}


def test_rows_and_infos_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="zip"):
        merge_infos(3, [0, 1], [{"a": 1}])


def test_rows_without_a_value_have_zeros_and_a_mask() -> None:
    merged = merge_infos(4, [1, 3], [{"a": 5}, {"a": 6, "b": 0.5}])
    assert merged["a"].tolist() == [0, 5, 0, 6] and merged["a"].dtype == np.int64
    assert merged["_a"].tolist() == [False, True, False, True]
    assert merged["b"].tolist() == [0, 0, 0, 0.5]
    assert merged["_b"].tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], np.int64),
        ([1.0, 2.0], np.float64),
        ([True, False], np.bool_),
        ([1, 2.5], np.float64),
        ([True, 3], np.int64),
        ([np.float32(1), np.float32(2)], np.float32),
        ([np.int8(1), np.int16(300)], np.int16),
        ([np.float32(0.1), 1.0], np.float64),
    ],
)
def test_numbers_become_a_column_of_a_type_that_holds_them(values: list[Any], dtype: Any) -> None:
    column = merge_infos(2, [0, 1], [{"a": value} for value in values])["a"]
    assert column.dtype == dtype
    assert column.tolist() == [float(v) if isinstance(v, np.floating) else v for v in values]


@pytest.mark.parametrize(
    "values",
    [
        [2**53 + 1, 0.5],  # float64 has no such integer
        [2**63, 1],
        [-(2**63) - 1, 1],
        [np.uint64(2**63 + 1), -1],
        ["left", "right"],
        [None, 1],
        [[1], [2]],
        [np.zeros(2), np.zeros(3)],
        [np.zeros(2), np.zeros(2, np.float32)],
        [np.zeros(2), 1.0],
        [np.complex128(1), "x"],
        [{"x": 1}, 2],
    ],
)
def test_what_fits_no_array_keeps_its_objects(values: list[Any]) -> None:
    merged = merge_infos(3, [0, 2], [{"a": value} for value in values])
    column = merged["a"]
    assert column.dtype == object
    assert column[0] is values[0] and column[1] is None and column[2] is values[1]
    assert merged["_a"].tolist() == [True, False, True]


def test_integers_beyond_64_bits_in_every_row_are_objects() -> None:
    column = merge_infos(1, [0], [{"a": 2**64}])["a"]
    assert column.dtype == object and column[0] == 2**64


def test_nan_is_kept_among_numbers_of_other_types() -> None:
    column = merge_infos(2, [0, 1], [{"a": math.nan}, {"a": 3}])["a"]
    assert column.dtype == np.float64 and math.isnan(column[0]) and column[1] == 3


def test_arrays_of_one_shape_and_dtype_are_stacked() -> None:
    one, other = np.array([[1, 2]], np.int16), np.array([[3, 4]], np.int16)
    merged = merge_infos(3, [0, 2], [{"a": one}, {"a": other}])
    assert merged["a"].shape == (3, 1, 2) and merged["a"].dtype == np.int16
    assert merged["a"].tolist() == [[[1, 2]], [[0, 0]], [[3, 4]]]
    one[...] = 9  # the environment's own array goes on living
    assert merged["a"][0].tolist() == [[1, 2]]


def test_empty_arrays_are_stacked_too() -> None:
    merged = merge_infos(2, [1], [{"a": np.zeros((0, 3), np.float32)}])
    assert merged["a"].shape == (2, 0, 3) and merged["_a"].tolist() == [False, True]


def test_dicts_become_nested_dicts_over_all_rows() -> None:
    merged = merge_infos(3, [0, 2], [{"d": {"x": 1}}, {"d": {"y": "t"}}])
    assert merged["d"]["x"].tolist() == [1, 0, 0]
    assert merged["d"]["_x"].tolist() == [True, False, False]
    assert merged["d"]["y"].tolist() == [None, None, "t"]
    assert merged["_d"].tolist() == [True, False, True]


def test_an_empty_dict_is_still_reported() -> None:
    merged = merge_infos(2, [1], [{"d": {}}])
    assert merged["d"] == {} and merged["_d"].tolist() == [False, True]


def test_a_key_that_is_another_s_mask_moves_aside() -> None:
    merged = merge_infos(2, [0, 1], [{"a": 1, "_a": 7}, {"_a": 8}])
    assert merged["a"].tolist() == [1, 0] and merged["_a"].tolist() == [True, False]
    assert merged["env_info:_a"].tolist() == [7, 8]


def test_an_underscored_key_alone_stays_as_it_is() -> None:
    merged = merge_infos(1, [0], [{"_b": 4}])
    assert merged["_b"].tolist() == [4] and merged["__b"].tolist() == [True]


def test_keys_that_are_no_text_are_kept() -> None:
    merged = merge_infos(2, [1], [{3: "x", ("k", 1): 2}])
    assert merged[3].tolist() == [None, "x"] and merged["_3"].tolist() == [False, True]
    assert merged["k", 1].tolist() == [0, 2]


def test_a_subclass_of_dict_is_read_as_the_dict_that_it_is() -> None:
    class Sly(dict[str, Any]):
        def items(self) -> Any:
            raise AssertionError("asked the subclass")

    assert merge_infos(1, [0], [Sly(a=1)])["a"].tolist() == [1]


@pytest.mark.parametrize(
    "key",
    ["env_id", "episode_return", "episode_length", "env_error", "final_obs", "final_", "_env_id"],
)
def test_the_library_s_names_are_told_apart(key: str) -> None:
    assert own_key(key) == f"env_info:{key}"


@pytest.mark.parametrize("key", ["env_ids", "final", "finale", "__env_id", "episode", "", 3, None])
def test_other_names_stay(key: Any) -> None:
    assert own_key(key) == key


def test_merging_own_infos_renames_at_the_top_alone() -> None:
    merged = merge_own_infos(2, [0], [{"env_id": 9, "sub": {"env_id": 4}}])
    assert merged["env_info:env_id"].tolist() == [9, 0]
    assert merged["_env_info:env_id"].tolist() == [True, False]
    assert merged["sub"]["env_id"].tolist() == [4, 0]
    assert "env_id" not in merged


def test_a_mask_marks_its_rows_and_a_column_of_objects_has_none_elsewhere() -> None:
    assert mask_of(3, []).tolist() == [False] * 3
    assert mask_of(3, [2, 0]).tolist() == [True, False, True]
    values = [np.zeros(2), [1, 2]]
    column = object_column(3, [2, 0], values)
    # an array stays one entry, it is not spread over the rows
    assert column[2] is values[0] and column[0] is values[1] and column[1] is None
    with pytest.raises(ValueError, match="zip"):
        object_column(3, [0], values)
