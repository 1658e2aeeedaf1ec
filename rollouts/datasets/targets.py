# SPDX-License-Identifier: Apache-2.0
"""`Target`: the place of a data set, where parts of whole episodes appear one after the other."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Protocol

from rollouts.datasets.about import About
from rollouts.datasets.episodes import Episode
from rollouts.errors import SpecError

MINARI = "minari:"
_MINARI_ID = re.compile(r"(?:[-_\w][-_\w/]*[-_\w]+/)?[-_\w]+?-v\d+")


class Part(Protocol):
    """Episodes on their way to the disk."""

    nbytes: int
    num_episodes: int

    def add(self, episode: Episode) -> None:
        """Adds an episode."""
        ...

    def image(self) -> Any:
        """Ends the part and returns the bytes of its file."""
        ...


class Target(Protocol):
    """Writes parts. A part that was published is whole on the disk, whatever happens later."""

    path: Path

    def begin(self) -> None:
        """Makes the folder and describes an empty set.

        Raises:
          SpecError: There is a set already. FileError: it cannot be written there.
        """
        ...

    def part(self, first_id: int) -> Part:
        """Begins a part whose first episode has this number."""
        ...

    def publish(self, part: Part, num_steps: int) -> None:
        """Writes a part; `num_steps` are those of its episodes.

        Raises:
          FileError: There is no room: the set is as it was.
        """
        ...

    def close(self) -> None:
        """Makes the set what its readers expect it to be.

        Raises:
          FileError: There is no room: all parts stay and can be read.
        """
        ...


def make_target(to: str | os.PathLike[str], about: About, compression: str) -> Target:
    """Chooses the target by the name that it was given; of agents each group has its own.

    Raises:
      SpecError: The name has another ending. EngineError: A library is missing.
    """
    name = os.fspath(to)
    if name.startswith(MINARI):
        from rollouts.datasets.minari_set import MinariSet

        return MinariSet(_minari_id(name.removeprefix(MINARI), about.group), about, compression)
    path = Path(name)
    group = about.group
    match path.suffix:
        case ".hdf5" | ".h5":
            from rollouts.datasets.hdf5_set import Hdf5File

            path = path.with_name(f"{path.stem}-{group}{path.suffix}") if group else path
            return Hdf5File(path, about, compression)
        case ".parquet":
            from rollouts.datasets.parquet_set import ParquetSet

            return ParquetSet(path / group if group else path, about, compression)
    raise SpecError(
        f"to is {name!r}, expected minari:NAME-v0 (such as minari:cheetah/random-v0), "
        "FOLDER.parquet or FILE.hdf5"
    )


def _minari_id(name: str, group: str) -> str:
    if not _MINARI_ID.fullmatch(name):
        raise SpecError(
            f"the Minari id is {name!r}, expected NAME-v0 or NAMESPACE/NAME-v0, such as "
            "minari:cheetah/random-v0"
        )
    if not group:
        return name
    base, _, version = name.rpartition("-v")
    return f"{base}/{group}-v{version}"
