# SPDX-License-Identifier: Apache-2.0
"""Prioritised level replay: levels with high scores are played again (Jiang et al. 2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollouts.checks import whole_number
from rollouts.curriculum.outcomes import read_outcomes
from rollouts.curriculum.saved import check_names, generator_of, numbers, random_state
from rollouts.errors import SpecError

Array = NDArray[Any]


class LevelReplay:
    """Draws levels by rank of their scores and by the time since they were played.

    With the probability that is the share of levels not played yet, one of these is drawn
    uniformly. Else level i, among those that were played, has the probability

      (1 - staleness) * rank_i^(-1/temperature) / sum + staleness * (count - played_i) / sum

    Rank 1 is the highest score, and `count - played_i` the number of levels begun since level i was
    begun. In the paper, the score of an episode is the mean of |advantage|.
    """

    def __init__(
        self, num_levels: int, *, temperature: float = 0.1, staleness: float = 0.1, seed: int = 0
    ) -> None:
        """Begins with no level played.

        Args:
          num_levels: Levels, numbered from 0.
          temperature: Above 0; the lower, the more often the highest scores are played.
          staleness: Share of draws by age, 0 to 1.
          seed: Seed of the draws.

        Raises:
          SpecError: A number is out of range.
        """
        self.num_levels = whole_number("num_levels", num_levels, 1, 2**31 - 1)
        if not 0 < temperature < math.inf:
            raise SpecError(f"temperature is {temperature!r}, expected a finite number above 0")
        if not 0 <= staleness <= 1:
            raise SpecError(f"staleness is {staleness!r}, expected a number from 0 to 1")
        self._temperature, self._staleness = temperature, staleness
        self._random = np.random.default_rng(seed)
        self.score = np.zeros(num_levels)
        self._is_scored = np.zeros(num_levels, np.bool_)
        self._is_begun = np.zeros(num_levels, np.bool_)
        self._begun_at = np.zeros(num_levels, np.int64)  # number of levels begun before
        self._count = 0

    def next(self, count: int) -> NDArray[np.int64]:
        """Draws the levels (count,) of the next episodes."""
        drawn = np.zeros(whole_number("count", count, 0, 2**31 - 1), np.int64)
        for place in range(count):
            drawn[place] = level = self._draw()
            self._is_begun[level] = True
            self._begun_at[level] = self._count
            self._count += 1
        return drawn

    def update(self, level: ArrayLike, score: ArrayLike) -> None:
        """Sets scores (K,) of played levels (K,); of a repeated level the last one counts.

        Raises:
          SpecError: No such level, or a score that is not finite.
        """
        for number, value in zip(*read_outcomes(level, score, self.num_levels), strict=True):
            self.score[number] = value
            self._is_scored[number] = self._is_begun[number] = True

    def probabilities(self) -> NDArray[np.float64]:
        """Returns the probability (num_levels,) of each level to be the next."""
        unseen = ~self._is_begun
        new = unseen / max(1, unseen.sum())
        played = np.flatnonzero(self._is_scored)
        if not len(played):
            # no level has a rank yet
            return new if unseen.any() else np.full(self.num_levels, 1 / self.num_levels)
        replayed = np.zeros(self.num_levels)
        # equal scores in the order of their numbers
        order = np.argsort(-self.score[played], kind="stable")
        rank = np.empty(len(played))
        rank[order] = np.arange(1, len(played) + 1)
        # computed as logarithms, because powers with low temperatures overflow
        by_score = np.exp(-np.log(rank) / self._temperature)
        age = (self._count - self._begun_at[played]).astype(np.float64)
        by_age = age / age.sum() if age.sum() else np.full(len(played), 1 / len(played))
        share = self._staleness
        replayed[played] = (1 - share) * by_score / by_score.sum() + share * by_age
        share_new = float(unseen.mean())
        chosen: NDArray[np.float64] = share_new * new + (1 - share_new) * replayed
        return chosen

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for `load_state_dict`: an entry of `Checkpoint.training`."""
        return {
            "score": self.score.copy(), "is_scored": self._is_scored.copy(),
            "is_begun": self._is_begun.copy(), "begun_at": self._begun_at.copy(),
            "count": self._count, "random": random_state(self._random),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from the state of another scheduler with the same number of levels.

        Raises:
          SpecError: The state is of another kind, or of another number of levels.
        """
        check_names(state, self.state_dict())
        flags = [numbers(n, state[n], np.bool_, self.num_levels) for n in ("is_scored", "is_begun")]
        score = numbers("score", state["score"], np.float64, self.num_levels)
        begun_at = numbers("begun_at", state["begun_at"], np.int64, self.num_levels)
        count = whole_number("count", state["count"], 0, 2**62)
        self._random = generator_of(state["random"])
        self._is_scored, self._is_begun = flags
        self.score, self._begun_at, self._count = score, begun_at, count

    def _draw(self) -> int:
        weights = np.cumsum(self.probabilities())
        at = np.searchsorted(weights, self._random.random() * weights[-1], side="right")
        return int(min(at, self.num_levels - 1))
