# SPDX-License-Identifier: Apache-2.0
"""`EpisodeList`: episodes as bytes to append to an HDF5 file, in the layout that Minari reads.

Each episode is a group:

    episode_7               attributes id, total_steps and stream: seed, stream_id and number of
                            `Start`, then env_id; or only env_id if the stream is not known
      state                 bytes of the saved state at its start, if requested
      observations          (T + 1, *obs_shape); for stacked frames a view of `frames`
      frames                (T + S, *frame_shape): each frame once
      actions, rewards, terminations, truncations   (T, ...)
      infos/NAME            (T + 1, ...): row t belongs to step t, the last one is 0
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rollouts.datasets import hdf5_bytes as pieces
from rollouts.datasets.episodes import Episode
from rollouts.datasets.hdf5_chunks import Compressor, stacks_of
from rollouts.support.extras import needs

with needs("datasets", "a data set in HDF5"):
    from h5py import h5t

Array = NDArray[Any]

_MOST_BUFFERS = 512  # buffers in one system call
_INFOS = "infos/"
_PADS = [bytes(count) for count in range(8)]


class EpisodeList:
    """Episodes on their way to the disk; see `rollouts.datasets.set_parts.Part`."""

    def __init__(self, first_id: int, writer: EpisodeBytes) -> None:
        """Begins without episodes."""
        self.nbytes = self.num_episodes = 0
        self._first_id, self._writer = first_id, writer
        self._episodes: list[Episode] = []

    def add(self, episode: Episode) -> None:
        """Adds an episode."""
        self._episodes.append(episode)
        self.num_episodes += 1
        self.nbytes += episode.nbytes

    def append_to(self, descriptor: int, end: int) -> tuple[list[int], int]:
        """Appends the episodes to a file.

        Returns:
          (addresses of their headers, the new end of the file).

        Raises:
          OSError: The disk is full.
        """
        buffers: list[Any] = []
        places = []
        for number, episode in enumerate(self._episodes, self._first_id):
            place, end = self._writer.append(number, episode, end, buffers)
            places.append(place)
        write_all(descriptor, buffers)
        return places, end


class EpisodeBytes:
    """Makes the bytes of episodes; keeps the headers of the last layout."""

    def __init__(self, compression: str) -> None:
        """Takes the method for arrays of bytes, see `rollouts.Recorder`."""
        self._compressor = Compressor(compression)
        self._headers: dict[Any, _Headers] = {}

    def append(
        self, number: int, episode: Episode, end: int, buffers: list[Any]
    ) -> tuple[int, int]:
        """Appends an episode's bytes.

        Args:
          number: Its number in the set.
          end: Address of the first byte, a multiple of 8.
          buffers: The list to which they are appended.

        Returns:
          (the address of its header, the address after it).
        """
        arrays = dict(_arrays(episode))
        chunks = {name: self._compressor.chunk_of(array) for name, array in arrays.items()}
        values = {"id.0": number, "total_steps.0": episode.num_steps}
        stream = (episode.env_id,) if episode.start is None else (*episode.start, episode.env_id)
        values |= {f"stream.{i}": value for i, value in enumerate(stream)}
        for name, array in arrays.items():
            values[f"{name}.rows"] = len(array)
            if chunks[name]:
                place, end = self._append_chunks(array, chunks[name], end, buffers)
            else:
                place, end = end, _append(np.ascontiguousarray(array), end, buffers)
                values[f"{name}.size"] = array.nbytes
            values[f"{name}.address"] = place if array.nbytes else pieces.UNDEFINED
        if episode.stack_num > 1:
            shape = episode.observation.shape
            heap = pieces.heap_of(stacks_of(f"/episode_{number}/frames", shape))
            values |= {"observations.rows": shape[0], "observations.address": end}
            end = _append(heap, end, buffers)
        headers = self._headers_of(arrays, chunks, episode)
        return end, _append(headers.at(end, values), end, buffers)

    def _append_chunks(
        self, array: Array, chunk: Sequence[int], end: int, buffers: list[Any]
    ) -> tuple[int, int]:
        """Appends an array in chunks; returns the address of their tree, and that after it."""
        found = []
        for data in self._compressor.compressed(array, chunk):
            found.append((len(data), end))
            end = _append(data, end, buffers)
        tree, nodes = pieces.chunk_tree(end, found, chunk[0], array.ndim)
        return tree, _append(nodes, end, buffers)

    def _headers_of(
        self, arrays: Mapping[str, Array], chunks: Mapping[str, Sequence[int]], episode: Episode
    ) -> _Headers:
        rows = [(name, each.dtype.str, each.shape[1:]) for name, each in arrays.items()]
        layout = (*rows, *chunks.values(), episode.stack_num, episode.start is None)
        if layout not in self._headers:
            self._headers[layout] = self._make_headers(arrays, chunks, episode)
        return self._headers[layout]

    def _make_headers(
        self, arrays: Mapping[str, Array], chunks: Mapping[str, Sequence[int]], episode: Episode
    ) -> _Headers:
        found = {}
        for name, array in arrays.items():
            layout = [pieces.contiguous(name)]
            if chunk := chunks[name]:
                layout = [
                    self._compressor.filter(),
                    pieces.chunked(name, chunk, array.dtype.itemsize),
                ]
            rows = pieces.dataspace(array.shape, f"{name}.rows")
            found[name] = pieces.dataset(rows, datatype_of(array.dtype), layout)
        if episode.stack_num > 1:
            rows = pieces.dataspace(episode.observation.shape, "observations.rows")
            kind = datatype_of(episode.frames.dtype)
            found["observations"] = pieces.dataset(rows, kind, [pieces.virtual("observations")])
        # Minari's readers need the group of infos, even if it is empty
        infos = {name.removeprefix(_INFOS): name for name in found if name.startswith(_INFOS)}
        links = {name: name for name in found if not name.startswith(_INFOS)}
        number, unsigned = datatype_of(np.int64), datatype_of(np.uint64)
        attributes = [
            pieces.attribute("id", number, (), "id"),
            pieces.attribute("total_steps", number, (), "total_steps"),
            pieces.attribute("env_id", number, (), "stream")
            if episode.start is None
            else pieces.attribute("stream", unsigned, (4,), "stream"),
        ]
        group = pieces.group({**links, "infos": "infos"}, attributes)
        return _Headers.of({"": group, "infos": pieces.group(infos), **found})


class _Headers(NamedTuple):
    """Consecutive headers, the episode's own first.

    Attributes:
      data: Their bytes.
      inner: (place of an address, its value relative to the first byte).
      holes: Holes for the numbers of the episode.
    """

    data: bytes
    inner: tuple[tuple[int, int], ...]
    holes: tuple[pieces.Hole, ...]

    @classmethod
    def of(cls, named: Mapping[str, pieces.Hdf5Bytes]) -> _Headers:
        """Joins headers, whose holes are named after other headers or after numbers."""
        data, places, holes = b"", {}, []
        for name, piece in named.items():
            places[name] = len(data)
            holes += [pieces.Hole(len(data) + offset, key) for offset, key in piece.holes]
            data += piece.data
        inner = tuple((one.offset, places[one.key]) for one in holes if one.key in places)
        return cls(data, inner, tuple(one for one in holes if one.key not in places))

    def at(self, address: int, values: Mapping[str, int]) -> bytearray:
        """Returns the bytes for an address and the numbers of an episode."""
        found = bytearray(self.data)
        for offset, target in self.inner:
            struct.pack_into("<Q", found, offset, address + target)
        for offset, key in self.holes:
            struct.pack_into("<Q", found, offset, values[key])
        return found


def write_all(descriptor: int, buffers: Sequence[Any]) -> None:
    """Writes buffers one after the other at the file's position.

    Raises:
      OSError: The disk is full.
    """
    for begin in range(0, len(buffers), _MOST_BUFFERS):
        part = buffers[begin : begin + _MOST_BUFFERS]
        written = os.writev(descriptor, part)
        if written < sum(memoryview(one).nbytes for one in part):
            # when asked to write the rest, the system reports why it took less
            left = memoryview(b"".join(bytes(one) for one in part))[written:]
            while left:
                left = left[os.write(descriptor, left) :]


def datatype_of(dtype: DTypeLike) -> bytes:
    """The message of a datatype, as the HDF5 library writes it."""
    encoded: bytes = h5t.py_create(np.dtype(dtype), logical=True).encode()
    return encoded[2:]


def _arrays(episode: Episode) -> Iterator[tuple[str, Array]]:
    yield "observations" if episode.stack_num == 1 else "frames", episode.frames
    yield "actions", episode.action
    yield "rewards", episode.reward
    yield "terminations", episode.terminated
    yield "truncations", episode.truncated
    for name, rows in episode.infos.items():
        # Minari's readers expect as many infos as observations
        yield _INFOS + name, np.concatenate([rows, np.zeros_like(rows[:1])])
    if episode.state is not None:
        yield "state", np.frombuffer(episode.state, np.uint8)


def _append(data: Any, end: int, buffers: list[Any]) -> int:
    """Appends bytes and padding to a multiple of 8; returns the address after them."""
    size = memoryview(data).nbytes
    if size:
        buffers.append(data)
    if size % 8:
        buffers.append(_PADS[8 - size % 8])
    return end + size + -size % 8
