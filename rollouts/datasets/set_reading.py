# SPDX-License-Identifier: Apache-2.0
"""`open_set`: opens a data set of this library or of Minari as episodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from rollouts.datasets.about import METADATA, About
from rollouts.datasets.episodes import Episode
from rollouts.datasets.targets import MINARI
from rollouts.errors import SpecError
from rollouts.support.plain_values import plain_path

_EXPECTED = "FILE.hdf5, FOLDER.parquet, a file of Parquet, a Minari folder, or minari:NAME-v0"


class DataSet(Protocol):
    """Whole episodes on a disk, read one after the other.

    Attributes:
      about: Spaces, environment and options.
      num_episodes, num_steps: Total numbers.
    """

    about: About
    num_episodes: int
    num_steps: int

    def __iter__(self) -> Iterator[Episode]:
        """Reads the episodes.

        Raises:
          SpecError: A file is truncated, damaged or foreign; the message names it.
        """
        ...


def open_set(path: str | os.PathLike[str], **options: Any) -> DataSet:
    """Opens a data set.

    Args:
      path: minari:NAME-v0, a folder with Minari's metadata.json, FILE.hdf5, or FOLDER.parquet or a
        file of Parquet.
      options: Keywords for sets in Parquet: see `rollouts.datasets.parquet_reading.open_parquet`.

    Raises:
      SpecError: There is no such set, or it is of another kind. EngineError: A library is missing.
    """
    name = plain_path("path", path, _EXPECTED)
    if name.startswith(MINARI):
        from rollouts.datasets.minari_set import minari_folder

        folder = minari_folder(name.removeprefix(MINARI))
        if not folder.is_dir():
            raise SpecError(
                f"there is no Minari data set {name.removeprefix(MINARI)} here ({folder}): "
                "download it with minari.download_dataset, or set MINARI_DATASETS_PATH"
            )
        return open_folder(folder)
    where = Path(name)
    if not where.exists():
        raise SpecError(f"there is no data set {name}, expected {_EXPECTED}")
    if where.is_dir() and (where / "data" / METADATA).exists():
        where = where / "data"
    is_minari = where.is_dir() and not any(where.glob("*.parquet"))
    if where.suffix in (".hdf5", ".h5") or is_minari:
        from rollouts.datasets.hdf5_reading import open_hdf5

        return open_folder(where) if where.is_dir() else open_hdf5(where)
    from rollouts.datasets.parquet_reading import open_parquet

    return open_parquet(where, **options)


def open_folder(folder: Path) -> DataSet:
    """Opens a folder with Minari's metadata.json, in any of Minari's formats."""
    from rollouts.datasets.about import read_metadata

    found, about = read_metadata(folder)
    if found.get("data_format", "hdf5") == "hdf5":
        from rollouts.datasets.hdf5_reading import Hdf5Set

        return Hdf5Set(folder / "main_data.hdf5", about, found)
    from rollouts.datasets.minari_reading import MinariEpisodes

    return MinariEpisodes(folder, about)
