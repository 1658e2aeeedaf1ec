# SPDX-License-Identifier: Apache-2.0
"""PPO's loss and steps in torch, in any precision, for comparisons with `NativeLearner`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rollouts.learner.native_learner import PpoLoss

OBS_SIZE = 6


class ActorCritic(nn.Module):
    """Networks with two layers of a size, for actions of a space."""

    def __init__(
        self, space: spaces.Space[Any], hidden: int, *, shares: bool = False, normal: bool = False
    ) -> None:
        super().__init__()
        self.space = space
        num_outputs = {
            spaces.Discrete: lambda: int(space.n),  # type: ignore[attr-defined]
            spaces.MultiDiscrete: lambda: int(space.nvec.sum()),  # type: ignore[attr-defined]
            spaces.Box: lambda: space.shape[0],  # type: ignore[index]
        }[type(space)]()

        def layers() -> nn.Sequential:
            middle = [nn.LayerNorm(hidden)] if normal else []
            first = [nn.Linear(OBS_SIZE, hidden), *middle, nn.Tanh()]
            return nn.Sequential(*first, nn.Linear(hidden, hidden), nn.Tanh())

        self.actor_layers = layers()
        self.critic_layers = self.actor_layers if shares else layers()
        self.actor = nn.Linear(hidden, num_outputs)
        self.critic = nn.Linear(hidden, 1)
        self.log_std: nn.Parameter | None = None
        if isinstance(space, spaces.Box):
            self.log_std = nn.Parameter(torch.randn(num_outputs) * 0.3)

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        first = self.actor(self.actor_layers(obs))
        value = self.critic(self.critic_layers(obs))[..., 0]
        if self.log_std is None:
            return first, value
        return first, self.log_std.expand_as(first), value

    def evaluate(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-density and entropy of actions, and the value."""
        first, *others, value = self(obs)
        if others:
            normal = torch.distributions.Normal(first, others[0].exp())
            return normal.log_prob(action).sum(-1), normal.entropy().sum(-1), value
        parts = first.split(list(getattr(self.space, "nvec", [first.shape[1]])), -1)
        action = action.reshape(len(first), -1)
        log_prob = entropy = torch.zeros_like(value)
        for place, logits in enumerate(parts):
            choice = torch.distributions.Categorical(logits=logits)
            log_prob = log_prob + choice.log_prob(action[:, place])
            entropy = entropy + choice.entropy()
        return log_prob, entropy, value


def acted_rows(
    module: ActorCritic | None, count: int, seed: int, space: Any = None
) -> dict[str, Any]:
    """Rows of a rollout whose ratios and values have moved, each well away from 0.2 and 0.1."""
    space = module.space if module else space
    random = np.random.default_rng(seed)
    obs = random.normal(size=(count, OBS_SIZE)).astype(np.float32)
    if isinstance(space, spaces.Box):
        action = random.normal(size=(count, *space.shape)).astype(np.float32)
    else:
        nvec = getattr(space, "nvec", None)
        action = random.integers(space.n if nvec is None else nvec, size=(count, *space.shape))
    log_prob, value = np.full(count, -1, np.float32), np.zeros(count, np.float32)
    if module:
        with torch.no_grad():
            found = module.evaluate(torch.from_numpy(obs), torch.from_numpy(action))
        log_prob, value = found[0].numpy(), found[2].numpy()
    jitter = random.uniform(-0.02, 0.02, size=(2, count))
    moved = random.choice([-0.5, -0.1, 0.0, 0.1, 0.5], size=count) + jitter[0]
    value_moved = random.choice([-0.3, -0.05, 0.05, 0.3], size=count) + jitter[1]
    return {
        "obs": obs,
        "action": action,
        "log_prob": (log_prob - moved).astype(np.float32),
        "value": (value - value_moved).astype(np.float32),
        "advantage": random.normal(size=count).astype(np.float32),
        "target": (value + random.normal(size=count)).astype(np.float32),
    }


def as_tensors(rows: dict[str, Any], dtype: torch.dtype) -> dict[str, Tensor]:
    tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in rows.items()}
    return {
        name: each.to(dtype) if each.is_floating_point() else each for name, each in tensors.items()
    }


def loss_of(module: ActorCritic, rows: dict[str, Tensor], how: PpoLoss) -> tuple[Tensor, float]:
    """The loss of a minibatch, and how near a ratio or a value is to its limit."""
    log_prob, entropy, value = module.evaluate(rows["obs"], rows["action"])
    advantage = rows["advantage"]
    if how.normalize_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (log_prob - rows["log_prob"]).exp()
    bounded = ratio.clamp(1 - how.clip_range, 1 + how.clip_range)
    policy_loss = -torch.min(ratio * advantage, bounded * advantage).mean()
    error = (value - rows["target"]) ** 2
    nearest = ((ratio - 1).abs() - how.clip_range).abs().min().item()
    if how.value_clip_range is not None:
        moved = value - rows["value"]
        nearest = min(nearest, (moved.abs() - how.value_clip_range).abs().min().item())
        limit = how.value_clip_range
        other = (rows["value"] + moved.clamp(-limit, limit) - rows["target"]) ** 2
        error = other if how.value_loss == "clipped" else torch.max(error, other)
    value_loss = how.value_weight * error.mean()
    return policy_loss + value_loss - how.entropy_weight * entropy.mean(), nearest


def gradients(module: ActorCritic, rows: dict[str, Tensor], how: PpoLoss) -> dict[str, Tensor]:
    loss, _ = loss_of(module, rows, how)
    names = [name for name, _ in module.named_parameters()]
    found = torch.autograd.grad(loss, list(module.parameters()))
    return dict(zip(names, found, strict=True))


def torch_step(
    module: ActorCritic,
    optimizer: torch.optim.Optimizer,
    rows: dict[str, Tensor],
    batch: Any,
    how: PpoLoss,
    max_norm: float,
) -> float:
    """A gradient step of some rows; returns how near a ratio or a value was to its limit."""
    place = torch.from_numpy(batch)
    loss, nearest = loss_of(module, {name: each[place] for name, each in rows.items()}, how)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(module.parameters(), max_norm)
    optimizer.step()
    return nearest
