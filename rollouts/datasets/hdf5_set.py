# SPDX-License-Identifier: Apache-2.0
"""`Hdf5File`: a data set in one HDF5 file."""

from __future__ import annotations

import json
from pathlib import Path

from rollouts.datasets.about import METADATA, About
from rollouts.datasets.growing_hdf5 import GrowingHdf5
from rollouts.datasets.hdf5_episodes import EpisodeList
from rollouts.errors import SpecError
from rollouts.support.whole_file import naming_the_file


class Hdf5File:
    """Episodes in one file, in the layout of Minari's main_data.hdf5.

    Attributes:
      path: The file.
    """

    def __init__(self, path: Path, about: About, compression: str) -> None:
        """Writes nothing yet."""
        self.path = path
        texts = {METADATA: json.dumps(about.to_metadata())}
        self._file = GrowingHdf5(path, compression, texts)

    def begin(self) -> None:
        """See `Target`."""
        if self.path.exists():
            raise SpecError(f"{self.path} is there already: choose another name, or remove it")
        with naming_the_file(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file.begin()

    def part(self, first_id: int) -> EpisodeList:
        """See `Target`."""
        return self._file.part(first_id)

    def publish(self, part: EpisodeList, num_steps: int) -> None:
        """See `Target`."""
        self._file.publish(part, num_steps)

    def close(self) -> None:
        """See `Target`."""
        self._file.close()
