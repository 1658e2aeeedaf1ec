# SPDX-License-Identifier: Apache-2.0
"""Gradient steps of DQN and SAC for `rollouts bench learner`, native code against torch.

A step of DQN is one step of Adam. A step of SAC is three of them, for critics, actor and
temperature, and an update of the target critics.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollouts.learner.loss_learner import LossLearner, TargetNetwork
from rollouts.learner.row_losses import DqnLoss, SacActorLoss, SacCriticLoss, TemperatureLoss
from rollouts.support.extras import needs

with needs("torch", "rollouts bench learner"):
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

Rows = dict[str, Any]
_MAX_NORM = 10.0
_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of networks and of a batch."""

    rows: int
    layers: tuple[int, ...]
    obs_size: int
    num_actions: int


def network(inputs: int, layers: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    sizes = (inputs, *layers)
    parts = [part for pair in itertools.pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*parts, nn.Linear(sizes[-1], outputs))


class Dqn:
    """A network, its target network and Adam."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        torch.manual_seed(seed)
        self.q = network(sizes.obs_size, sizes.layers, sizes.num_actions)
        self.target = copy.deepcopy(self.q)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=3e-4, fused=True)

    def modules(self) -> list[nn.Module]:
        """The networks that change."""
        return [self.q]

    def native(self, sizes: Sizes, num_threads: int) -> Callable[[Rows], None]:
        """A step in native code."""
        loss = DqnLoss(self.q, self.target, (sizes.obs_size,), sizes.num_actions)
        learner = LossLearner(loss, self.optimizer, num_threads)
        return lambda rows: _nothing(learner.step(rows, max_grad_norm=_MAX_NORM))

    def torch_step(self, rows: Rows) -> None:
        """The same step in torch."""
        with torch.no_grad():
            best = self.target(rows["next_obs"]).amax(1, keepdim=True)
            target = rows["reward"] + rows["discount"] * best
        value = self.q(rows["obs"]).gather(1, rows["index"])
        self.optimizer.zero_grad()
        torch.autograd.backward(functional.smooth_l1_loss(value, target))
        nn.utils.clip_grad_norm_(self.q.parameters(), _MAX_NORM)
        self.optimizer.step()


class _Actor(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.net = network(sizes.obs_size, sizes.layers, 2 * sizes.num_actions)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.net(obs).chunk(2, 1)
        return mean, log_std.clamp(-20, 2)


class _Critic(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        inputs = sizes.obs_size + sizes.num_actions
        self.one, self.two = (network(inputs, sizes.layers, 1) for _ in range(2))

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([obs, action], 1)
        return self.one(both), self.two(both)


class Sac:
    """An actor, twin critics, their target, a temperature, and an Adam for each."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        torch.manual_seed(seed)
        self.actor, self.critic = _Actor(sizes), _Critic(sizes)
        self.target = copy.deepcopy(self.critic)
        self.log_temperature = torch.zeros(1).requires_grad_(True)
        self.aim = -float(sizes.num_actions)
        held = [*self.actor.parameters()], [*self.critic.parameters()], [self.log_temperature]
        self.optimizers = [torch.optim.Adam(each, lr=3e-4, fused=True) for each in held]

    def modules(self) -> list[nn.Module]:
        """The networks that change."""
        return [self.actor, self.critic, self.target]

    def native(self, sizes: Sizes, num_threads: int) -> Callable[[Rows], None]:
        """A step in native code."""
        shape, size = (sizes.obs_size,), sizes.num_actions
        losses = (
            SacActorLoss(self.actor, self.critic, shape, size),
            SacCriticLoss(self.actor, self.critic, self.target, shape, size),
            TemperatureLoss(self.log_temperature),
        )
        actor, critic, temperature = (
            LossLearner(loss, optimizer, num_threads)
            for loss, optimizer in zip(losses, self.optimizers, strict=True)
        )
        target = TargetNetwork(self.critic, self.target)

        def step(rows: Rows) -> None:
            heat = np.full((sizes.rows, 1), self.log_temperature.detach().exp().item(), np.float32)
            noise, next_noise = (
                torch.randn(sizes.rows, sizes.num_actions).numpy() for _ in range(2)
            )
            kept = {name: each for name, each in rows.items() if name != "index"}
            critic.step({**kept, "noise": next_noise, "temperature": heat})
            found = actor.step({"obs": rows["obs"], "noise": noise, "temperature": heat})
            excess = found.outputs[:, 1].mean() + self.aim
            temperature.step({"excess": np.full((1, 1), excess)})
            target.move(_SHARE)

        return step

    def torch_step(self, rows: Rows) -> None:
        """The same step in torch, as Stable-Baselines3 writes it."""
        actor_optimizer, critic_optimizer, heat_optimizer = self.optimizers
        action, log_prob = self._draw(rows["obs"])
        heat = self.log_temperature.detach().exp()
        _descend(heat_optimizer, -(self.log_temperature * (log_prob + self.aim).detach()).mean())
        with torch.no_grad():
            next_action, next_log_prob = self._draw(rows["next_obs"])
            following = torch.cat(self.target(rows["next_obs"], next_action), 1).amin(1, True)
            following = following - heat * next_log_prob
            aim = rows["reward"] + rows["discount"] * following
        errors = [functional.mse_loss(q, aim) for q in self.critic(rows["obs"], rows["action"])]
        _descend(critic_optimizer, 0.5 * (errors[0] + errors[1]))
        least = torch.cat(self.critic(rows["obs"], action), 1).amin(1, True)
        _descend(actor_optimizer, (heat * log_prob - least).mean())
        with torch.no_grad():
            pairs = zip(self.critic.parameters(), self.target.parameters(), strict=True)
            for source, target in pairs:
                target.mul_(1 - _SHARE).add_(source, alpha=_SHARE)

    def _draw(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(obs)
        normal: Any = torch.distributions.Normal(mean, log_std.exp(), validate_args=False)
        number = mean + log_std.exp() * torch.randn(mean.shape)
        action = number.tanh()
        density = normal.log_prob(number) - (1 - action.square() + 1e-6).log()
        return action, density.sum(1, keepdim=True)


KINDS: dict[str, type[Dqn] | type[Sac]] = {"dqn": Dqn, "sac": Sac}


def make_rows(kind: str, sizes: Sizes, seed: int) -> Rows:
    """One batch of rows."""
    random = np.random.default_rng(seed)
    index = random.integers(sizes.num_actions, size=(sizes.rows, 1))
    one_hot = np.eye(sizes.num_actions, dtype=np.float32)[index[:, 0]]
    box = random.uniform(-1, 1, (sizes.rows, sizes.num_actions)).astype(np.float32)
    obs, next_obs = random.normal(size=(2, sizes.rows, sizes.obs_size)).astype(np.float32)
    return {
        "obs": obs,
        "action": one_hot if kind == "dqn" else box,
        "reward": random.normal(size=(sizes.rows, 1)).astype(np.float32),
        "discount": np.full((sizes.rows, 1), 0.99, np.float32),
        "next_obs": next_obs,
        "index": index,
    }


def contestant(
    kind: str, engine: str, sizes: Sizes, num_threads: int, seed: int, most_s: float
) -> Callable[[], int]:
    """A function that makes some steps and returns how many."""
    made, rows = KINDS[kind](sizes, seed), make_rows(kind, sizes, seed)
    num_steps = min(100, max(5, 20_000 // sizes.rows))
    if engine == "native":
        given = {name: each for name, each in rows.items() if name != "index"}
        step: Callable[[Rows], None] = made.native(sizes, num_threads)
    else:
        given = {name: torch.from_numpy(each) for name, each in rows.items()}
        step = made.torch_step

    def run() -> int:
        torch.set_num_threads(num_threads if engine == "torch" else 1)
        begin = time.perf_counter()
        for count in range(num_steps):
            # two threads of torch are slow on a machine where other processes compute, too
            if count and time.perf_counter() - begin > most_s:
                return count
            step(given)
        return num_steps

    return run


def _descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


def _nothing(_: object) -> None:
    pass
