# SPDX-License-Identifier: Apache-2.0
"""The networks of RLlib's DQN and SAC modules in the form that row losses take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from ray.rllib.algorithms.dqn.dqn_learner import QF_PREDS
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.base import ENCODER_OUT
from ray.rllib.utils.numpy import MAX_LOG_NN_OUTPUT, MIN_LOG_NN_OUTPUT
from torch import Tensor, nn

from rollouts.errors import SpecError
from rollouts.learner.side_effects import refuse_changes

_NUM_CHECKED = 6


class QValues(nn.Module):
    """Values of observations by a DQN module's encoder and heads, or by its targets."""

    def __init__(self, module: Any, *, is_target: bool = False) -> None:
        """Takes the module's own networks, or its target networks."""
        super().__init__()
        prefix = "_target_" if is_target else ""
        names = ["encoder", "af", "vf"] if module.uses_dueling else ["encoder", "af"]
        parts = {name: getattr(module, prefix + name) for name in names}
        self.parts = nn.ModuleDict(parts)

    def forward(self, obs: Tensor) -> Tensor:
        features = self.parts["encoder"]({Columns.OBS: obs})[ENCODER_OUT]
        values: Tensor = self.parts["af"](features)
        if "vf" in self.parts:
            # RLlib leaves infinite values out of this mean
            values = values - values.mean(-1, keepdim=True) + self.parts["vf"](features)
        return values


class Critic(nn.Module):
    """The value (B, 1) of actions by one of a SAC module's networks."""

    def __init__(self, module: Any, name: str) -> None:
        """Takes the networks `name`_encoder and `name` of the module."""
        super().__init__()
        self.encoder, self.head = getattr(module, f"{name}_encoder"), getattr(module, name)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        encoded = self.encoder({Columns.OBS: obs, Columns.ACTIONS: action})
        value: Tensor = self.head(encoded[ENCODER_OUT])
        return value


class Critics(nn.Module):
    """Several critics, each with its own value."""

    def __init__(self, *critics: Critic) -> None:
        super().__init__()
        self.critics = nn.ModuleList(critics)

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, ...]:
        return tuple(each(obs, action) for each in self.critics)


class ChoiceValues(nn.Module):
    """The values (B, A) of all discrete actions by one of a SAC module's networks."""

    def __init__(self, module: Any, name: str) -> None:
        """Takes the networks as `Critic` does."""
        super().__init__()
        self.encoder, self.head = getattr(module, f"{name}_encoder"), getattr(module, name)

    def forward(self, obs: Tensor) -> Tensor:
        values: Tensor = self.head(self.encoder({Columns.OBS: obs})[ENCODER_OUT])
        return values


class ChosenValue(nn.Module):
    """The value (B, 1) of actions (B, A), which are one-hot."""

    def __init__(self, values: ChoiceValues) -> None:
        super().__init__()
        self.values = values

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        value: Tensor = (self.values(obs) * action).sum(1, keepdim=True)
        return value


class AllChoiceValues(nn.Module):
    """Several networks' values of all discrete actions."""

    def __init__(self, *networks: ChoiceValues) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        return tuple(each(obs) for each in self.networks)


class Logits(nn.Module):
    """Logits of discrete actions."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.encoder, self.head = module.pi_encoder, module.pi

    def forward(self, obs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder({Columns.OBS: obs})[ENCODER_OUT])
        return logits


class MeanAndScale(nn.Module):
    """Mean and log_std of an action before tanh, within RLlib's limits."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.encoder, self.head = module.pi_encoder, module.pi

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        inputs = self.head(self.encoder({Columns.OBS: obs})[ENCODER_OUT])
        mean, log_std = inputs.chunk(2, -1)
        return mean, log_std.clamp(MIN_LOG_NN_OUTPUT, MAX_LOG_NN_OUTPUT)


def check_values(module: Any) -> None:
    """Raises SpecError where a DQN module's values differ from those of `QValues`."""
    _check(module, lambda batch: module.compute_q_values(batch)[QF_PREDS], QValues(module))


def check_choices(module: Any) -> None:
    """Raises SpecError where a discrete SAC module's values differ from those of `ChoiceValues`."""
    networks = [ChoiceValues(module, name) for name in ("qf", "qf_twin")]
    _check(module, module.compute_q_values, lambda obs: torch.minimum(*(n(obs) for n in networks)))


def check_critic(module: Any) -> None:
    """Raises SpecError where a SAC module's values differ from those of `Critics`."""
    names = ["qf", "qf_twin"] if module.twin_q else ["qf"]
    critics = Critics(*(Critic(module, name) for name in names))
    action = torch.rand(_NUM_CHECKED, *module.action_space.shape, generator=_generator())

    def theirs(batch: dict[str, Tensor]) -> Tensor:
        values: Tensor = module.compute_q_values({**batch, Columns.ACTIONS: action})
        return values[:, None]

    def ours(obs: Tensor) -> Tensor:
        return torch.cat(critics(obs, action), 1).amin(1, keepdim=True)

    _check(module, theirs, ours)


def _check(
    module: Any, theirs: Callable[[dict[str, Tensor]], Tensor], ours: Callable[[Tensor], Tensor]
) -> None:
    obs = torch.rand(_NUM_CHECKED, *module.observation_space.shape, generator=_generator())
    with torch.no_grad(), refuse_changes(module):
        expected, found = theirs({Columns.OBS: obs}), ours(obs)
    if not torch.allclose(expected, found, rtol=1e-4, atol=1e-5):
        raise SpecError(f"{type(module).__name__} computes other values than RLlib's default heads")


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
