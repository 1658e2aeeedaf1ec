# SPDX-License-Identifier: Apache-2.0
"""Stable-Baselines3's hindsight, for `rollouts bench replay --workload hindsight`."""

from __future__ import annotations

import importlib
from typing import Any

from rollouts.bench.replay_goals import CAPACITY, GOAL, REWARD, SHARE, goal_spaces
from rollouts.bench.replay_own import Given
from rollouts.replay.acted import GymnasiumStep


class Sb3Goals:
    """HerReplayBuffer on the CPU, as OffPolicyAlgorithm uses it; it needs observations as dicts."""

    def __init__(self, num_envs: int) -> None:
        """Makes an empty buffer."""
        module = importlib.import_module("stable_baselines3.her.her_replay_buffer")
        flat, action_space = goal_spaces()
        self._buffer = module.HerReplayBuffer(
            CAPACITY,
            GOAL.space(flat),
            action_space,
            _Rewards(num_envs),
            "cpu",
            num_envs,
            n_sampled_goal=round(SHARE / (1 - SHARE)),
            goal_selection_strategy="future",
        )
        self._infos: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        self._limits = [{"TimeLimit.truncated": True} for _ in range(num_envs)]

    def add(self, given: Given, step: GymnasiumStep) -> None:
        """See StepBuffer."""
        obs, action = given
        next_obs, reward, terminated, truncated, info = step
        final = info.get("final_obs", next_obs)
        infos = self._limits if "final_obs" in info else self._infos
        ended = terminated | truncated
        self._buffer.add(GOAL.views(obs), GOAL.views(final), action, reward, ended, infos)

    def sample(self, batch_size: int) -> Any:
        """See StepBuffer."""
        return self._buffer.sample(batch_size)


class _Rewards:
    """Stands for a VecEnv: has the only method of environments that the buffer calls."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def env_method(self, name: str, *args: Any, indices: Any = None) -> list[Any]:
        assert name == "compute_reward"
        return [REWARD(*args)]
