# SPDX-License-Identifier: Apache-2.0
"""Folders of data sets, their parts and their descriptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from rollouts.datasets.about import METADATA, About
from rollouts.errors import SpecError
from rollouts.support.whole_file import naming_the_file, replace_whole


class WritesItself(Protocol):
    """A part that becomes a file of its own."""

    def write(self, file: BinaryIO) -> None:
        """Writes the whole file."""
        ...


def part_name(number: int, suffix: str) -> str:
    """The name of a part file."""
    return f"part-{number:06}{suffix}"


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file completely; after an error it is as it was before.

    Raises: FileError: The disk is full.
    """
    with replace_whole(path, lasting=False) as file:
        file.write(data)


def write_part(path: Path, part: WritesItself) -> None:
    """Writes a part as a complete file; after an error there is no such file.

    Raises: FileError: The disk is full.
    """
    with replace_whole(path, lasting=False) as file:
        part.write(file)


def write_metadata(folder: Path, about: About, **more: Any) -> None:
    """Writes the metadata.json of a data set."""
    write_whole(folder / METADATA, json.dumps({**about.to_metadata(), **more}).encode())


def make_folder(folder: Path, what: str) -> None:
    """Makes a folder for a new set, and its parent folders.

    Raises:
      SpecError: It exists and is not empty. FileError: It cannot be made.
    """
    with naming_the_file(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise SpecError(
                f"{what} is there already: choose another name, or remove it first; a recorder "
                "adds to no set"
            )
        folder.mkdir(parents=True, exist_ok=True)
