# SPDX-License-Identifier: Apache-2.0
"""`rollouts bench replay --workload hindsight`: goals of a reaching arm, and our buffer of them.

The data has the shapes of FetchReach: ten numbers, a goal of three, and episodes of fifty steps
that a time limit ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rollouts.bench.replay_own import Given
from rollouts.replay import (
    Acted,
    GoalColumns,
    Hindsight,
    ReplayBuffer,
    SparseReward,
    TableConfig,
)
from rollouts.replay.acted import GymnasiumStep

GOAL = GoalColumns(achieved_goal=(10, 13), desired_goal=(13, 16))
REWARD = SparseReward(0.05)
SHARE = 0.8  # share of samples with another goal: four for each original one
CAPACITY = 1_000_000  # transitions; the default of Stable-Baselines3
_OBS_SIZE, _ACTION_SIZE = 16, 4
_EPISODE = 50  # steps


class OwnHindsight:
    """rollouts.replay.ReplayBuffer with items of `Hindsight`."""

    def __init__(self, num_envs: int) -> None:
        """Makes an empty buffer."""
        items = Hindsight(GOAL, REWARD, "future", SHARE, max_length=_EPISODE)
        table = TableConfig(items=items, max_size=CAPACITY)
        self._buffer = ReplayBuffer(*goal_spaces(), table, autoreset_mode="same_step")

    def add(self, given: Given, step: GymnasiumStep) -> None:
        """See StepBuffer."""
        self._buffer.add_step(Acted(*given), step)

    def sample(self, batch_size: int) -> Any:
        """See StepBuffer."""
        return self._buffer.sample(batch_size)


def goal_spaces() -> tuple[spaces.Box, spaces.Box]:
    """Spaces of flat observations and of actions."""
    return (
        spaces.Box(-np.inf, np.inf, (_OBS_SIZE,), np.float64),
        spaces.Box(-1, 1, (_ACTION_SIZE,), np.float32),
    )


def make_goal_steps(num_envs: int, seed: int) -> list[tuple[Given, GymnasiumStep]]:
    """Makes one episode of each environment, which is then repeated."""
    rng = np.random.default_rng(seed)
    obs = rng.uniform(-0.2, 0.2, (_EPISODE + 1, num_envs, _OBS_SIZE))
    begin, end = GOAL.desired_goal
    obs[..., begin:end] = obs[0, :, begin:end]
    steps: list[tuple[Given, GymnasiumStep]] = []
    for t in range(_EPISODE):
        action = rng.uniform(-1, 1, (num_envs, _ACTION_SIZE)).astype(np.float32)
        terminated, truncated = np.zeros((2, num_envs), np.bool_)
        truncated[:] = t + 1 == _EPISODE
        goals = GOAL.views(obs[t + 1])
        reward = REWARD(goals["achieved_goal"], goals["desired_goal"])
        info = {"final_obs": obs[-1]} if truncated[0] else {}
        next_obs = obs[0] if truncated[0] else obs[t + 1]
        steps.append(((obs[t], action), (next_obs, reward, terminated, truncated, info)))
    return steps
