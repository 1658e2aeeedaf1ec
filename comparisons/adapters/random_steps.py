# SPDX-License-Identifier: Apache-2.0
"""A contestant that steps all its environments with random actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

import rollouts
from comparisons.adapters.measuring import Case

# batches of random actions, which are used in turn
_NUM_ACTIONS = 64


class RandomSteps:
    """T steps of all environments per collect; the same actions for every contestant."""

    def __init__(
        self,
        case: Case,
        step: Callable[[Any], Any],
        close: Callable[[], Any],
        *,
        note: str = "",
    ) -> None:
        """Takes environments that were reset.

        Args:
          case: The case that is measured.
          step: Takes actions (N, ...).
          close: Frees the environments.
          note: Differences from the other contestants.
        """
        self.note = note
        self._step, self._close, self._case = step, close, case
        single = rollouts.env_spec(case.id).single_action_space
        space = gymnasium.vector.utils.batch_space(single, case.num_envs)
        space.seed(case.seed)
        self._actions = [space.sample() for _ in range(_NUM_ACTIONS)]

    def collect(self) -> int:
        """T steps of each environment."""
        for step in range(self._case.rollout_length):
            self._step(self._actions[step % _NUM_ACTIONS])
        return self._case.rollout_length * self._case.num_envs

    def close(self) -> None:
        """Frees the environments."""
        self._close()
