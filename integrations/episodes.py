# SPDX-License-Identifier: Apache-2.0
"""Whole games' returns and lengths, as the Monitor of an adapter's library would report them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.batch import StepBatch
from rollouts.vector_env import VectorEnv

Array = NDArray[Any]
# of one game: {"r": return, "l": length in steps, "t": seconds since the statistics began}
Episode = dict[str, float]


class EpisodeStatistics:
    """Turns the pool's own counts into one record per game.

    Where a lost life ends an episode (Atari's episodic_life and life_loss_info) the records are of
    whole games, as those of a monitor that sits inside such a wrapper; elsewhere an episode is a
    game.
    """

    def __init__(self, env: VectorEnv) -> None:
        self._start_s = time.time()
        self._by_life = np.zeros(env.num_envs, np.bool_)
        options = env.env_options
        for name in ("episodic_life", "life_loss_info"):
            # an array of None and bool in a mixed pool where some environments have no lives
            self._by_life |= np.broadcast_to(
                np.asarray(options.get(name, False)) == True,  # noqa: E712
                env.num_envs,
            )
        self._any_by_life = bool(self._by_life.any())
        self.reset()

    def reset(self) -> None:
        """Every environment's next step is the first of a game."""
        self._returns = np.zeros(len(self._by_life), np.float64)
        self._lengths = np.zeros(len(self._by_life), np.int64)

    def seconds(self) -> float:
        """Since the statistics began."""
        return round(time.time() - self._start_s, 6)

    def ended(self, step: StepBatch, rows: NDArray[np.intp]) -> dict[int, Episode]:
        """Records of the games that ended, by row.

        Args:
          step: Of a synchronous pool: row i is environment i.
          rows: Where an episode ended, ascending.
        """
        returns, lengths = step.episode_return[rows], step.episode_length[rows]
        if self._any_by_life:
            rows, returns, lengths = self._join_lives(step, rows, returns, lengths)
        seconds = self.seconds()
        return {
            row: {"r": round(total, 6), "l": length, "t": seconds}
            for row, total, length in zip(
                rows.tolist(), returns.tolist(), lengths.tolist(), strict=True
            )
        }

    def _join_lives(
        self, step: StepBatch, rows: NDArray[np.intp], returns: Array, lengths: Array
    ) -> tuple[NDArray[np.intp], Array, Array]:
        self._returns[rows] += returns
        self._lengths[rows] += lengths
        goes_on = self._by_life[rows] & (step.info["lives"][rows] > 0) & ~step.truncated[rows]
        over = rows[~goes_on]
        totals = self._returns[over], self._lengths[over]
        self._returns[over], self._lengths[over] = 0.0, 0
        return over, *totals
