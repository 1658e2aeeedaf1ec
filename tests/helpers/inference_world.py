# SPDX-License-Identifier: Apache-2.0
"""Policies for the inference server, importable in Ray's processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from rollouts.policy import PolicyOutput, TorchPolicy
from rollouts.workers import PolicySpec


class SumPolicy:
    """Acts by the sum of each row plus the weight, and counts what it is asked."""

    def __init__(self) -> None:
        self.policy_version = 0
        self.offset = 0.0
        self.batches: list[int] = []

    def act(self, obs: np.ndarray) -> PolicyOutput:
        self.batches.append(len(obs))
        if (obs == 666).any():
            raise ValueError("the beast")
        value = self._sum(obs)
        return PolicyOutput(value.astype(np.int64), -value, value, {"twice": 2 * value})

    def value(self, obs: np.ndarray) -> np.ndarray:
        self.batches.append(len(obs))
        return self._sum(obs)

    def weights(self) -> dict[str, np.ndarray]:
        return {"offset": np.array([self.offset])}

    def load_weights(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        self.offset = float(weights["offset"][0])
        self.policy_version = version

    def _sum(self, obs: np.ndarray) -> np.ndarray:
        return (obs.sum(1) + self.offset).astype(np.float32)


class HangingPolicy(SumPolicy):
    """Writes its pid to `path` and never answers while `path` has not been there before."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def act(self, obs: np.ndarray) -> PolicyOutput:
        if not self._path.exists():
            partial = self._path.with_suffix(".partial")
            partial.write_text(str(os.getpid()))
            partial.rename(self._path)
            threading.Event().wait()
        return super().act(obs)


class ActorCritic(nn.Module):
    """CartPole's logits and value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.head(torch.tanh(self.body(obs)))
        return out[:, :2], out[:, 2]


def make_sum_policy(spec: PolicySpec) -> Any:
    return SumPolicy()


def make_broken_policy(spec: PolicySpec) -> Any:
    raise ValueError("no such model")


def make_torch_policy(spec: PolicySpec) -> Any:
    return TorchPolicy(ActorCritic(), spec.single_action_space)


def spec(seed: int = 0) -> PolicySpec:
    space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    return PolicySpec(
        id="CartPole-v1",
        single_observation_space=space,
        single_action_space=gymnasium.spaces.Discrete(2),
        num_envs=8,
        env_id_offset=0,
        worker_id=0,
        incarnation=0,
        seed=seed,
    )
