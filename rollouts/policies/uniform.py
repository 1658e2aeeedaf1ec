# SPDX-License-Identifier: Apache-2.0
"""`UniformPolicy`: actions drawn from their space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rollouts.policies.protocol import PolicyOutput

Array = NDArray[Any]


class UniformPolicy:
    """Draws each action from the action space, as `Space.sample` does; values are 0.

    Attributes:
      policy_version: 0, or the version that `load_weights` was given.
    """

    def __init__(self, action_space: gymnasium.Space[Any], seed: int = 0) -> None:
        """Takes the space of one environment or agent.

        Args:
          action_space: The space.
          seed: Seed of the actions.
        """
        self.policy_version = 0
        self._space, self._seed = action_space, seed
        self._batched: dict[int, Any] = {}

    def act(self, obs: Array) -> PolicyOutput:
        """Draws actions (B, *action_shape) for observations (B, ...); log_prob is 0."""
        count = len(obs)
        if count not in self._batched:
            self._batched[count] = batch_space(self._space, count)
            self._batched[count].seed(self._seed)
        zeros = np.zeros(count, np.float32)
        return PolicyOutput(np.asarray(self._batched[count].sample()), zeros, zeros)

    def value(self, obs: Array) -> Array:
        """Returns 0 for each observation."""
        return np.zeros(len(obs), np.float32)

    def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Takes the version; there are no weights."""
        self.policy_version = version
