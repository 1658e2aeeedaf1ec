# SPDX-License-Identifier: Apache-2.0
"""`Target`: the place of a data set, to which parts of whole episodes are added in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from rollouts.datasets.episodes import Episode


class SetPart(Protocol):
    """Episodes that will be written together."""

    nbytes: int
    num_episodes: int

    def add(self, episode: Episode) -> None:
        """Adds an episode."""
        ...


OnePart = TypeVar("OnePart", bound=SetPart)


class Target(Protocol[OnePart]):
    """A writer of parts. A published part is complete on the disk, whatever happens later."""

    path: Path

    def begin(self) -> None:
        """Makes the folder and describes an empty set.

        Raises:
          SpecError: The set exists already. FileError: It cannot be written there.
        """
        ...

    def part(self, first_id: int) -> OnePart:
        """Begins a part whose first episode has this number."""
        ...

    def publish(self, part: OnePart, num_steps: int) -> None:
        """Writes a part; `num_steps` is the number of steps of its episodes.

        Raises:
          FileError: The disk is full; the set is as it was.
        """
        ...

    def close(self) -> None:
        """Completes the set for its readers.

        Raises: FileError: The disk is full; all parts stay and can be read.
        """
        ...
