# SPDX-License-Identifier: Apache-2.0
"""Named arrays and a JSON header in one block of bytes, and files that are written atomically."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.support.whole_file import replace_whole

Array = NDArray[Any]

_MAGIC = b"rollouts replay 3\n"
_ALIGNMENT = 64
_NATIVE = "native"  # name of the array that comes as `Pieces`


class Pieces(Protocol):
    """Bytes in several pieces, with a checksum of their own."""

    @property
    def nbytes(self) -> int: ...
    def __iter__(self) -> Iterator[NDArray[np.uint8]]: ...


def pack(
    header: Mapping[str, Any], arrays: Mapping[str, Array], native: Pieces
) -> NDArray[np.uint8]:
    """Lays `header`, `arrays` and `native` side by side in one block of bytes."""
    opening, blocks = _layout(header, arrays, native)
    block = np.empty(
        len(opening) + sum(_padded(b.nbytes) for b in [*arrays.values(), native]), np.uint8
    )
    at = 0
    for part in chain([opening], blocks):
        block[at : at + len(part)] = part
        at += len(part)
    return block


def parts(
    header: Mapping[str, Any], arrays: Mapping[str, Array], native: Pieces | None = None
) -> Iterator[NDArray[np.uint8]]:
    """Yields what `pack` joins: magic, length, CRC, JSON, then the arrays' own bytes, padded."""
    opening, blocks = _layout(header, arrays, native)
    return chain([opening], blocks)


def _layout(
    header: Mapping[str, Any], arrays: Mapping[str, Array], native: Pieces | None = None
) -> tuple[NDArray[np.uint8], Iterator[NDArray[np.uint8]]]:
    # np.ascontiguousarray would change the shape () to (1,)
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    table: dict[str, Any] = {}
    offset = 0
    for name, array in whole.items():
        place = {"offset": offset, "crc32": zlib.crc32(_as_bytes(array).data)}
        table[name] = {"dtype": array.dtype.str, "shape": list(array.shape), **place}
        offset += _padded(array.nbytes)
    if native is not None:
        # no checksum here: the bytes do not exist yet, and the store checks them itself
        table[_NATIVE] = {"dtype": "|u1", "shape": [native.nbytes], "offset": offset, "crc32": None}
        offset += _padded(native.nbytes)

    text = json.dumps({**header, "arrays": table, "nbytes": offset}).encode()
    opening = _MAGIC + len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(4, "little")
    opening += text
    opening += b" " * (-len(opening) % _ALIGNMENT)

    def blocks() -> Iterator[NDArray[np.uint8]]:
        for array in whole.values():
            yield _as_bytes(array)
            yield np.zeros(-array.nbytes % _ALIGNMENT, np.uint8)
        if native is not None:
            yield from native
            yield np.zeros(-native.nbytes % _ALIGNMENT, np.uint8)

    return np.frombuffer(opening, np.uint8), blocks()


def unpack(block: Array) -> tuple[dict[str, Any], dict[str, Array]]:
    """Returns the header and views of the arrays.

    Raises:
      SpecError: The block was not made by `pack`, or was damaged or cut off.
    """
    data = np.frombuffer(block, np.uint8)
    if data[: len(_MAGIC)].tobytes() != _MAGIC:
        raise SpecError("this is not a saved replay buffer, or one of another version of rollouts")
    try:
        first = len(_MAGIC) + 12
        length = int.from_bytes(data[len(_MAGIC) : first - 4].tobytes(), "little")
        text = data[first : first + length].tobytes()
        if zlib.crc32(text) != int.from_bytes(data[first - 4 : first].tobytes(), "little"):
            raise SpecError("the header of the saved replay buffer is damaged (CRC-32 differs)")
        header = json.loads(text)
        opening = first + length + -(first + length) % _ALIGNMENT
        if len(data) != opening + header["nbytes"]:
            raise SpecError(
                f"the saved replay buffer has {len(data)} bytes, expected "
                f"{opening + header['nbytes']}: the file was cut off"
            )
        arrays = {n: _read(data[opening:], n, t) for n, t in header["arrays"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"the header of the saved replay buffer is damaged: {error}") from error
    return header, arrays


def write_atomically(path: str | os.PathLike[str], blocks: Iterable[Array]) -> None:
    """Writes a file that is complete or as it was before, even if the machine crashes."""
    with replace_whole(path) as file:
        for block in blocks:
            file.write(block.data)


def _padded(nbytes: int) -> int:
    return nbytes + -nbytes % _ALIGNMENT


def _as_bytes(array: Array) -> Array:
    return np.frombuffer(array, np.uint8) if array.nbytes else np.zeros(0, np.uint8)


def _read(data: Array, name: str, entry: Mapping[str, Any]) -> Array:
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    if dtype.hasobject:
        raise SpecError(f"array {name!r} of the saved replay buffer has dtype {dtype}")
    count = int(np.prod(shape))
    raw = data[entry["offset"] : entry["offset"] + count * dtype.itemsize]
    if name != _NATIVE and zlib.crc32(raw.data) != entry["crc32"]:
        raise SpecError(f"array {name!r} of the saved replay buffer is damaged (CRC-32 differs)")
    return np.frombuffer(raw, dtype, count).reshape(shape) if count else np.zeros(shape, dtype)
