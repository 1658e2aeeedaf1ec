# SPDX-License-Identifier: Apache-2.0
"""Records of a log: a few facts as JSON and arrays behind them, each with a checksum.

    magic "rlg1"   JSON bytes uint32   array bytes uint64   checksum uint64   JSON   arrays

Numbers are little-endian. A writer that was killed leaves a record that ends too early; everything
before it can be read.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from rollouts import _native

Array = npt.NDArray[Any]
Facts = Mapping[str, Any]
Arrays = Mapping[str, Array]

MAGIC = b"rlg1"
_HEAD = struct.Struct("<4sIQQ")
_KINDS = "biuf"  # dtype kinds that are read
_MAX_FACTS = 1 << 24  # bytes; a file with more is no log


@dataclass(frozen=True, slots=True, eq=False)
class LogRecord:
    """One record.

    Attributes:
      kind: "log", "state" or "fragment".
      facts: Plain values by name.
      arrays: Arrays by name.
    """

    kind: str
    facts: dict[str, Any]
    arrays: dict[str, Array]


def to_bytes(kind: str, facts: Facts, arrays: Arrays) -> bytes:
    """Returns a record as it is written: integers in as few bits as they need, states deflated."""
    return next(all_to_bytes([(kind, facts, arrays)]))


def all_to_bytes(records: Iterable[tuple[str, Facts, Arrays]]) -> Iterator[bytes]:
    """Yields `to_bytes` of each record; neighbours with arrays of the same shapes take less time.

    Integers of such neighbours have the same number of bits.
    """
    for (kind, *names), alike in groupby(records, _layout):
        some = list(alike)
        coded = [_coded([one[2][name] for one in some], kind) for name, _, _ in names]
        for (_, facts, _), *parts in zip(some, *(one.parts for one in coded), strict=True):
            described = ", ".join(
                _description(*of, one.how, len(part))
                for of, one, part in zip(names, coded, parts, strict=True)
            )
            of_facts = json.dumps(facts)
            text = f'{{"kind": "{kind}", "facts": {of_facts}, "arrays": [{described}]}}'.encode()
            body = b"".join(parts)
            yield _HEAD.pack(MAGIC, len(text), len(body), _sum(text, body)) + text + body


def read_records(path: Path, *, with_arrays: bool = True) -> Iterator[tuple[LogRecord, int]]:
    """Yields the whole records of a file, and where each begins; stops at one that is not whole.

    Args:
      path: The file.
      with_arrays: False leaves the arrays out, unread and unchecked.
    """
    with path.open("rb") as file:
        while True:
            start = file.tell()
            found = _read_one(file, with_arrays=with_arrays)
            if found is None:
                return
            yield found, start


def read_record(path: Path, start: int) -> LogRecord | None:
    """Returns the record that begins there; None where it is not whole."""
    with path.open("rb") as file:
        file.seek(start)
        return _read_one(file, with_arrays=True)


def _read_one(file: BinaryIO, *, with_arrays: bool) -> LogRecord | None:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, text_bytes, body_bytes, expected = _HEAD.unpack(head)
    start, end = file.tell(), file.seek(0, 2)
    if magic != MAGIC or text_bytes > _MAX_FACTS or start + text_bytes + body_bytes > end:
        return None
    file.seek(start)
    text = file.read(text_bytes)
    body = b""
    if with_arrays:
        body = file.read(body_bytes)
        if _sum(text, body) != expected:
            return None
    else:
        file.seek(body_bytes, 1)
    try:
        return _record(text, body, with_arrays=with_arrays)
    except (ValueError, KeyError, TypeError, zlib.error):
        return None  # another program wrote it


def _record(text: bytes, body: bytes, *, with_arrays: bool) -> LogRecord:
    read = json.loads(text)
    arrays, first = {}, 0
    for one in read["arrays"] if with_arrays else ():
        last = first + one["bytes"]
        arrays[one["name"]] = _decoded(body[first:last], one)
        first = last
    return LogRecord(str(read["kind"]), dict(read["facts"]), arrays)


def _sum(text: bytes, body: bytes) -> int:
    return _native.checksum([np.frombuffer(text, np.uint8), np.frombuffer(body, np.uint8)])


def _layout(record: tuple[str, Facts, Arrays]) -> tuple[Any, ...]:
    """Returns the kind, and (name, shape, dtype) of each array."""
    kind, _, arrays = record
    return (kind, *((name, one.shape, one.dtype.str) for name, one in arrays.items()))


@lru_cache(maxsize=256)
def _description(
    name: str, shape: tuple[int, ...], dtype: str, how: tuple[tuple[str, Any], ...], size: int
) -> str:
    """Returns the JSON by which `_decoded` reads an array of `size` bytes."""
    return json.dumps({"name": name, "shape": shape, "dtype": dtype, **dict(how), "bytes": size})


class _Coded(NamedTuple):
    """Arrays of one shape, each as bytes, and the facts by which `_decoded` reads all of them."""

    parts: list[bytes]
    how: tuple[tuple[str, Any], ...]


def _coded(arrays: Sequence[Array], kind: str) -> _Coded:
    if kind == "state":
        plain = (np.ascontiguousarray(one).tobytes() for one in arrays)
        return _Coded([zlib.compress(one, 1) for one in plain], (("how", "deflated"),))
    if arrays[0].dtype.kind in "iu" and arrays[0].size > 0:
        rows = np.stack(arrays).reshape(len(arrays), -1)
        low, high = int(rows.min()), int(rows.max())
        bits = next((bits for bits in (1, 2, 4, 8, 16, 32) if high - low < 1 << bits), 64)
        if bits < 64:
            flat = (rows - low if low else rows).astype(f"<u{max(bits, 8) // 8}", copy=False)
            parts = [row.tobytes() for row in _in_bits(flat, bits)]
            return _Coded(parts, (("how", "narrow"), ("low", low), ("bits", bits)))
    return _Coded([one.tobytes() for one in arrays], (("how", "plain"),))


def _in_bits(rows: Array, bits: int) -> Array:
    """Packs each row of numbers below 2**bits; numbers of less than 8 bits share bytes."""
    if bits >= 8:
        return rows
    if bits == 1:
        return np.packbits(rows, axis=1)
    share, (count, size) = 8 // bits, rows.shape
    cells = np.zeros((count, -(-size // share), share), np.uint8)
    cells.reshape(count, -1)[:, :size] = rows
    packed = cells[:, :, 0]
    for place in range(1, share):
        packed = packed | (cells[:, :, place] << np.uint8(bits * place))
    return packed


def _out_of_bits(packed: Array, bits: int, count: int) -> Array:
    if bits >= 8:
        return packed
    if bits == 1:
        return np.unpackbits(packed)[:count]
    places = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[:, None] >> places) & np.uint8((1 << bits) - 1)
    return numbers.ravel()[:count]


def _decoded(data: bytes, one: Mapping[str, Any]) -> Array:
    """Returns the array that `_coded` was given.

    Raises:
      ValueError, TypeError, KeyError: `one` does not describe such an array.
    """
    dtype, shape = np.dtype(one["dtype"]), tuple(int(size) for size in one["shape"])
    count = int(np.prod(shape, dtype=np.int64))
    if dtype.kind not in _KINDS or count < 0:
        raise ValueError(one["dtype"])
    if one["how"] == "deflated":
        unpack = zlib.decompressobj()
        data = unpack.decompress(data, count * dtype.itemsize + 1)
    elif one["how"] == "narrow":
        bits = int(one["bits"])
        if bits not in (1, 2, 4, 8, 16, 32):
            raise ValueError(bits)
        packed = np.frombuffer(data, f"<u{max(bits, 8) // 8}")
        wide: Array = _out_of_bits(packed, bits, count).astype(dtype) + dtype.type(one["low"])
        wide = wide.reshape(shape)
        return wide
    return np.frombuffer(data, dtype).reshape(shape)
