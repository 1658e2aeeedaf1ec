# SPDX-License-Identifier: Apache-2.0
"""BaseVecEnv: the common part of the `VecEnv`s of native pools and of Python environments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
from numpy.typing import NDArray

from ..shared.missing import needs

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise needs("sb3", error) from error

Infos = list[dict[str, Any]]
Indices = int | Iterable[int] | None


class BaseVecEnv(VecEnv):
    """N environments behind Stable-Baselines3's interface.

    Episodes end as in `DummyVecEnv`: the observation returned is the first of the next episode,
    `info["terminal_observation"]` is the last of the ended episode, and
    `info["TimeLimit.truncated"]` is in the info of every step.

    Attributes:
      pool: The vector environment; only this object may step it.
    """

    pool: Any

    def __init__(
        self,
        pool: Any,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
    ) -> None:
        """Takes over a vector environment. `get_attr` has to work before: VecEnv calls it here."""
        self.pool = pool
        super().__init__(pool.num_envs, observation_space, action_space)

    def reset(self) -> Any:
        """Starts new episodes with the seeds and options set before; returns obs (N, ...)."""
        seeded = any(seed is not None for seed in self._seeds)
        obs, self.reset_infos = self._begin(self._seeds if seeded else None)
        self._reset_seeds()
        self._reset_options()
        return obs

    def close(self) -> None:
        """Ends the pool's threads or processes and the environments; may be called twice."""
        self.pool.close()

    def get_images(self) -> Sequence[NDArray[Any] | None]:
        """N frames; N times None without render_mode="rgb_array", as in `DummyVecEnv`."""
        if self.render_mode != "rgb_array":
            return [None] * self.num_envs
        return self._draw()

    def _begin(self, seeds: list[int | None] | None) -> tuple[Any, Infos]:
        """Resets the pool with `self._options`; returns obs and an info per environment."""
        raise NotImplementedError

    def _draw(self) -> Sequence[NDArray[Any]]:
        """Returns a frame of each environment."""
        raise NotImplementedError

    def _numbers(self, indices: Indices) -> list[int]:
        """The environments that VecEnv's `indices` stand for."""
        everything = range(self.num_envs)
        return [everything[index] for index in self._get_indices(indices)]
