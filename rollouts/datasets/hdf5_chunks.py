# SPDX-License-Identifier: Apache-2.0
"""Rows of HDF5 data sets that are compressed, or that show frames as stacks."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.datasets import hdf5_bytes as pieces
from rollouts.support.extras import needs

with needs("datasets", "a data set in HDF5"):
    from h5py import h5z
    from isal import isal_zlib

Array = NDArray[Any]

_CHUNK_BYTES = 1 << 18  # bytes of rows that are compressed together
# ISA-L's deflate at this level takes a seventh of the time of zlib's fastest level for frames of
# Atari, and makes them smaller; it works without the GIL, and every HDF5 reader can decompress it
_DEFLATE_LEVEL = 1
_WORD = 0xFFFFFFFF


class Compressor:
    """Compresses arrays of bytes, such as frames, in chunks."""

    def __init__(self, method: str) -> None:
        """Takes "auto", which here is "gzip", or one of "gzip" and "none"."""
        self._method = method

    def chunk_of(self, array: Array) -> tuple[int, ...]:
        """Shape of an array's chunks; empty if the array is stored unchanged."""
        if self._method == "none" or array.dtype.itemsize > 1 or array.ndim < 2 or not array.nbytes:
            return ()
        rows = max(1, min(len(array), _CHUNK_BYTES // array[0].nbytes))
        return (rows, *array.shape[1:])

    def filter(self) -> tuple[int, pieces.Hdf5Bytes]:
        """The message that names the method."""
        return pieces.filters(h5z.FILTER_DEFLATE, (_DEFLATE_LEVEL,))

    def compressed(self, array: Array, chunk: Sequence[int]) -> Iterator[bytes]:
        """Yields the bytes of each chunk; rows after the last one are 0."""
        for begin in range(0, len(array), chunk[0]):
            part = array[begin : begin + chunk[0]]
            missing = chunk[0] - len(part)
            if missing:
                part = np.concatenate([part, np.zeros((missing, *chunk[1:]), part.dtype)])
            yield isal_zlib.compress(
                np.ascontiguousarray(part).reshape(-1).view(np.uint8).data, _DEFLATE_LEVEL
            )


def stacks_of(source: str, shape: Sequence[int]) -> bytes:
    """The mapping of a virtual data set that shows frames as stacks.

    Args:
      source: Path of the frames (T + S - 1, *frame_shape), in the same file.
      shape: (T, S, *frame_shape).
    """
    rows, count, *rest = shape
    found = struct.pack("<BQ", 0, count)
    for place in range(count):
        found += b".\0" + source.encode() + b"\0"
        found += _block((place, *(0 for _ in rest)), (rows, *rest))
        found += _block((0, place, *(0 for _ in rest)), (rows, 1, *rest))
    return found + struct.pack("<I", checksum(found))


def _block(start: Sequence[int], sizes: Sequence[int]) -> bytes:
    """A selection of one block, as HDF5 encodes it."""
    rank = len(start)
    ends = [first + size - 1 for first, size in zip(start, sizes, strict=True)]
    head = struct.pack("<IIIIII", 2, 1, 0, 8 + 8 * rank, rank, 1)
    return head + struct.pack(f"<{2 * rank}I", *start, *ends)


def checksum(data: bytes) -> int:
    """Bob Jenkins' lookup3 (hashlittle), HDF5's checksum of serialised data."""
    a: int
    b: int
    c: int
    a = b = c = (0xDEADBEEF + len(data)) & _WORD
    whole = max(0, (len(data) - 1) // 12 * 12)
    for words in struct.iter_unpack("<III", data[:whole]):
        a, b, c = ((one + word) & _WORD for one, word in zip((a, b, c), words, strict=True))
        for bits in (4, 6, 8, 16, 19, 4):
            a = (a - c & _WORD) ^ _turned(c, bits)
            a, b, c = b, c + b & _WORD, a
    last: tuple[int, ...] = struct.unpack("<III", data[whole:].ljust(12, b"\0"))
    a, b, c = ((one + word) & _WORD for one, word in zip((a, b, c), last, strict=True))
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - _turned(b, bits) & _WORD
        a, b, c = b, c, a
    return b


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD
