# SPDX-License-Identifier: Apache-2.0
"""RandomPolicy: actions that were drawn before; does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rollouts.bench.interleaved import action_batches
from rollouts.policies.protocol import PolicyOutput
from rollouts.workers.worker_config import PolicySpec

Array = NDArray[Any]


class RandomPolicy:
    """Returns batches of actions that were drawn once, in turn, so that only steps take time."""

    def __init__(self, action_space: spaces.Space[Any], num_envs: int, *, seed: int) -> None:
        """Draws the actions of `num_envs` environments."""
        self.policy_version = 0
        zeros = np.zeros(num_envs, np.float32)
        self._outputs = [
            PolicyOutput(actions, zeros, zeros)
            for actions in action_batches(action_space, num_envs, seed=seed)
        ]
        self._calls = 0

    def act(self, obs: Array) -> PolicyOutput:
        """Returns the next batch of actions; `obs` must have num_envs rows."""
        self._calls += 1
        return self._outputs[self._calls % len(self._outputs)]

    def value(self, obs: Array) -> NDArray[np.float32]:
        """Returns zeros (B,)."""
        return np.zeros(len(obs), np.float32)

    def weights(self) -> dict[str, Array]:
        """Returns none."""
        return {}

    def load_weights(self, weights: Mapping[str, Array], version: int) -> None:
        """Takes over the version."""
        self.policy_version = version


def make_random_policy(spec: PolicySpec) -> RandomPolicy:
    """Makes the policy of one worker; see `make_policy` of RolloutCoordinator."""
    return RandomPolicy(spec.single_action_space, spec.num_envs, seed=spec.seed)
