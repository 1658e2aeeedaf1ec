# SPDX-License-Identifier: Apache-2.0
"""`Hdf5Part`: episodes as one HDF5 file in memory, in the layout that Minari reads.

A file is made in memory and written at once, so that no error of a disk meets the HDF5 library,
and no file is ever half written. Each episode is a group:

    episode_7               attributes id, total_steps and stream: seed, stream_id and number of
                            `Start`, then env_id; where the stream is not known env_id alone
      state                 bytes of the saved state that it began with, if asked for
      observations          (T + 1, *obs_shape); of stacked frames a view of `frames`
      frames                (T + S, *frame_shape): each frame once
      actions, rewards, terminations, truncations   (T, ...)
      infos/NAME            (T + 1, ...): row t belongs to step t, the last one is 0
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rollouts.datasets.episodes import Episode
from rollouts.support.extras import needs

with needs("datasets", "a data set in HDF5"):
    import h5py
    from h5py import h5d, h5f, h5g, h5p, h5s, h5t

Array = NDArray[Any]

_GROWTH = 2 << 20  # bytes by which a file in memory grows
_CHUNK_BYTES = 1 << 18  # compressed rows that are read as a whole


class Hdf5Part:
    """Episodes as a file in memory.

    Attributes:
      nbytes: Bytes of the arrays that were added.
      num_episodes: Episodes that were added.
    """

    def __init__(self, first_id: int, compression: str) -> None:
        """Begins an empty file.

        Args:
          first_id: Number of the first episode.
          compression: "auto" (LZF), "gzip" or "none", of frames and other arrays of bytes.
        """
        self.nbytes = self.num_episodes = 0
        self._first_id, self._compression = first_id, compression
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fapl_core(_GROWTH, False)
        access.set_libver_bounds(h5f.LIBVER_V18, h5f.LIBVER_LATEST)
        self._file = h5f.create(b"part", h5f.ACC_EXCL, fapl=access)
        self._types: dict[str, Any] = {}
        self._spaces: dict[tuple[int, ...], Any] = {}

    def add(self, episode: Episode) -> None:
        """Adds an episode."""
        number = self._first_id + self.num_episodes
        group = h5g.create(self._file, f"episode_{number}".encode())
        self._add_frames(group, episode)
        self._add(group, b"actions", episode.action)
        self._add(group, b"rewards", episode.reward)
        self._add(group, b"terminations", episode.terminated)
        self._add(group, b"truncations", episode.truncated)
        # Minari's readers want the group, and as many infos as observations
        infos = h5g.create(group, b"infos")
        for name, rows in episode.infos.items():
            padded = np.concatenate([rows, np.zeros_like(rows[:1])])
            self._add(infos, name.encode(), padded)
        self._attribute(group, b"id", np.array(number))
        self._attribute(group, b"total_steps", np.array(episode.num_steps))
        if episode.start is None:
            self._attribute(group, b"env_id", np.array(episode.env_id))
        else:
            self._attribute(group, b"stream", np.array((*episode.start, episode.env_id), np.uint64))
        if episode.state is not None:
            self._add(group, b"state", np.frombuffer(episode.state, np.uint8))
        self.num_episodes += 1
        self.nbytes += episode.nbytes

    def write(self, file: BinaryIO) -> None:
        """Ends the part and writes it."""
        h5f.flush(self._file)
        image: bytes = self._file.get_file_image()
        self._file.close()
        file.write(image)

    def _add_frames(self, group: Any, episode: Episode) -> None:
        if episode.stack_num == 1:
            self._add(group, b"observations", episode.frames)
            return
        self._add(group, b"frames", episode.frames)
        whole = episode.observation.shape
        space = h5s.create_simple(whole)
        source = h5s.create_simple(episode.frames.shape)
        layout = h5p.create(h5p.DATASET_CREATE)
        path = h5py.h5i.get_name(group) + b"/frames"
        rest = whole[2:]
        for place in range(episode.stack_num):
            count = (whole[0], 1, *rest)
            space.select_hyperslab((0, place, *(0,) * len(rest)), count)
            source.select_hyperslab((place, *(0,) * len(rest)), (whole[0], *rest))
            layout.set_virtual(space, b".", path, source)
        space.select_all()
        h5d.create(group, b"observations", self._type(episode.frames), space, layout)

    def _add(self, group: Any, name: bytes, array: Array) -> None:
        array = np.ascontiguousarray(array)
        layout = None
        if self._compression != "none" and array.dtype.itemsize == 1 and array.ndim > 1:
            layout = h5p.create(h5p.DATASET_CREATE)
            rows = max(1, min(len(array), _CHUNK_BYTES // max(1, array[0].nbytes)))
            layout.set_chunk((rows, *array.shape[1:]))
            if self._compression == "gzip":
                layout.set_deflate(1)
            else:
                layout.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
        kind = self._type(array)
        space = self._space(array.shape)
        made = h5d.create(group, name, kind, space, layout)
        made.write(h5s.ALL, h5s.ALL, array, kind)

    def _attribute(self, group: Any, name: bytes, value: Array) -> None:
        kind = self._type(value)
        made = h5py.h5a.create(group, name, kind, self._space(value.shape))
        made.write(value, kind)

    def _space(self, shape: tuple[int, ...]) -> Any:
        found = self._spaces.get(shape)
        if found is None:
            # as many as there are lengths of episodes
            if len(self._spaces) > 64:
                self._spaces.clear()
            found = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
            self._spaces[shape] = found
        return found

    def _type(self, array: Array) -> Any:
        found = self._types.get(array.dtype.str)
        if found is None:
            found = self._types[array.dtype.str] = h5t.py_create(array.dtype, logical=True)
        return found


def links_to(parts: Iterable[tuple[str, range]], before: bytes | None) -> bytes:
    """Returns an HDF5 file that shows the episodes of part files, by links.

    Args:
      parts: (name of the file, numbers of its episodes) of parts to add.
      before: The file that had those before; None: there were none.
    """
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_core(1 << 16, False)
    if before is None:
        file = h5f.create(b"links", h5f.ACC_EXCL, fapl=access)
    else:
        access.set_file_image(before)
        file = h5f.open(b"links", h5f.ACC_RDWR, fapl=access)
    for name, numbers in parts:
        for number in numbers:
            episode = f"episode_{number}".encode()
            file.links.create_external(episode, name.encode(), b"/" + episode)
    h5f.flush(file)
    image: bytes = file.get_file_image()
    file.close()
    return image
