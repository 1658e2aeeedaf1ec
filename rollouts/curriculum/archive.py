# SPDX-License-Identifier: Apache-2.0
"""An archive of states by cell, from which exploration continues (Ecoffet et al. 2021)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rollouts.checks import whole_number
from rollouts.curriculum.saved import check_names, generator_of, numbers, random_state
from rollouts.errors import SpecError


class StateArchive:
    """The best state of each visited cell; cells with few visits are drawn more often.

    As in Go-Explore, a cell has the weight 1 / sqrt(visits + 1), with the visits that `add` counts.
    """

    def __init__(self, *, max_cells: int = 100_000, seed: int = 0) -> None:
        """Begins without cells.

        Args:
          max_cells: Most cells; when there are as many, no new ones are added.
          seed: Seed of the draws.
        """
        self._max_cells = whole_number("max_cells", max_cells, 1, 2**31 - 1)
        self._random = np.random.default_rng(seed)
        self._place: dict[Hashable, int] = {}
        self._cells: list[Hashable] = []
        self._states: list[bytes] = []
        self._scores: list[float] = []
        self._visits: list[int] = []

    def __len__(self) -> int:
        """The number of cells."""
        return len(self._cells)

    def __contains__(self, cell: Hashable) -> bool:
        """Returns whether a cell was visited."""
        return cell in self._place

    def visits(self, cell: Hashable) -> int:
        """Returns a cell's number of visits; 0: never."""
        return self._visits[self._place[cell]] if cell in self._place else 0

    def add(self, cell: Sequence[Hashable], state: Sequence[bytes], score: ArrayLike = 0.0) -> int:
        """Counts visits of cells (K,), and keeps states (K,) of new cells and of higher scores.

        Args:
          cell: A key that equivalent states share, such as a tuple of rounded numbers.
          state: States of `get_state`.
          score: (K,) or one for all: higher for the better state, such as minus its steps.

        Returns:
          Number of new cells.

        Raises:
          SpecError: Different numbers of cells, states and scores, or a score that is not finite.
        """
        scores = np.asarray(score, np.float64)
        if len(cell) != len(state) or scores.shape not in ((), (len(cell),)):
            raise SpecError(
                f"there are {len(cell)} cells, {len(state)} states and scores of shape "
                f"{scores.shape}, expected as many of each, or one score"
            )
        if not np.isfinite(scores).all():
            raise SpecError(f"score is {scores.tolist()}, expected finite numbers")
        before = len(self)
        for one, saved, value in zip(
            cell, state, np.broadcast_to(scores, len(cell)).tolist(), strict=True
        ):
            place = self._place.get(one)
            if place is None:
                if len(self) >= self._max_cells:
                    continue
                self._place[one] = len(self._cells)
                self._cells.append(one)
                self._states.append(bytes(saved))
                self._scores.append(value)
                self._visits.append(1)
                continue
            self._visits[place] += 1
            if value > self._scores[place]:
                self._states[place], self._scores[place] = bytes(saved), value
        return len(self) - before

    def draw(self, count: int) -> tuple[list[Hashable], list[bytes]]:
        """Draws cells (count,) and their states, with replacement.

        Raises:
          SpecError: The archive is empty.
        """
        size = whole_number("count", count, 0, 2**31 - 1)
        if not self._cells:
            raise SpecError("the archive is empty, expected states: add those of the first steps")
        weight = 1 / np.sqrt(np.array(self._visits) + 1.0)
        chosen = self._random.choice(len(weight), size, p=weight / weight.sum())
        return [self._cells[i] for i in chosen], [self._states[i] for i in chosen]

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for `load_state_dict`: an entry of `Checkpoint.training`.

        Checkpoints can hold cells that are numbers, text and tuples of them.
        """
        return {
            "cells": list(self._cells), "states": list(self._states),
            "scores": np.array(self._scores, np.float64),
            "visits": np.array(self._visits, np.int64), "random": random_state(self._random),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces the cells by those of another archive.

        Raises:
          SpecError: The state is of another kind, or has too many cells.
        """
        check_names(state, self.state_dict())
        cells, states = list(state["cells"]), [bytes(one) for one in state["states"]]
        if len(cells) > self._max_cells or len(states) != len(cells):
            raise SpecError(
                f"state has {len(cells)} cells and {len(states)} states, expected as many of both, "
                f"at most max_cells={self._max_cells}"
            )
        scores = numbers("scores", state["scores"], np.float64, len(cells)).tolist()
        visits = numbers("visits", state["visits"], np.int64, len(cells)).tolist()
        self._random = generator_of(state["random"])
        self._cells, self._states, self._scores, self._visits = cells, states, scores, visits
        self._place = {cell: place for place, cell in enumerate(cells)}
