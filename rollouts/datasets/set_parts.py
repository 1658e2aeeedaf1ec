# SPDX-License-Identifier: Apache-2.0
"""`Target`: the place of a data set, where parts of whole episodes appear one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from rollouts.datasets.episodes import Episode


class SetPart(Protocol):
    """Episodes on their way to the disk."""

    nbytes: int
    num_episodes: int

    def add(self, episode: Episode) -> None:
        """Adds an episode."""
        ...


OnePart = TypeVar("OnePart", bound=SetPart)


class Target(Protocol[OnePart]):
    """Writes parts. A part that was published is whole on the disk, whatever happens later."""

    path: Path

    def begin(self) -> None:
        """Makes the folder and describes an empty set.

        Raises:
          SpecError: There is a set already. FileError: it cannot be written there.
        """
        ...

    def part(self, first_id: int) -> OnePart:
        """Begins a part whose first episode has this number."""
        ...

    def publish(self, part: OnePart, num_steps: int) -> None:
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
