# SPDX-License-Identifier: Apache-2.0
"""Environments in Python with an agent that leaves early."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

import rollouts


class Leaves(ParallelEnv[str, Any, Any]):
    """Two walkers in episodes of five steps; the first leaves after its second."""

    possible_agents = ("walker_0", "walker_1")
    metadata: dict[str, Any] = {}  # noqa: RUF012 (PettingZoo declares it so)

    def __init__(self) -> None:
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-9, 9, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self._steps = [*self.possible_agents], 0
        return {name: np.ones(2, np.float32) for name in self.agents}, {}

    def step(self, actions: Any) -> Any:
        self._steps += 1
        present = self.agents
        gone = {name: self._steps == 2 and name == "walker_0" for name in present}
        over = {name: self._steps == 5 for name in present}
        self.agents = [name for name in present if not gone[name] and not over[name]]
        obs = {name: np.full(2, self._steps, np.float32) for name in present}
        return obs, dict.fromkeys(present, 1.0), gone, over, {name: {} for name in present}


def leaving_walkers(num_envs: int = 3) -> rollouts.MultiAgentVectorEnv:
    return rollouts.from_parallel_env_fns(
        [Leaves] * num_envs, num_processes=0, autoreset_mode="same_step"
    )
