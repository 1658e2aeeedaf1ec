# SPDX-License-Identifier: Apache-2.0
"""Gymnasium's own wrappers around single environments of ours, as a vector environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.utils import RunningMeanStd

import rollouts

SEED = 3
MODES = {mode.name.lower(): mode for mode in AutoresetMode}
Array = npt.NDArray[Any]


class OneEnv(gym.Env[Array, Any]):
    """Environment `index` of a pool, alone: the same episodes, step by step."""

    def __init__(self, env_id: str, index: int, max_episode_steps: int) -> None:
        self._env = rollouts.make_vec(
            env_id, 1, seed=SEED, env_id_offset=index, autoreset_mode="disabled",
            max_episode_steps=max_episode_steps,
        )  # fmt: skip
        self.observation_space = self._env.single_observation_space
        self.action_space = self._env.single_action_space
        self.spec = EnvSpec("Own-v0", entry_point="own", max_episode_steps=max_episode_steps)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Array, dict[str, Any]]:
        obs, _ = self._env.reset()
        return obs[0].copy(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = self._env.step(np.asarray([action]))
        return obs[0].copy(), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        self._env.close()


def gymnasium_pool(
    env_id: str,
    num_envs: int,
    mode: str,
    max_episode_steps: int,
    wrap: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]] = lambda env: env,
) -> SyncVectorEnv:
    """The reference for make_vec(env_id, num_envs, seed=SEED), each environment in `wrap`."""

    def maker(index: int) -> Callable[[], gym.Env[Any, Any]]:
        return lambda: wrap(OneEnv(env_id, index, max_episode_steps))

    return SyncVectorEnv([maker(index) for index in range(num_envs)], autoreset_mode=MODES[mode])


class Normalizing:
    """Gymnasium's formulas of NormalizeObservation and NormalizeReward, in every mode."""

    def __init__(self, shape: tuple[int, ...], num_envs: int, gamma: float = 0.99) -> None:
        self.observations = RunningMeanStd(shape=shape)
        self.returns = RunningMeanStd(shape=())
        self._accumulated = np.zeros(num_envs)
        self._gamma = gamma

    def see(self, obs: Array) -> Array:
        self.observations.update(obs.astype(np.float64))
        return self.scale(obs)

    def scale(self, obs: Array) -> Array:
        deviation = np.sqrt(self.observations.var + 1e-8)
        return ((obs.astype(np.float64) - self.observations.mean) / deviation).astype(obs.dtype)

    def rewards(self, reward: Array, terminated: Array) -> Array:
        self._accumulated = self._accumulated * self._gamma * (1 - terminated) + reward
        self.returns.update(self._accumulated)
        return reward / np.sqrt(self.returns.var + 1e-8)


def random_actions(space: gym.Space[Any], rng: np.random.Generator) -> Array:
    """A batch of actions within a batched space."""
    if isinstance(space, gym.spaces.Box):
        return rng.uniform(space.low, space.high).astype(np.float32)
    assert isinstance(space, gym.spaces.MultiDiscrete)
    return rng.integers(0, space.nvec)
