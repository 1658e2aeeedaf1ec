# SPDX-License-Identifier: Apache-2.0
"""Whole games' returns and lengths, as the Monitor of an adapter's library would report them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    def ended(
        self,
        rows: NDArray[np.intp],
        returns: Array,
        lengths: Array,
        truncated: NDArray[np.bool_],
        info: Mapping[str, Array],
    ) -> dict[int, Episode]:
        """Records of the games that ended in a step of all N environments, by row.

        Args:
          rows: Where an episode ended, ascending.
          returns, lengths, truncated: (N,) of the step.
          info: Its other columns; with lives, (N,) "lives".
        """
        returns, lengths = returns[rows], lengths[rows]
        if self._any_by_life:
            lost = self._by_life[rows] & ~truncated[rows] & (info["lives"][rows] > 0)
            rows, returns, lengths = self._join_lives(rows, returns, lengths, lost)
        seconds = self.seconds()
        return {
            row: {"r": round(total, 6), "l": length, "t": seconds}
            for row, total, length in zip(
                rows.tolist(), returns.tolist(), lengths.tolist(), strict=True
            )
        }

    def _join_lives(
        self, rows: NDArray[np.intp], returns: Array, lengths: Array, lost: NDArray[np.bool_]
    ) -> tuple[NDArray[np.intp], Array, Array]:
        """Adds up the lives of a game; `lost` are those after which it goes on."""
        self._returns[rows] += returns
        self._lengths[rows] += lengths
        over = rows[~lost]
        totals = self._returns[over], self._lengths[over]
        self._returns[over], self._lengths[over] = 0.0, 0
        return over, *totals
