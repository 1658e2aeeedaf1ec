# SPDX-License-Identifier: Apache-2.0
"""`MinariSet`: a data set in the folder where `minari.load_dataset` looks."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from pathlib import Path

from rollouts.datasets.about import About
from rollouts.datasets.growing_hdf5 import GrowingHdf5
from rollouts.datasets.hdf5_episodes import EpisodeList
from rollouts.datasets.part_files import make_folder, write_metadata
from rollouts.errors import FileError

MAIN = "main_data.hdf5"
# a release whose readers support everything that is written here
_VERSION = "0.5.4"


def minari_folder(id: str) -> Path:
    """The folder of one of Minari's data sets, by its id; it need not exist."""
    root = os.environ.get("MINARI_DATASETS_PATH")
    return Path(root or Path.home() / ".minari" / "datasets") / id / "data"


class MinariSet:
    """A folder in Minari's layout: metadata.json, and a file of episodes.

    It can be read while it is written, also by `minari.load_dataset`, and then has whole episodes
    only. Minari need not be installed.

    Attributes:
      path: The folder with metadata.json.
      id: The name of the set in Minari.
    """

    def __init__(self, id: str, about: About, compression: str) -> None:
        """Writes nothing yet."""
        self.id, self.path, self._about = id, minari_folder(id), about
        self._file = GrowingHdf5(self.path / MAIN, compression)

    def begin(self) -> None:
        """See `Target`."""
        make_folder(self.path, f"the Minari data set {self.id} ({self.path})")
        self._file.begin()
        self._describe()

    def part(self, first_id: int) -> EpisodeList:
        """See `Target`."""
        return self._file.part(first_id)

    def publish(self, part: EpisodeList, num_steps: int) -> None:
        """See `Target`."""
        before = self._file.num_shown
        self._file.publish(part, num_steps)
        if self._file.num_shown > before:
            # on a full disk metadata.json counts too few episodes, which is still valid
            with contextlib.suppress(FileError):
                self._describe()

    def close(self) -> None:
        """See `Target`."""
        self._file.close()
        self._describe()

    def _describe(self) -> None:
        """Writes metadata.json, after the episodes that it counts."""
        try:
            version = importlib.metadata.version("minari")
        except importlib.metadata.PackageNotFoundError:
            version = _VERSION
        megabytes = (self.path / MAIN).stat().st_size / 1e6
        write_metadata(
            self.path, self._about, total_episodes=self._file.num_shown,
            total_steps=self._file.num_shown_steps, dataset_id=self.id, data_format="hdf5",
            minari_version=version, dataset_size=round(megabytes, 1),
        )  # fmt: skip
