# SPDX-License-Identifier: Apache-2.0
"""`GrowingHdf5`: an HDF5 file that can be read at any time, with whole episodes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rollouts.datasets import hdf5_bytes as pieces
from rollouts.datasets.hdf5_episodes import EpisodeBytes, EpisodeList, datatype_of, write_all
from rollouts.errors import FileError
from rollouts.support.extras import needs
from rollouts.support.whole_file import naming_the_file

with needs("datasets", "a data set in HDF5"):
    from h5py import string_dtype

_SUPERBLOCK_BYTES = 96
_INDEX_BYTES = 64  # bytes of an episode in the list of episodes
_LEAST_SHARE = 4  # bytes of episodes for each byte of a new list


class GrowingHdf5:
    """A file to which parts are appended.

    A group that lists all episodes so far is written after a part's episodes. The first bytes of
    the file, which hold that group's address, change last: if the process is killed, the earlier
    list stays. If a list would take more than a quarter of the bytes since the last one, it is
    written after a later part.

    Attributes:
      num_episodes, num_steps: Numbers in all parts.
      num_shown, num_shown_steps: Numbers that readers find.
    """

    def __init__(self, path: Path, compression: str, texts: dict[str, str] | None = None) -> None:
        """Writes nothing yet.

        Args:
          path: The file.
          compression: Method for arrays of bytes, see `rollouts.Recorder`.
          texts: Attributes of the file by name.
        """
        self.num_episodes = self.num_steps = self.num_shown = self.num_shown_steps = 0
        self._path, self._writer = path, EpisodeBytes(compression)
        self._texts = texts or {}
        self._attributes: list[tuple[int, pieces.Hdf5Bytes]] = []
        self._descriptor = -1
        self._end = _SUPERBLOCK_BYTES
        self._unshown_bytes = 0
        self._names: list[bytes] = []
        self._places: list[int] = []

    def begin(self) -> None:
        """Makes the file, without episodes.

        Raises:
          FileError: It exists already, or cannot be made.
        """
        with naming_the_file(self._path):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        with self._appending():
            for name, text in self._texts.items():
                data = text.encode()
                made = pieces.text_attribute(name, _text_type(), len(data), self._end)
                self._attributes.append(made)
                heap = pieces.heap_of(data)
                write_all(self._descriptor, [heap])
                self._end += len(heap)
        self.show_all()

    def part(self, first_id: int) -> EpisodeList:
        """See `Target`."""
        return EpisodeList(first_id, self._writer)

    def publish(self, part: EpisodeList, num_steps: int) -> None:
        """See `Target`."""
        with self._appending():
            places, end = part.append_to(self._descriptor, self._end)
        self._unshown_bytes += end - self._end
        self._end = end
        self._places += places
        numbers = range(self.num_episodes, self.num_episodes + part.num_episodes)
        self._names += [b"episode_%d" % number for number in numbers]
        self.num_episodes, self.num_steps = numbers.stop, self.num_steps + num_steps
        if self._unshown_bytes >= _LEAST_SHARE * _INDEX_BYTES * self.num_episodes:
            # the part is written: if the list does not fit now, the next part or `close` writes it
            with contextlib.suppress(FileError):
                self.show_all()

    def show_all(self) -> None:
        """Writes the list of all episodes, and then its address.

        Raises:
          FileError: The disk is full; the earlier list stays.
        """
        names = np.array(self._names, "S23")
        root = pieces.root_group(self._end, names, self._places, self._attributes)
        with self._appending():
            write_all(self._descriptor, [root.data])
            self._end += len(root.data)
            first = pieces.superblock(self._end, root.header, root.tree, root.heap)
            os.pwrite(self._descriptor, first, 0)
        self.num_shown, self.num_shown_steps = self.num_episodes, self.num_steps
        self._unshown_bytes = 0

    def close(self) -> None:
        """Shows all episodes; the file is not written to again.

        Raises:
          FileError: As `show_all`.
        """
        try:
            if self.num_shown < self.num_episodes:
                self.show_all()
        finally:
            os.close(self._descriptor)

    @contextlib.contextmanager
    def _appending(self) -> Iterator[None]:
        """Moves to the end of the file, and cuts the file there again if the disk is full."""
        end = self._end
        with naming_the_file(self._path):
            try:
                os.lseek(self._descriptor, end, os.SEEK_SET)
                yield
            except OSError:
                self._end = end
                os.ftruncate(self._descriptor, end)
                raise


def _text_type() -> bytes:
    """The datatype of texts of any length, which a file keeps in 16 bytes each."""
    found = datatype_of(string_dtype())
    return found[:4] + (16).to_bytes(4, "little") + found[8:]
