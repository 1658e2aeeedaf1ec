# SPDX-License-Identifier: Apache-2.0
"""Returns and lengths of whole games, as an adapter's library would report them in its Monitor."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.envs.vector_env import VectorEnv

Array = NDArray[Any]
# one game: {"r": return, "l": length in steps, "t": seconds since the statistics began}
Episode = dict[str, float]


class EpisodeStatistics:
    """Turns the pool's own counts into one record per game.

    Where a lost life ends an episode but not the game (Atari's episodic_life), or only sets
    `terminated` (life_loss_info), the records are of whole games, as those of a Monitor inside such
    a wrapper; elsewhere an episode is a game.
    """

    def __init__(self, env: VectorEnv) -> None:
        self._start_s = time.time()
        # with episodic_life, returns and lengths begin again with each life; with life_loss_info
        # they go on
        self._by_life = _where(env, "episodic_life", (True, "continue"))
        self._marked = _where(env, "life_loss_info", (True,)) & ~_where(
            env, "episodic_life", (True, "continue", "restart")
        )
        # whether a game may consist of several episodes, as the lives in each step's infos show
        self.has_lives = bool((self._by_life | self._marked).any())
        self.reset()

    def reset(self) -> None:
        """Every environment's next step is the first of a game."""
        self._returns = np.zeros(len(self._by_life), np.float64)
        self._lengths = np.zeros(len(self._by_life), np.int64)

    def seconds(self) -> float:
        """Seconds since the statistics began."""
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
        if self.has_lives:
            lost = ~truncated[rows] & (info["lives"][rows] > 0)
            kept = ~(lost & self._marked[rows])
            rows, returns, lengths = rows[kept], returns[kept], lengths[kept]
            lost = lost[kept] & self._by_life[rows]
            rows, returns, lengths = self._join_lives(rows, returns, lengths, lost)
        return dict(zip(rows.tolist(), self.records(returns, lengths), strict=True))

    def records(self, returns: Array, lengths: Array) -> list[Episode]:
        """A record for each game that is over now, from its return and its length."""
        return records(returns, lengths, self.seconds())

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


def records(returns: Array, lengths: Array, seconds: float) -> list[Episode]:
    """Records of games (E,) that are over `seconds` after the statistics began."""
    return [
        {"r": round(total, 6), "l": length, "t": seconds}
        for total, length in zip(returns.tolist(), lengths.tolist(), strict=True)
    ]


def _where(env: VectorEnv, option: str, values: tuple[object, ...]) -> NDArray[np.bool_]:
    """Marks the environments (N,) that have the option with one of the values."""
    given = env.env_options.get(option, False)
    column = given.tolist() if isinstance(given, np.ndarray) else [given] * env.num_envs
    return np.array([value in values for value in column], np.bool_)
