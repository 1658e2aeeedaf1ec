# SPDX-License-Identifier: Apache-2.0
"""Stages of a curriculum, each of which opens when the one before succeeds often enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollouts.checks import whole_number
from rollouts.curriculum.outcomes import read_outcomes
from rollouts.curriculum.saved import check_names, generator_of, numbers, random_state
from rollouts.errors import SpecError


class SuccessStages:
    """Plays the newest stage, and sometimes an older one.

    The score of an episode is its success, 0 to 1. When the last `window` episodes of the newest
    stage have a mean of at least `threshold`, the next stage opens.
    """

    def __init__(
        self,
        num_levels: int,
        *,
        threshold: float = 0.8,
        window: int = 100,
        old_share: float = 0.1,
        seed: int = 0,
    ) -> None:
        """Begins with stage 0.

        Args:
          num_levels: Stages, numbered from 0.
          threshold: Success rate that opens the next stage, above 0, at most 1.
          window: Episodes whose mean counts.
          old_share: Share of episodes of older stages, chosen uniformly, 0 to 1.
          seed: Seed of the draws.

        Raises:
          SpecError: A number is out of range.
        """
        self.num_levels = whole_number("num_levels", num_levels, 1, 2**31 - 1)
        if not 0 < threshold <= 1:
            raise SpecError(f"threshold is {threshold!r}, expected a rate above 0, at most 1")
        if not 0 <= old_share <= 1:
            raise SpecError(f"old_share is {old_share!r}, expected a number from 0 to 1")
        self._threshold, self._old_share = threshold, old_share
        self._random = np.random.default_rng(seed)
        self._recent: deque[float] = deque(maxlen=whole_number("window", window, 1, 2**31 - 1))
        self.stage = 0

    def next(self, count: int) -> NDArray[np.int64]:
        """Draws the stages (count,) of the next episodes."""
        size = whole_number("count", count, 0, 2**31 - 1)
        drawn = np.full(size, self.stage, np.int64)
        if self.stage:
            old = self._random.random(size) < self._old_share
            drawn[old] = self._random.integers(0, self.stage, int(old.sum()))
        return drawn

    def update(self, level: ArrayLike, score: ArrayLike) -> None:
        """Counts the success (K,) of episodes of stages (K,), but only of the newest stage.

        Raises:
          SpecError: No such stage, or a score that is not from 0 to 1.
        """
        levels, scores = read_outcomes(level, score, self.num_levels)
        if ((scores < 0) | (scores > 1)).any():
            raise SpecError(f"score is {scores.tolist()}, expected successes from 0 to 1")
        newest = self.stage
        for number, success in zip(levels, scores, strict=True):
            # an episode begun before the stage opened belongs to an older stage
            if number != newest or newest != self.stage:
                continue
            self._recent.append(float(success))
            is_full = len(self._recent) == self._recent.maxlen
            if is_full and np.mean(self._recent) >= self._threshold - 1e-12:
                self.stage = min(newest + 1, self.num_levels - 1)
                self._recent.clear()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for `load_state_dict`: an entry of `Checkpoint.training`."""
        return {
            "stage": self.stage,
            "recent": list(self._recent),
            "random": random_state(self._random),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from another scheduler's state; of its last successes, at most `window` count.

        Raises:
          SpecError: The state is of another kind, or of a stage that does not exist.
        """
        check_names(state, self.state_dict())
        stage = whole_number("stage", state["stage"], 0, self.num_levels - 1)
        recent = numbers("recent", state["recent"], np.float64, len(state["recent"]))
        self._random = generator_of(state["random"])
        self.stage = stage
        self._recent.clear()
        self._recent.extend(recent.tolist())
