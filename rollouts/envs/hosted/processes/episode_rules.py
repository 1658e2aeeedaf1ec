# SPDX-License-Identifier: Apache-2.0
"""`EpisodeRules`: where episodes of environments in Python begin, end and are cut short.

The rules of native environments are in `native/include/rollouts/core/step.h`. They are the same
except for the time limit, which is a wrapper of the environment here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rollouts.envs.hosted.processes.copies import plain_info
from rollouts.envs.hosted.processes.records import EnvFn, Setup

# attempts to begin an episode after a failure, which make the environment again if its reset fails;
# after them the next step tries again
RECOVERY_ATTEMPTS = 2

Array = npt.NDArray[Any]


class EpisodeRules:
    """The episodes of a process's environments, row by row.

    Attributes:
      must_reset: Whether the next step of a row begins an episode, whatever the action.
    """

    def __init__(
        self, envs: list[gymnasium.Env[Any, Any]], makers: Sequence[EnvFn], setup: Setup
    ) -> None:
        """Takes environments that begin their first episode, and the functions that make them."""
        self._envs, self._makers, self._setup = envs, makers, setup
        self._mode = setup.autoreset_mode
        self.must_reset = [True] * len(envs)
        self._is_broken = [False] * len(envs)
        self._num_made = [setup.incarnation] * len(envs)
        # an environment that replaces another must not repeat its episodes
        self._is_replacement = [setup.incarnation > 0] * len(envs)

    def begin(self, row: int, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, Any]:
        """Begins an episode; returns its first observation and info."""
        self.must_reset[row] = True
        if self._is_broken[row]:
            self._make_again(row)
        if seed is None and self._is_replacement[row]:
            seed = self._seed_of_replacement(row)
        self._is_broken[row] = True
        obs, info = self._envs[row].reset(seed=seed, options=options)
        info = plain_info(info)
        self._is_broken[row] = self.must_reset[row] = self._is_replacement[row] = False
        return obs, info

    def end(self, row: int) -> bool:
        """Ends an episode; returns whether the next one begins in the same step."""
        if self._mode is AutoresetMode.SAME_STEP:
            return True
        self.must_reset[row] = self._mode is AutoresetMode.NEXT_STEP
        return False

    def fail(self, row: int) -> bool:
        """Cuts an episode short; returns whether the next one begins in the same step."""
        self.must_reset[row] = True
        return self._mode is AutoresetMode.SAME_STEP

    def recover(self, row: int, num_attempts: int, show: Callable[[Any, Any], None]) -> None:
        """Begins an episode, and calls `show` with its start; gives up after the last attempt."""
        for _ in range(num_attempts):
            with contextlib.suppress(Exception):
                show(*self.begin(row, None, None))
                return

    def _make_again(self, row: int) -> None:
        with contextlib.suppress(Exception):
            self._envs[row].close()  # type: ignore[no-untyped-call]
        self._envs[row] = self._makers[row]()
        self._num_made[row] += 1
        self._is_replacement[row] = True

    def _seed_of_replacement(self, row: int) -> int | None:
        """Returns a seed that none of the environments before it had."""
        if self._setup.seed is None:
            return None
        env_id = self._setup.env_id_offset + self._setup.first + row
        words = (self._setup.seed, env_id, self._num_made[row])
        return int(np.random.SeedSequence(words).generate_state(1)[0])


def show_cut(arrays: dict[str, Array], rows: Any) -> None:
    """Writes the results of rows whose episode was cut short: truncated, without a reward."""
    arrays["reward"][rows] = 0.0
    arrays["terminated"][rows] = False
    arrays["was_reset"][rows] = False
    arrays["truncated"][rows] = True
