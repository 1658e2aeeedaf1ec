# SPDX-License-Identifier: Apache-2.0
"""Parquet files as bytes, by the Apache Parquet format 2.10.

The library computes levels for each number of a list, which takes longer than all else of a part.
Lists of one length have the same levels everywhere: here they are a pattern of bits, and the
numbers are written as they lie in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MAGIC = b"PAR1"
_PAGE_BYTES = 1 << 24  # bytes of numbers in a page
# a file has these numbers as they lie in memory, bools as bits
_TYPES = {"|b1": 0, "<i4": 1, "<i8": 2, "<f4": 4, "<f8": 5}
_REQUIRED, _REPEATED, _LIST = 0, 2, 3
_PLAIN, _RLE, _UNCOMPRESSED = 0, 3, 0
# types of the fields of a Thrift struct, in its compact protocol
_I32, _I64, _BINARY, _LIST_FIELD, _STRUCT = 5, 6, 8, 9, 12

Field = tuple[int, int, bytes]


class _Chunk(NamedTuple):
    """A column as it was written: its values, the bytes of its pages, and where these begin."""

    name: str
    rows: Array
    num_values: int
    num_bytes: int
    offset: int


def can_write(columns: Mapping[str, Array]) -> bool:
    """Whether all columns are of kinds that are written here."""
    return all(
        rows.dtype.str in _TYPES and rows.size and (rows.ndim == 1 or rows.dtype.kind != "b")
        for rows in columns.values()
    )


def write_file(
    file: BinaryIO,
    columns: Mapping[str, Array],
    texts: Mapping[bytes, bytes],
    with_bounds: Sequence[str],
) -> None:
    """Writes a file of one group of rows.

    Args:
      file: An empty file.
      columns: Name -> (N,) values, or (N, ...) as lists of one length.
      texts: The file's metadata.
      with_bounds: Columns of one dimension whose least and largest values the file tells.
    """
    offset, chunks = len(MAGIC), []
    file.write(MAGIC)
    for name, rows in columns.items():
        num_bytes = 0
        for piece in _pages(rows):
            file.write(piece)
            num_bytes += piece.nbytes
        chunks.append(_Chunk(name, rows, rows.size, num_bytes, offset))
        offset += num_bytes
    footer = _footer(chunks, texts, with_bounds)
    file.write(footer + struct.pack("<I", len(footer)) + MAGIC)


def _pages(rows: Array) -> Iterator[memoryview]:
    """Yields the bytes of a column's pages."""
    step = max(1, _PAGE_BYTES // rows[0].nbytes)
    for begin in range(0, len(rows), step):
        page = np.ascontiguousarray(rows[begin : begin + step])
        levels = b"" if rows.ndim == 1 else _levels(len(page), page[0].size)
        values = np.packbits(page, bitorder="little") if page.dtype == np.bool_ else page
        size = len(levels) + values.nbytes
        counts = _struct(
            _number(1, page.size), _number(2, _PLAIN), _number(3, _RLE), _number(4, _RLE)
        )
        header = _struct(_number(1, 0), _number(2, size), _number(3, size), (5, _STRUCT, counts))
        yield memoryview(header + levels)
        yield values.reshape(-1).view(np.uint8).data


def _levels(num_rows: int, size: int) -> bytes:
    """Levels of lists: a list's first number has 0, the others repeat, and none is missing."""
    repeated = np.ones((num_rows, size), np.uint8)
    repeated[:, 0] = 0
    packed = np.packbits(repeated.reshape(-1), bitorder="little").tobytes()
    first = _varint(len(packed) << 1 | 1) + packed
    defined = _varint(num_rows * size << 1) + b"\1"
    return b"".join(struct.pack("<I", len(each)) + each for each in (first, defined))


def _footer(
    chunks: Sequence[_Chunk], texts: Mapping[bytes, bytes], with_bounds: Sequence[str]
) -> bytes:
    num_rows = len(chunks[0].rows)
    schema = [_struct(_text(4, b"schema"), _number(5, len(chunks)))]
    for one in chunks:
        schema += _schema_of(one)
    columns = [
        _struct(_number(2, 0, _I64), (3, _STRUCT, _chunk(one, with_bounds))) for one in chunks
    ]
    group = _struct(
        _list(1, _STRUCT, columns),
        _number(2, sum(one.num_bytes for one in chunks), _I64),
        _number(3, num_rows, _I64),
    )
    pairs = [_struct(_text(1, key), _text(2, value)) for key, value in texts.items()]
    # numbers have the order of their type
    orders = [_struct((1, _STRUCT, _struct()))] * len(chunks)
    return _struct(
        _number(1, 2),
        _list(2, _STRUCT, schema),
        _number(3, num_rows, _I64),
        _list(4, _STRUCT, [group]),
        _list(5, _STRUCT, pairs),
        _text(6, b"rollouts"),
        _list(7, _STRUCT, orders),
    )


def _schema_of(one: _Chunk) -> list[bytes]:
    kind, name = _number(1, _TYPES[one.rows.dtype.str]), one.name.encode()
    if one.rows.ndim == 1:
        return [_struct(kind, _number(3, _REQUIRED), _text(4, name))]
    is_list = (10, _STRUCT, _struct((3, _STRUCT, _struct())))
    return [
        _struct(_number(3, _REQUIRED), _text(4, name), _number(5, 1), _number(6, _LIST), is_list),
        _struct(_number(3, _REPEATED), _text(4, b"list"), _number(5, 1)),
        _struct(kind, _number(3, _REQUIRED), _text(4, b"element")),
    ]


def _chunk(one: _Chunk, with_bounds: Sequence[str]) -> bytes:
    path = [one.name, *(["list", "element"] if one.rows.ndim > 1 else [])]
    fields = [
        _number(1, _TYPES[one.rows.dtype.str]),
        _list(2, _I32, [_zigzag(_RLE), _zigzag(_PLAIN)]),
        _list(3, _BINARY, [_varint(len(each.encode())) + each.encode() for each in path]),
        _number(4, _UNCOMPRESSED),
        _number(5, one.num_values, _I64),
        _number(6, one.num_bytes, _I64),
        _number(7, one.num_bytes, _I64),
        _number(9, one.offset, _I64),
    ]
    if one.name in with_bounds:
        most, least = one.rows.max().tobytes(), one.rows.min().tobytes()
        bounds = _struct(_number(3, 0, _I64), _text(5, most), _text(6, least))
        fields.append((12, _STRUCT, bounds))
    return _struct(*fields)


# -- Thrift's compact protocol ---------------------------------------------------------


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else -value * 2 - 1)


def _number(number: int, value: int, kind: int = _I32) -> Field:
    return number, kind, _zigzag(value)


def _text(number: int, value: bytes) -> Field:
    return number, _BINARY, _varint(len(value)) + value


def _list(number: int, kind: int, elements: Sequence[bytes]) -> Field:
    count = len(elements)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + _varint(count)
    return number, _LIST_FIELD, head + b"".join(elements)


def _struct(*fields: Field) -> bytes:
    """A struct of fields whose numbers grow."""
    found, last = b"", 0
    for number, kind, data in fields:
        found += bytes([number - last << 4 | kind]) + data
        last = number
    return found + b"\0"
