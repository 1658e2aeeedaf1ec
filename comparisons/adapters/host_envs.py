# SPDX-License-Identifier: Apache-2.0
"""Environments that show what hosting costs: one that waits, one whose observations are large."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_WAIT_S = 0.005
_EPISODE_STEPS = 200


class Waiting(gymnasium.Env[Any, Any]):
    """Sleeps 5 ms in every step, like an environment that talks to a simulator or a robot."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begins an episode of 200 steps."""
        super().reset(seed=seed)
        self._steps = 0
        self._obs = self._first_obs()
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Does the work of the environment; the reward is 1."""
        self._work()
        self._steps += 1
        return self._obs, 1.0, False, self._steps == _EPISODE_STEPS, {}

    def _first_obs(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)

    def _work(self) -> None:
        time.sleep(_WAIT_S)


class HeavyObservation(Waiting):
    """Returns an image of 512 x 512 pixels, 768 KiB, as its observation, and does nothing else."""

    observation_space = spaces.Box(0, 255, (512, 512, 3), np.uint8)

    def _first_obs(self) -> Any:
        return self.np_random.integers(0, 256, (512, 512, 3), np.uint8)

    def _work(self) -> None:
        self._obs[self._steps % 512] = self._steps % 256


# values of `--env-id` in addition to ids of Gymnasium
HOST_ENVS: dict[str, type[gymnasium.Env[Any, Any]]] = {
    "waiting": Waiting,
    "heavy-observation": HeavyObservation,
}


def make_env(id: str) -> gymnasium.Env[Any, Any]:
    """Makes one of `HOST_ENVS`, or `gymnasium.make(id)`."""
    return HOST_ENVS[id]() if id in HOST_ENVS else gymnasium.make(id)
