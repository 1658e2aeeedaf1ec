# SPDX-License-Identifier: Apache-2.0
"""Part files of HDF5 and the file that shows their episodes by links."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollouts.datasets.about import METADATA, About
from rollouts.datasets.hdf5_parts import Hdf5Part, links_to
from rollouts.datasets.set_parts import Part
from rollouts.errors import FileError, SpecError
from rollouts.support.whole_file import replace_whole


class PartFiles:
    """HDF5 files of whole episodes in a folder, and a main file with a link to each episode.

    The main file is replaced after each part, or after several where that would cost more than the
    parts: then `show_all` shows the rest, and `recovered` finds it after a kill.

    Attributes:
      num_episodes, num_steps: Those of all parts.
      num_shown: Episodes that the main file shows.
    """

    def __init__(self, main: Path, parts: Path, about: About, compression: str) -> None:
        """Writes nothing yet."""
        self.num_episodes = self.num_steps = self.num_shown = self.num_shown_steps = 0
        self._main, self._parts, self._about = main, parts, about
        self._compression = compression
        self._hidden: list[tuple[str, range]] = []
        self._shown: bytes | None = None
        self.names: list[str] = []

    def part(self, first_id: int) -> Hdf5Part:
        """See `Target`."""
        return Hdf5Part(first_id, self._compression)

    def publish(self, part: Part, num_steps: int) -> None:
        """See `Target`."""
        name = part_name(len(self.names), ".hdf5")
        write_part(self._parts / name, part)
        self.names.append(name)
        link = name if self._parts == self._main.parent else f"{self._parts.name}/{name}"
        numbers = range(self.num_episodes, self.num_episodes + part.num_episodes)
        self._hidden.append((link, numbers))
        self.num_episodes, self.num_steps = numbers.stop, self.num_steps + num_steps
        if self.num_shown < 256 or self.num_episodes - self.num_shown > self.num_shown // 8:
            # the part is there: what has no room now is shown with the next one, or by `close`
            with contextlib.suppress(FileError):
                self.show_all()

    def show_all(self) -> None:
        """Replaces the main file by one that shows all episodes."""
        shown = links_to(self._hidden, self._shown)
        write_whole(self._main, shown)
        self._shown, self._hidden, self.num_shown = shown, [], self.num_episodes
        self.num_shown_steps = self.num_steps


def part_name(number: int, suffix: str) -> str:
    """The name of a part file."""
    return f"part-{number:06}{suffix}"


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file that is there as a whole, or as it was.

    Raises:
      FileError: There is no room.
    """
    with replace_whole(path, lasting=False) as file:
        file.write(data)


def write_part(path: Path, part: Part) -> None:
    """Writes a part as a file that is there as a whole, or not at all.

    Raises:
      FileError: There is no room.
    """
    with replace_whole(path, lasting=False) as file:
        part.write(file)


def write_metadata(folder: Path, about: About, **more: Any) -> None:
    """Writes the metadata.json of a data set."""
    write_whole(folder / METADATA, json.dumps({**about.to_metadata(), **more}).encode())


def make_folder(folder: Path, what: str) -> None:
    """Makes a folder for a new set, and those above it.

    Raises:
      SpecError: It is there and not empty. FileError: it cannot be made.
    """
    from rollouts.support.whole_file import naming_the_file

    with naming_the_file(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise SpecError(
                f"{what} is there already: choose another name, or remove it first; a recorder "
                "adds to no set"
            )
        folder.mkdir(parents=True, exist_ok=True)


def counts(files: PartFiles) -> Mapping[str, int]:
    """Episodes and steps that are shown."""
    return {"total_episodes": files.num_shown, "total_steps": files.num_shown_steps}
