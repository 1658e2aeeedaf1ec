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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from rollouts import _native

Array = npt.NDArray[Any]

MAGIC = b"rlg1"
_HEAD = struct.Struct("<4sIQQ")
_KINDS = "biuf"  # dtype kinds that are read
_MAX_FACTS = 1 << 24  # bytes of a record's facts; a file with more is no log


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


def to_bytes(kind: str, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Returns a record as it is written: integers in as few bits as they need, states deflated."""
    described, parts = [], []
    for name, array in arrays.items():
        coded, *how = _coded(array, deflates=kind == "state")
        described.append(_described(name, array.shape, array.dtype, len(coded), *how))
        parts.append(coded)
    told = f'{{"kind": "{kind}", "facts": {json.dumps(facts)}, "arrays": [{", ".join(described)}]}}'
    text, body = told.encode(), b"".join(parts)
    return _HEAD.pack(MAGIC, len(text), len(body), _sum(text, body)) + text + body


@lru_cache(64)  # cached: successive fragments have arrays of the same description
def _described(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], num_bytes: int, how: str, *bits: int
) -> str:
    facts = {"name": name, "shape": shape, "dtype": dtype.str, "bytes": num_bytes, "how": how}
    return json.dumps(facts | dict(zip(("low", "bits"), bits, strict=False)))


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


def _coded(array: Array, *, deflates: bool) -> tuple[bytes, str, *tuple[int, ...]]:
    """Returns an array's bytes and their form; for "narrow" also its smallest number and its
    bits."""
    if deflates:
        return zlib.compress(np.ascontiguousarray(array).tobytes(), 1), "deflated"
    if array.dtype.kind in "iu" and array.size:
        packed = _native.pack_integers(array)
        if packed is not None:
            data, low, bits = packed
            return data, "narrow", low, bits
    return array.tobytes(), "plain"


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
