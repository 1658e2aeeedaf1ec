# SPDX-License-Identifier: Apache-2.0
"""Agents of linear layers, and their outputs by rounded operands with bounds of what sums lose."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

# what one float32 addition loses of the largest number that is added
HALF_ULP = 2.0**-24


class DenseAgent(nn.Module):
    """Actor and critic of linear layers, with bodies of their own or a common one."""

    def __init__(
        self,
        observations: spaces.Space[Any],
        actions: spaces.Space[Any],
        *,
        hidden: tuple[int, ...] = (256, 256),
        activation: type[nn.Module] = nn.Tanh,
        shared: bool = False,
        squashes: bool = False,
    ) -> None:
        """Makes the layers; `squashes`: tanh behind the mean."""
        super().__init__()
        self.is_box, self.shared = isinstance(actions, spaces.Box), shared
        size = int(np.prod(observations.shape or ()))
        if isinstance(actions, spaces.MultiDiscrete):
            count = int(actions.nvec.sum())
        else:
            count = int(getattr(actions, "n", np.prod(actions.shape or ())))
        sizes = [size, *hidden]

        def layers(last: int) -> nn.Sequential:
            found: list[nn.Module] = []
            for before, after in itertools.pairwise(sizes):
                found += [nn.Linear(before, after), activation()]
            return nn.Sequential(*found, nn.Linear(sizes[-1], last))

        self.actor, self.critic = layers(count), layers(1)
        if squashes:
            self.actor.append(nn.Tanh())
        if shared:
            # heads of one linear layer
            self.actor[-1] = nn.Linear(sizes[-1], count + 1)
        self.log_std = nn.Parameter(torch.full((count,), -0.5))

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        out, value = self.actor(obs.flatten(1).float()), None
        if self.shared:
            out, value = out[:, :-1], out[:, -1:]
        else:
            value = self.critic(obs.flatten(1).float())
        return (out, self.log_std, value) if self.is_box else (out, value)


def bounds_of(module: DenseAgent, obs: Tensor, lost: float) -> list[tuple[Tensor, Tensor]]:
    """(numbers, the most by which a kernel's may differ), float64, of each output.

    Args:
      module: The agent.
      obs: (B, *obs_shape) float32.
      lost: What an addition loses of the largest number that is added.
    """
    flat = obs.flatten(1)
    first = _sequential(module.actor, flat, lost)
    if module.shared:
        exact, error = first
        found = [(exact[:, :-1], error[:, :-1]), (exact[:, -1:], error[:, -1:])]
    else:
        found = [first, _sequential(module.critic, flat, lost)]
    if module.is_box:
        log_std = module.log_std.detach().double().expand(len(obs), -1)
        found.insert(1, (log_std, torch.zeros_like(log_std)))
    return found


def _sequential(layers: nn.Sequential, x: Tensor, lost: float) -> tuple[Tensor, Tensor]:
    exact, error = x.double(), torch.zeros(x.shape, dtype=torch.float64)
    for layer in layers:
        if isinstance(layer, nn.Linear):
            exact, error = _linear(layer, exact, error, lost)
        elif isinstance(layer, nn.Tanh):
            # tanh is 2 ulp of float32 off at most, and no steeper than 1
            exact = exact.tanh()
            error = error + 2 * 2.0**-23 * exact.abs()
        else:
            exact = exact.relu()
    return exact, error


def _linear(layer: nn.Linear, x: Tensor, error: Tensor, lost: float) -> tuple[Tensor, Tensor]:
    """Rounds inputs and weights. An input that may be on either side of a half may be rounded to
    either neighbour; sums of n terms lose n times what one addition does of all their sizes."""
    rounded = _rounded(x)
    apart = torch.maximum(_rounded(x + error) - rounded, rounded - _rounded(x - error))
    weight = _rounded(layer.weight.detach().double())
    bias = layer.bias.detach().double()
    sizes = (rounded.abs() + apart) @ weight.abs().T + bias.abs()
    terms = layer.in_features + 1
    return rounded @ weight.T + bias, apart @ weight.abs().T + terms * lost * sizes


def _rounded(x: Tensor) -> Tensor:
    # float32 keeps all that decides, but a half of float64, which bounds are wider than
    return x.float().bfloat16().double()
