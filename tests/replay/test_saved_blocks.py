# SPDX-License-Identifier: Apache-2.0
"""Arrays and a header in one block of bytes: read back, damaged anywhere, written whole."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rollouts.errors import DTypeError, SpecError
from rollouts.replay.arguments import (
    as_beta,
    as_example,
    as_floats,
    as_path,
    as_priorities,
    as_timeout,
    as_whole,
    check_updates,
)
from rollouts.replay.files import pack, parts, unpack, write_atomically


class Pieces:
    """Bytes of a store, which come in two pieces."""

    def __init__(self, data: bytes) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self.nbytes = len(data)

    def __iter__(self) -> Any:
        half = self.nbytes // 2
        yield self._data[:half]
        yield self._data[half:]


arrays = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    hnp.arrays(
        st.sampled_from([np.uint8, np.int64, np.float32, np.bool_]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
)


@settings(max_examples=40)
@given(arrays, st.binary(max_size=200))
def test_blocks_are_read_back(given_arrays: dict[str, Any], native: bytes) -> None:
    header, found = unpack(pack({"version": 3}, given_arrays, Pieces(native)))
    assert header["version"] == 3
    assert found.pop("native").tobytes() == native
    assert found.keys() == given_arrays.keys()
    for name, array in given_arrays.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def block() -> Any:
    some = {"a": np.arange(5, dtype=np.int32), "b": np.ones((2, 3))}
    return pack({"kind": "x"}, some, Pieces(bytes(range(70))))


def test_parts_are_the_block_and_begin_at_multiples_of_64() -> None:
    some = {"a": np.arange(5, dtype=np.int32), "b": np.ones((2, 3))}
    made = np.concatenate(list(parts({"kind": "x"}, some, Pieces(bytes(range(70))))))
    assert np.array_equal(made, block())
    header, _ = unpack(made)
    assert all(entry["offset"] % 64 == 0 for entry in header["arrays"].values())
    assert len(made) % 64 == 0


def test_arrays_of_strides_are_written_in_order() -> None:
    grid = np.arange(12).reshape(3, 4)
    _, found = unpack(np.concatenate(list(parts({}, {"a": grid.T, "b": grid[::-1, ::2]}))))
    assert np.array_equal(found["a"], grid.T) and np.array_equal(found["b"], grid[::-1, ::2])


def test_every_byte_that_counts_is_checked() -> None:
    whole = block()
    header, _ = unpack(whole)
    length = int.from_bytes(whole[18:26].tobytes(), "little")
    opening = -(-(30 + length) // 64) * 64
    for at in range(len(whole)):
        damaged = whole.copy()
        damaged[at] ^= 1
        place = at - opening
        counts = at < 30 + length or any(
            entry["offset"] <= place < entry["offset"] + size
            for name, entry in header["arrays"].items()
            for size in [np.dtype(entry["dtype"]).itemsize * int(np.prod(entry["shape"]))]
            # the store checks its own bytes
            if name != "native"
        )
        if counts:
            with pytest.raises(SpecError):
                unpack(damaged)
        else:
            unpack(damaged)


@pytest.mark.parametrize("more", [-1, -64, 1, 64])
def test_a_block_of_another_length_was_cut_off(more: int) -> None:
    whole = block()
    other = whole[:more] if more < 0 else np.concatenate([whole, np.zeros(more, np.uint8)])
    with pytest.raises(SpecError, match=f"has {len(other)} bytes, expected {len(whole)}: the file"):
        unpack(other)


@pytest.mark.parametrize("data", [b"", b"rollouts replay 1\n" + bytes(99), b"PK"])
def test_what_is_no_saved_buffer_says_so(data: bytes) -> None:
    with pytest.raises(SpecError, match="this is not a saved replay buffer, or one of another"):
        unpack(np.frombuffer(data, np.uint8))


def block_of(header: Any) -> Any:
    """A block whose header passes its checksum, whatever it says."""
    text = json.dumps(header).encode()
    opening = b"rollouts replay 3\n" + len(text).to_bytes(8, "little")
    opening += zlib.crc32(text).to_bytes(4, "little") + text
    return np.frombuffer(opening + b" " * (-len(opening) % 64), np.uint8)


@pytest.mark.parametrize(
    "header",
    [
        [],
        3,
        {"nbytes": 0},
        {"arrays": {}},
        {"arrays": [], "nbytes": 0},
        {"arrays": {"a": {}}, "nbytes": 0},
        {"arrays": {"a": {"dtype": "zzz", "shape": [], "offset": 0, "crc32": 0}}, "nbytes": 0},
        {"arrays": {"a": {"dtype": "|O", "shape": [], "offset": 0, "crc32": 0}}, "nbytes": 0},
        {"arrays": {"a": {"dtype": "<i8", "shape": [9], "offset": 0, "crc32": 0}}, "nbytes": 0},
        {"arrays": {"a": {"dtype": "<i8", "shape": ["x"], "offset": 0, "crc32": 0}}, "nbytes": 0},
    ],
)
def test_a_header_that_nobody_wrote_is_damaged(header: Any) -> None:
    with pytest.raises(SpecError, match="saved replay buffer"):
        unpack(block_of(header))


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "buffer.bin"
    target.write_bytes(b"old")
    write_atomically(target, [np.arange(3, dtype=np.uint8), np.arange(2, dtype=np.uint16)])
    assert target.read_bytes() == bytes([0, 1, 2, 0, 0, 1, 0])
    assert [path.name for path in tmp_path.iterdir()] == ["buffer.bin"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "buffer.bin"
    target.write_bytes(b"old")

    def blocks() -> Any:
        yield np.zeros(10, np.uint8)
        raise RuntimeError("the store was closed")

    with pytest.raises(RuntimeError, match="the store was closed"):
        write_atomically(target, blocks())
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["buffer.bin"]


@pytest.mark.parametrize("values", [[1, 2], (1, 2), np.array([1, 2], np.uint8), range(1, 3)])
def test_whole_numbers_of_any_kind_become_64_bits(values: Any) -> None:
    found = as_whole("keys", values)
    assert found.dtype == np.int64 and found.tolist() == [1, 2] and found.flags.c_contiguous


def test_no_numbers_have_no_dtype_to_be_wrong() -> None:
    assert as_whole("keys", []).shape == (0,) and as_whole("keys", []).dtype == np.int64


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([1.0], DTypeError, "keys has dtype float64"),
        ([True], DTypeError, "keys has dtype bool"),
        (["1"], DTypeError, "keys has dtype <U1"),
        ([[1]], SpecError, r"keys has shape \(1, 1\)"),
        (1, SpecError, r"keys has shape \(\)"),
        ([2**63], SpecError, "keys has a number beyond 64 bits"),
        ([2**70], SpecError, "keys has a number beyond 64 bits"),
        ([[1], [1, 2]], DTypeError, "keys is no array of numbers"),
    ],
)
def test_other_whole_numbers_are_refused(values: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        as_whole("keys", values)


@pytest.mark.parametrize(("given_s", "waits"), [(None, None), (0, 0.0), (2, 2.0), (1e300, 1e9)])
def test_seconds_to_wait(given_s: Any, waits: Any) -> None:
    assert as_timeout(given_s) == waits


@pytest.mark.parametrize(
    ("function", "value", "error"),
    [
        (as_timeout, -1, SpecError),
        (as_timeout, float("nan"), SpecError),
        (as_timeout, "1", DTypeError),
        (as_timeout, [1, 2], DTypeError),
        (as_beta, -0.1, SpecError),
        (as_beta, float("inf"), SpecError),
        (as_beta, None, DTypeError),
        (as_beta, b"1", DTypeError),
        (as_beta, np.zeros(2), DTypeError),
        (as_path, 3, DTypeError),
    ],
)
def test_numbers_and_paths_of_other_kinds_are_refused(
    function: Any, value: Any, error: type
) -> None:
    with pytest.raises(error):
        function(value)


def test_examples_and_floats_are_real_numbers() -> None:
    assert as_example("x", 3).dtype.kind == "i" and as_example("x", True).dtype == np.bool_
    assert as_floats("p", [1, 2]).dtype == np.float64 and as_floats("p", []).size == 0
    for wrong in ("text", 1j, None):
        with pytest.raises(DTypeError, match="x has dtype"):
            as_example("x", wrong)
        with pytest.raises(DTypeError, match="p has dtype"):
            as_floats("p", wrong)


def test_priorities_are_none_one_or_one_for_each() -> None:
    assert as_priorities(None, (2, 3)) is None
    assert as_priorities(2, (2, 3)) == 2.0
    found = as_priorities(np.ones((3, 2)).T, (2, 3))
    assert isinstance(found, np.ndarray) and found.flags.c_contiguous
    with pytest.raises(SpecError, match=r"priority has shape \(3,\), expected one number or \(2, "):
        as_priorities([1, 2, 3], (2, 3))


def test_updates_name_the_first_priority_that_is_none() -> None:
    keys = np.arange(3)
    check_updates(keys, np.array([0.0, 5.0, 2.5]), 5.0)
    for wrong in (-1.0, 5.1, float("nan"), float("inf")):
        with pytest.raises(SpecError, match=rf"priorities\[1\] is {wrong}, expected a finite"):
            check_updates(keys, np.array([0.0, wrong, -2.0]), 5.0)
    with pytest.raises(SpecError, match=r"keys have shape \(3,\) and priorities \(2,\)"):
        check_updates(keys, np.zeros(2), 5.0)
    with pytest.raises(SpecError, match="expected \\(B,\\) of both"):
        check_updates(np.zeros((1, 1)), np.zeros((1, 1)), 5.0)
