# SPDX-License-Identifier: Apache-2.0
"""Named arrays and a JSON header in one block of bytes, and files that are whole or not there."""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError

Array = NDArray[Any]

_MAGIC = b"rollouts replay 1\n"
_ALIGNMENT = 64


def pack(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> NDArray[np.uint8]:
    """Lays `header` and `arrays` side by side in one block of bytes."""
    return np.concatenate(parts(header, arrays))


def parts(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[NDArray[np.uint8]]:
    """Returns what `pack` joins: magic, length, CRC, JSON, then the arrays' own bytes, padded."""
    table, offset = {}, 0
    blocks: list[Array] = []
    for name, array in arrays.items():
        array = np.ascontiguousarray(array)
        raw = _as_bytes(array)
        place = {"offset": offset, "crc32": zlib.crc32(raw.data)}
        table[name] = {"dtype": array.dtype.str, "shape": list(array.shape), **place}
        padding = -array.nbytes % _ALIGNMENT
        blocks += [raw, np.zeros(padding, np.uint8)]
        offset += array.nbytes + padding
    text = json.dumps({**header, "arrays": table, "nbytes": offset}).encode()
    opening = _MAGIC + len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(4, "little")
    opening += text
    opening += b" " * (-len(opening) % _ALIGNMENT)
    return [np.frombuffer(opening, np.uint8), *blocks]


def unpack(block: Array) -> tuple[dict[str, Any], dict[str, Array]]:
    """Returns the header and views of the arrays.

    Raises:
      SpecError: the block is not of `pack`, or was damaged or cut off.
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
    """Writes a file that is there as a whole, after a crash of the machine too, or as it was."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=target.name + ".", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for block in blocks:
                file.write(block.data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _as_bytes(array: Array) -> Array:
    return np.frombuffer(array, np.uint8) if array.nbytes else np.zeros(0, np.uint8)


def _read(data: Array, name: str, entry: Mapping[str, Any]) -> Array:
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    if dtype.hasobject:
        raise SpecError(f"array {name!r} of the saved replay buffer has dtype {dtype}")
    count = int(np.prod(shape))
    raw = data[entry["offset"] : entry["offset"] + count * dtype.itemsize]
    if zlib.crc32(raw.data) != entry["crc32"]:
        raise SpecError(f"array {name!r} of the saved replay buffer is damaged (CRC-32 differs)")
    return np.frombuffer(raw, dtype, count).reshape(shape) if count else np.zeros(shape, dtype)
