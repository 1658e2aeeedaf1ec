# SPDX-License-Identifier: Apache-2.0
"""`Hdf5File`: a data set in one HDF5 file."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from rollouts.datasets.about import METADATA, About
from rollouts.datasets.hdf5_parts import Hdf5Part
from rollouts.datasets.part_files import PartFiles, make_folder, write_metadata
from rollouts.datasets.set_parts import Part
from rollouts.errors import FileError, SpecError
from rollouts.support.extras import needs
from rollouts.support.whole_file import naming_the_file

with needs("datasets", "a data set in HDF5"):
    import h5py


class Hdf5File:
    """Episodes in one file, in the layout of Minari's main_data.hdf5.

    Until `close` the file shows the episodes of part files in a folder beside it, FILE.hdf5.parts,
    and can be read with that folder. `close` puts all into the file and removes the folder.

    Attributes:
      path: The file.
    """

    def __init__(self, path: Path, about: About, compression: str) -> None:
        """Writes nothing yet."""
        self.path, self._about = path, about
        self._parts = path.with_name(f"{path.name}.parts")
        self._files = PartFiles(path, self._parts, about, compression)

    def begin(self) -> None:
        """See `Target`."""
        if self.path.exists():
            raise SpecError(f"{self.path} is there already: choose another name, or remove it")
        make_folder(self._parts, os.fspath(self._parts))
        write_metadata(self._parts, self._about)
        self._files.show_all()

    def part(self, first_id: int) -> Hdf5Part:
        """See `Target`."""
        return self._files.part(first_id)

    def publish(self, part: Part, num_steps: int) -> None:
        """See `Target`."""
        self._files.publish(part, num_steps)

    def close(self) -> None:
        """See `Target`."""
        self._files.show_all()
        merge_parts(self.path)


def merge_parts(path: Path) -> None:
    """Puts the episodes of FILE.hdf5.parts into FILE.hdf5, also those that a kill left there.

    Raises:
      FileError: There is no room; the parts are as they were.
    """
    parts = path.with_name(f"{path.name}.parts")
    whole = parts / "whole.writing"
    about = json.loads((parts / METADATA).read_text())
    with naming_the_file(path):
        try:
            with h5py.File(whole, "w", libver=("v108", "latest")) as file:
                number = 0
                for name in sorted(parts.glob("part-*.hdf5")):
                    with h5py.File(name, "r") as part:
                        for episode in range(number, number + len(part)):
                            h5py.h5o.copy(part.id, f"episode_{episode}".encode(), file.id,
                                          f"episode_{episode}".encode())  # fmt: skip
                        number += len(part)
                file.attrs[METADATA] = json.dumps(about)
        except (OSError, RuntimeError) as error:
            whole.unlink(missing_ok=True)
            raise FileError(
                f"{path} cannot be completed ({error}): its episodes stay in {parts}; make room "
                "and call rollouts.datasets.hdf5_set.merge_parts"
            ) from error
        os.replace(whole, path)
        shutil.rmtree(parts)
