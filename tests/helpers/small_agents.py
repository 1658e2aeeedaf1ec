# SPDX-License-Identifier: Apache-2.0
"""Small actor-critics, with the same weights in every test."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class CartPoleAgent(nn.Module):
    """Actor and critic of CartPole, a layer each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(obs), self.critic(obs)


class Remembering(nn.Module):
    """An agent of 8 numbers behind a GRU that reads CartPole's 4."""

    def __init__(self, agent: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.agent = nn.GRUCell(4, 8), agent

    def initial_state(self) -> tuple[torch.Tensor]:
        return (torch.full((8,), 0.5),)

    def forward(self, obs: torch.Tensor, state: tuple[torch.Tensor]) -> tuple[Any, ...]:
        hidden = self.cell(obs, state[0])
        return *self.agent(hidden), (hidden,)
