# SPDX-License-Identifier: Apache-2.0
"""Contestants of `rollouts bench adapter cleanrl`: the rollout loop of CleanRL's ppo.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from rollouts.integrations import cleanrl
from torch import nn

from comparisons.adapters.measuring import Case, Contestant


class _Loop:
    """An agent of two tanh layers of 64 and a loop over T steps, infos read as ppo.py does."""

    def __init__(self, case: Case, envs: Any, note: str = "") -> None:
        self.note = note
        self._envs, self._case = envs, case
        torch.manual_seed(case.seed)
        size = int(np.prod(envs.single_observation_space.shape))
        self._actor = nn.Sequential(
            nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
            nn.Linear(64, int(envs.single_action_space.n)),
        )  # fmt: skip
        self._obs, _ = envs.reset(seed=case.seed)
        self.episodes = 0

    @torch.no_grad()
    def collect(self) -> int:
        """T steps of each environment."""
        for _ in range(self._case.rollout_length):
            logits = self._actor(torch.as_tensor(self._obs, dtype=torch.float32))
            distribution: Any = torch.distributions.Categorical(logits=logits)
            action = distribution.sample()
            self._obs, _, _, _, infos = self._envs.step(action.numpy())
            self.episodes += int(np.sum(infos.get("_final_info", infos.get("_episode", 0))))
        return self._case.rollout_length * self._case.num_envs

    def close(self) -> None:
        """Frees the environments."""
        self._envs.close()


def _ours(case: Case) -> Contestant:
    return _Loop(case, cleanrl.make_vec(case.id, case.num_envs, num_threads=case.num_threads))


def _stock(case: Case) -> Contestant:
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(case.id))

    envs = gymnasium.vector.SyncVectorEnv([make] * case.num_envs)
    return _Loop(case, envs, note="SyncVectorEnv and RecordEpisodeStatistics, as in ppo.py")


CONTESTANTS: dict[str, Callable[[Case], Contestant]] = {"rollouts": _ours, "cleanrl": _stock}
