# SPDX-License-Identifier: Apache-2.0
"""Gradient steps of DQN, SAC and R2D2 for `rollouts bench learner`, native code against torch.

A step of DQN or R2D2 is one step of Adam. A step of SAC is three of them, for critics, actor and
temperature, and an update of the target critics. Rows of R2D2 are sequences of 16 steps and a
burn-in of 4, for layers and a GRU.
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
from rollouts.learner.sequence_losses import SequenceDqnLoss, inverse_root, root
from rollouts.support.extras import needs

with needs("torch", "rollouts bench learner"):
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

Rows = dict[str, Any]
_MAX_NORM = 10.0
_SHARE = 0.005
_STEPS, _BURN_IN, _N, _DISCOUNT = 20, 4, 5, 0.99


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


class _Remembering(nn.Module):
    """Layers, a GRU as wide as the last of them, and values of all steps."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        size = sizes.layers[-1]
        self.layers = network(sizes.obs_size, sizes.layers[:-1], size)
        self.gru, self.value = nn.GRU(size, size), nn.Linear(size, sizes.num_actions)

    def forward(self, obs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        hidden, last = self.gru(self.layers(obs).relu(), state[0][None])
        return self.value(hidden), (last[0],)


class R2d2:
    """A network with memory, its target network and Adam."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        torch.manual_seed(seed)
        self.q = _Remembering(sizes)
        self.target = copy.deepcopy(self.q)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=3e-4, fused=True)

    def modules(self) -> list[nn.Module]:
        """The networks that change."""
        return [self.q]

    def native(self, sizes: Sizes, num_threads: int) -> Callable[[Rows], None]:
        """A step in native code."""
        loss = SequenceDqnLoss(
            self.q,
            self.target,
            (sizes.obs_size,),
            sizes.num_actions,
            ((sizes.layers[-1],),),
            num_steps=_STEPS,
            burn_in=_BURN_IN,
            n=_N,
            discount=_DISCOUNT,
            rescale=True,
        )
        learner = LossLearner(loss, self.optimizer, num_threads)
        return lambda rows: _nothing(learner.step(rows, max_grad_norm=_MAX_NORM))

    def torch_step(self, rows: Rows) -> None:
        """The same step in torch."""
        obs, state = rows["obs"].transpose(0, 1), (rows["state_0"],)
        values = self._unroll(self.q, obs, state)
        with torch.no_grad():
            following = self._unroll(self.target, obs, state)
            best = following.gather(2, values.argmax(2, keepdim=True))[..., 0]
            # these sequences do not end: the last targets are of fewer steps
            end = (torch.arange(_STEPS) + _N).clamp(max=_STEPS)
            factor = _DISCOUNT ** (end - torch.arange(_STEPS))
            target = root(rows["reward"].T + factor[:, None] * inverse_root(best)[end])
        value = values[:-1].gather(2, rows["index"].transpose(0, 1))[..., 0]
        loss = functional.smooth_l1_loss(value[_BURN_IN:], target[_BURN_IN:])
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.q.parameters(), _MAX_NORM)
        self.optimizer.step()

    def _unroll(self, net: _Remembering, obs: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        warm, (last,) = net(obs[:_BURN_IN], state)
        return torch.cat([warm, net(obs[_BURN_IN:], (last.detach(),))[0]])


KINDS: dict[str, type[Dqn] | type[Sac] | type[R2d2]] = {"dqn": Dqn, "sac": Sac, "r2d2": R2d2}


def _sequences(sizes: Sizes, seed: int) -> Rows:
    random, count = np.random.default_rng(seed), sizes.rows
    index = random.integers(sizes.num_actions, size=(count, _STEPS, 1))
    rewards = np.pad(random.normal(size=(count, _STEPS)), ((0, 0), (0, _N - 1)))
    total = np.sum([_DISCOUNT**i * rewards[:, i : i + _STEPS] for i in range(_N)], 0)
    step = np.arange(_STEPS)
    end = np.minimum(step + _N, _STEPS)
    factor = np.tile((_DISCOUNT ** (end - step)).astype(np.float32), (count, 1))
    weight = (step >= _BURN_IN) / np.float32(_STEPS - _BURN_IN)
    return {
        "obs": random.normal(size=(count, _STEPS + 1, sizes.obs_size)).astype(np.float32),
        "action": np.eye(sizes.num_actions, dtype=np.float32)[index[..., 0]],
        "state_0": random.normal(size=(count, sizes.layers[-1])).astype(np.float32),
        "reward": total.astype(np.float32),
        "discount": factor * (step + _N <= _STEPS),
        "discount_of_end": factor * (step + _N > _STEPS),
        "is_end": np.tile(np.arange(_STEPS + 1) == _STEPS, (count, 1)).astype(np.float32),
        "weight": np.tile(weight.astype(np.float32), (count, 1)),
        "index": index,
    }


def make_rows(kind: str, sizes: Sizes, seed: int) -> Rows:
    """One batch of rows."""
    if kind == "r2d2":
        return _sequences(sizes, seed)
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
