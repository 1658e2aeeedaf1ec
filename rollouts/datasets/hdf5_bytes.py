# SPDX-License-Identifier: Apache-2.0
"""Pieces of an HDF5 file as bytes, by the HDF5 File Format Specification, version 3.0.

The HDF5 library takes about 60 us for each object that it makes, and an episode has eight. These
are the structures of its earliest releases, without checksums, which every release reads.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

UNDEFINED = 2**64 - 1  # address of a missing part
_LEAF_ENTRIES, _GROUP_CHILDREN, _CHUNK_CHILDREN = 8, 32, 64  # 2 K of the nodes' K
_NAME_BYTES = 24  # room for a name in the root's heap
_HEAP_BYTES = 4096  # the least size of a global heap


class Hole(NamedTuple):
    """Eight bytes that are filled with a number when a piece gets its place.

    Attributes:
      offset: Place of the bytes.
      key: Name of the number.
    """

    offset: int
    key: str


class Hdf5Bytes(NamedTuple):
    """A piece of a file: bytes with holes."""

    data: bytes
    holes: tuple[Hole, ...] = ()


def superblock(end: int, root: int, tree: int, heap: int) -> bytes:
    """The first 96 bytes of a file.

    Args:
      end: Address after the last byte.
      root: Address of the root group's header.
      tree, heap: Addresses of its B-tree and its heap.
    """
    sizes = struct.pack(
        "<8BHHI", 0, 0, 0, 0, 0, 8, 8, 0, _LEAF_ENTRIES // 2, _GROUP_CHILDREN // 2, 0
    )
    addresses = struct.pack("<4Q", 0, UNDEFINED, end, UNDEFINED)
    entry = struct.pack("<QQIIQQ", 0, root, 1, 0, tree, heap)
    return b"\x89HDF\r\n\x1a\n" + sizes + addresses + entry


def header(messages: Sequence[tuple[int, Hdf5Bytes]]) -> Hdf5Bytes:
    """An object header of messages (type, content)."""
    data, holes = bytearray(16), []
    for kind, piece in messages:
        begin = len(data) + 8
        data += struct.pack("<HHI", kind, _up(len(piece.data)), 0) + _padded(piece.data)
        holes += [Hole(begin + offset, key) for offset, key in piece.holes]
    struct.pack_into("<BBHII", data, 0, 1, 0, len(messages), 1, len(data) - 16)
    return Hdf5Bytes(bytes(data), tuple(holes))


def group(links: Mapping[str, str], attributes: Sequence[tuple[int, Hdf5Bytes]] = ()) -> Hdf5Bytes:
    """The header of a group that holds its links itself: name -> key of the address."""
    info = struct.pack("<BBQQ", 0, 0, UNDEFINED, UNDEFINED)
    messages = [(0x2, Hdf5Bytes(info)), (0xA, Hdf5Bytes(bytes(2))), *attributes]
    for name, key in links.items():
        head = struct.pack("<BBBB", 1, 0x10, 1, len(name.encode())) + name.encode()
        messages.append((0x6, Hdf5Bytes(head + bytes(8), (Hole(len(head), key),))))
    return header(messages)


def dataspace(sizes: Sequence[int], rows: str = "") -> Hdf5Bytes:
    """The message of a shape; `rows` is the key of its first size if that varies."""
    rank = len(sizes)
    data = struct.pack("<BBBB4x", 1, rank, 0, 0) + struct.pack(f"<{rank}Q", *sizes)
    return Hdf5Bytes(data, (Hole(8, rows),) if rows else ())


def attribute(name: str, datatype: bytes, shape: Sequence[int], key: str) -> tuple[int, Hdf5Bytes]:
    """The message of an attribute, whose numbers of eight bytes are `key`.0, `key`.1 and so on."""
    head = _attribute_head(name, datatype, shape)
    count = int(np.prod(shape, dtype=np.int64))
    holes = tuple(Hole(len(head) + 8 * i, f"{key}.{i}") for i in range(count))
    return 0xC, Hdf5Bytes(head + bytes(8 * count), holes)


def text_attribute(name: str, datatype: bytes, size: int, heap: int) -> tuple[int, Hdf5Bytes]:
    """The message of an attribute whose text of `size` bytes is the first object of a heap."""
    return 0xC, Hdf5Bytes(_attribute_head(name, datatype, ()) + struct.pack("<IQI", size, heap, 1))


def _attribute_head(name: str, datatype: bytes, shape: Sequence[int]) -> bytes:
    space, title = dataspace(shape).data, name.encode() + b"\0"
    sizes = struct.pack("<BBHHH", 1, 0, len(title), len(datatype), len(space))
    return sizes + _padded(title) + _padded(datatype) + _padded(space)


def contiguous(key: str) -> tuple[int, Hdf5Bytes]:
    """The message of rows in one piece: their address and size."""
    data = struct.pack("<BBQQ", 3, 1, 0, 0)
    return 0x8, Hdf5Bytes(data, (Hole(2, f"{key}.address"), Hole(10, f"{key}.size")))


def chunked(key: str, chunk: Sequence[int], itemsize: int) -> tuple[int, Hdf5Bytes]:
    """The message of rows in chunks: the address of their B-tree, and their shape."""
    sizes = (*chunk, itemsize)
    data = struct.pack(f"<BBBQ{len(sizes)}I", 3, 2, len(sizes), 0, *sizes)
    return 0x8, Hdf5Bytes(data, (Hole(3, f"{key}.address"),))


def virtual(key: str) -> tuple[int, Hdf5Bytes]:
    """The message of a virtual data set: the address of the heap whose first object maps it."""
    return 0x8, Hdf5Bytes(struct.pack("<BBQI", 4, 3, 0, 1), (Hole(2, f"{key}.address"),))


def filters(number: int, values: Sequence[int]) -> tuple[int, Hdf5Bytes]:
    """The message of one filter, which a reader may lack."""
    data = struct.pack("<BB6xHHHH", 1, 1, number, 0, 1, len(values))
    data += struct.pack(f"<{len(values)}I", *values) + bytes(4 * (len(values) % 2))
    return 0xB, Hdf5Bytes(data)


def dataset(rows: Hdf5Bytes, datatype: bytes, layout: Sequence[tuple[int, Hdf5Bytes]]) -> Hdf5Bytes:
    """The header of a data set, without a fill value."""
    fill = Hdf5Bytes(struct.pack("<BBBBI", 2, 1, 1, 1, 0))
    return header([(0x1, rows), (0x3, Hdf5Bytes(datatype)), (0x5, fill), *layout])


def heap_of(data: bytes) -> bytes:
    """A global heap with one object."""
    used = 16 + 16 + _up(len(data))
    size = max(_HEAP_BYTES, used + 16)
    head = struct.pack("<4sB3xQHH4xQ", b"GCOL", 1, size, 1, 1, len(data)) + _padded(data)
    free = struct.pack("<HH4xQ", 0, 0, size - used)
    return (head + free).ljust(size, b"\0")


def chunk_tree(
    address: int, chunks: Sequence[tuple[int, int]], rows: int, rank: int
) -> tuple[int, bytes]:
    """A B-tree of chunks that follow each other in the first dimension.

    Args:
      address: The address at which it will be written.
      chunks: (size, address) of each.
      rows: Rows of a chunk.
      rank: Dimensions of the data set.
    Returns:
      (the root's address, all nodes).
    """
    key = np.dtype([("size", "<u4"), ("mask", "<u4"), ("first", "<u8"), ("rest", "<u8", (rank,))])
    keys = np.zeros(len(chunks) + 1, key)
    keys["first"] = np.arange(len(chunks) + 1) * rows
    keys["size"][:-1] = [size for size, _ in chunks]
    children = np.array([place for _, place in chunks], np.uint64)
    return _tree(address, 1, keys, children, _CHUNK_CHILDREN)


def root_group(address: int, names: NDArray[np.bytes_], places: Any, attributes: Any) -> RootGroup:
    """A group of many members, which are found by a B-tree.

    Args:
      address: The address at which it will be written.
      names: (N,) of at most 23 letters each.
      places: (N,) addresses of their headers.
      attributes: Messages of attributes, without holes.
    """
    order = np.argsort(names)
    offsets = 8 + _NAME_BYTES * np.arange(len(names), dtype=np.uint64)
    texts = bytes(8) + names.astype(f"S{_NAME_BYTES}").tobytes()
    heap = struct.pack("<4sB3xQQQ", b"HEAP", 0, len(texts), 1, address + 32) + texts
    leaves = _leaves(offsets[order], np.asarray(places, np.uint64)[order])
    begin = address + len(heap)
    # a leaf is followed by the key of its last name
    last = np.minimum(np.arange(1, len(leaves) + 1) * _LEAF_ENTRIES, len(names)) - 1
    keys = np.concatenate([np.zeros(1, np.uint64), offsets[order][last]])
    children = begin + np.arange(len(leaves), dtype=np.uint64) * leaves.itemsize
    below = begin + leaves.nbytes
    tree, nodes = _tree(below, 0, keys, children, _GROUP_CHILDREN)
    head = header([(0x11, Hdf5Bytes(struct.pack("<QQ", tree, address))), *attributes])
    data = heap + leaves.tobytes() + nodes
    return RootGroup(address + len(data), tree, address, data + head.data)


class RootGroup(NamedTuple):
    """A root group at its final address.

    Attributes:
      header, tree, heap: Addresses.
      data: All bytes.
    """

    header: int
    tree: int
    heap: int
    data: bytes


def _leaves(offsets: NDArray[np.uint64], places: NDArray[np.uint64]) -> NDArray[Any]:
    """Symbol table nodes of (offset of the name, address of the header)."""
    entry = np.dtype([("name", "<u8"), ("header", "<u8"), ("rest", "V24")])
    leaf = np.dtype(
        [("sign", "S4"), ("version", "<u2"), ("count", "<u2"), ("entries", entry, _LEAF_ENTRIES)]
    )
    count = -(-len(offsets) // _LEAF_ENTRIES)
    leaves = np.zeros(count, leaf)
    leaves["sign"], leaves["version"] = b"SNOD", 1
    leaves["count"] = np.minimum(len(offsets) - np.arange(count) * _LEAF_ENTRIES, _LEAF_ENTRIES)
    for name, values in (("name", offsets), ("header", places)):
        padded = np.zeros(count * _LEAF_ENTRIES, np.uint64)
        padded[: len(values)] = values
        leaves["entries"][name] = padded.reshape(count, _LEAF_ENTRIES)
    return leaves


def _tree(
    address: int, kind: int, keys: NDArray[Any], children: NDArray[np.uint64], most: int
) -> tuple[int, bytes]:
    """Nodes of a B-tree from the lowest level up; returns the root's address and all nodes.

    Args:
      keys: (N + 1,) bounds of the N children.
    """
    found, level = [], 0
    node = np.dtype([("key", keys.dtype), ("child", "<u8")])
    size = 24 + most * node.itemsize + keys.dtype.itemsize
    while True:
        begins = range(0, max(len(children), 1), most)
        places = [address + size * i for i in range(len(begins))]
        for i, begin in enumerate(begins):
            part = children[begin : begin + most]
            pairs = np.zeros(len(part), node)
            pairs["key"], pairs["child"] = keys[begin : begin + len(part)], part
            left = places[i - 1] if i else UNDEFINED
            right = places[i + 1] if i + 1 < len(begins) else UNDEFINED
            head = struct.pack("<4sBBHQQ", b"TREE", kind, level, len(part), left, right)
            last = keys[begin + len(part)].tobytes()
            found.append((head + pairs.tobytes() + last).ljust(size, b"\0"))
        if len(places) == 1:
            return places[0], b"".join(found)
        address += size * len(places)
        keys = keys[[*begins, len(children)]]
        children, level = np.array(places, np.uint64), level + 1


def _up(size: int) -> int:
    return -(-size // 8) * 8


def _padded(data: bytes) -> bytes:
    return data.ljust(_up(len(data)), b"\0")
