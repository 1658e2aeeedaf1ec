# SPDX-License-Identifier: Apache-2.0
"""Losses of DQN, SAC and TD3 as modules that compute one number for each row.

A module reads a row in which all parts for its loss lie side by side, and has the networks as
layers. So the networks, the loss and the target are one program, and its reverse pass also gives
the gradient through a critic's action. No `no_grad` is needed: parameters that the optimiser holds
are changed, and all others stay the same. `fixed` names the networks that the optimiser must not
hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.support.extras import needs

with needs("torch", "rollouts.learner.row_losses"):
    import torch
    from torch import Tensor, nn

Array = NDArray[Any]
Outputs = tuple[Tensor, ...]


class RowLoss(nn.Module):
    """A loss of rows: `forward` returns it (B, 1), and other interesting values of each row.

    Attributes:
      shapes: The shape of each part of a row.
      fixed: Networks that this loss does not train.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], fixed: tuple[nn.Module, ...] = ()
    ) -> None:
        super().__init__()
        self.shapes = dict(shapes)
        self.fixed = fixed

    @property
    def row_size(self) -> int:
        """Number of numbers in a row."""
        return sum(map(math.prod, self.shapes.values()))

    def rows(self, parts: Mapping[str, Array]) -> NDArray[np.float32]:
        """Returns parts (B, ...) as rows (B, row_size).

        Raises:
          SpecError: A part is missing or has another size.
        """
        if parts.keys() != self.shapes.keys():
            raise SpecError(f"rows have {sorted(parts)}, expected {sorted(self.shapes)}")
        count = len(next(iter(parts.values())))
        for name, shape in self.shapes.items():
            if np.size(parts[name]) != count * math.prod(shape):
                raise SpecError(
                    f"{name} has shape {np.shape(parts[name])}, expected {(count, *shape)}"
                )
        flat = [
            np.reshape(parts[name], (count, math.prod(shape)))
            for name, shape in self.shapes.items()
        ]
        return np.concatenate(flat, 1, dtype=np.float32, casting="unsafe")

    def parts(self, rows: Tensor) -> list[Tensor]:
        """The parts (B, *shape) of rows, in their order."""
        found, start = [], 0
        for shape in self.shapes.values():
            stop = start + math.prod(shape)
            found.append(rows[:, start:stop].reshape(-1, *shape))
            start = stop
        return found


class DqnLoss(RowLoss):
    """DQN's loss (Mnih et al. 2015): Huber's loss between the chosen action's value and its target.

    Rows are `obs`, `action` (one-hot), `reward`, `discount` and `next_obs`, and perhaps `weight`.
    The discount is 0 where the episode ended; for n steps it is the product of their discounts.
    Outputs are the loss, the difference from the target, whose size is a replay's priority, and the
    chosen action's value.
    """

    def __init__(
        self,
        network: nn.Module,
        target_network: nn.Module,
        obs_shape: tuple[int, ...],
        num_actions: int,
        *,
        double: bool = False,
        weighted: bool = False,
        huber: float | None = 1.0,
    ) -> None:
        """Takes networks that map obs (B, *obs_shape) to values (B, num_actions).

        Args:
          double: Whether `network` chooses the action that `target_network` values (van Hasselt et
            al. 2016).
          weighted: Whether rows have a `weight`, by which the loss is multiplied.
          huber: Difference above which Huber's loss is linear; None: the squared difference.
        """
        shapes = transition(obs_shape, num_actions) | of_weight(weighted)
        super().__init__(shapes, (target_network,))
        self.network, self.target_network, self.double_q = network, target_network, double
        self.huber = huber

    def forward(self, rows: Tensor) -> Outputs:
        """Returns the loss, the difference and the value, (B, 1) each."""
        obs, action, reward, discount, next_obs, *weights = self.parts(rows)
        value = (self.network(obs) * action).sum(1, keepdim=True)
        following = self.target_network(next_obs)
        if self.double_q:
            best = of_first_maximum(self.network(next_obs), following)
        else:
            best = following.amax(1, keepdim=True)
        off = value - (reward + discount * best)
        return times(of_difference(off, self.huber), weights), off, value


class ValueLoss(RowLoss):
    """The loss of a critic's value for a given target.

    Rows are `obs`, `action` and `target`, and perhaps `weight`. Outputs are those of `DqnLoss`.
    """

    def __init__(
        self,
        critic: nn.Module,
        obs_shape: tuple[int, ...],
        num_actions: int,
        *,
        huber: float | None = None,
        weighted: bool = False,
    ) -> None:
        """Takes a network that maps obs and actions (B, num_actions) to a value (B, 1).

        Args:
          huber, weighted: As for `DqnLoss`.
        """
        shapes = {"obs": obs_shape, "action": (num_actions,), "target": (1,)}
        super().__init__(shapes | of_weight(weighted))
        self.critic, self.huber = critic, huber

    def forward(self, rows: Tensor) -> Outputs:
        """Returns the loss, the difference and the value, (B, 1) each."""
        obs, action, target, *weights = self.parts(rows)
        value = self.critic(obs, action)
        off = value - target
        return times(of_difference(off, self.huber), weights), off, value


class SoftValueLoss(RowLoss):
    """SAC's loss of one critic, to which a `ValueLoss` of another critic may be added.

    Rows are those of `SacCriticLoss`. Outputs are those of `DqnLoss` and the target.
    """

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module,
        target_critic: nn.Module,
        obs_shape: tuple[int, ...],
        num_actions: int,
        *,
        huber: float | None = None,
        epsilon: float = 1e-6,
        weighted: bool = False,
    ) -> None:
        """Takes the networks as in `SacCriticLoss`, but a critic with one value (B, 1).

        Args:
          huber, weighted: As for `DqnLoss`.
          epsilon: As for `SacCriticLoss`.
        """
        super().__init__(_soft(obs_shape, num_actions, weighted), (actor, target_critic))
        self.actor, self.critic, self.target_critic = actor, critic, target_critic
        self.huber, self.epsilon = huber, epsilon

    def forward(self, rows: Tensor) -> Outputs:
        """Returns the loss, the difference, the value and the target, (B, 1) each."""
        obs, action, reward, discount, next_obs, noise, temperature, *weights = self.parts(rows)
        next_action, log_prob = squashed(self.actor(next_obs), noise, self.epsilon)
        following = torch.cat(self.target_critic(next_obs, next_action), 1).amin(1, keepdim=True)
        target = reward + discount * (following - temperature * log_prob)
        value = self.critic(obs, action)
        off = value - target
        return times(of_difference(off, self.huber), weights), off, value, target


class SacCriticLoss(RowLoss):
    """SAC's loss of the critics (Haarnoja et al. 2018): half the sum of all their squared errors.

    Rows are `obs`, `action`, `reward`, `discount`, `next_obs`, `noise` of the next action (standard
    normal) and `temperature`. Outputs after the loss are means over the critics: of their
    differences from the target, of their values, and of the differences' sizes.
    """

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module,
        target_critic: nn.Module,
        obs_shape: tuple[int, ...],
        num_actions: int,
        *,
        epsilon: float = 1e-6,
        weighted: bool = False,
    ) -> None:
        """Takes the networks.

        Args:
          actor: Maps obs to mean (B, num_actions) and log_std of a Gaussian, whose tanh is the
            action.
          critic, target_critic: Map obs and actions to several values (B, 1), one for each network.
          epsilon: Added to the slope of tanh in the density.
          weighted: As for `DqnLoss`.
        """
        super().__init__(_soft(obs_shape, num_actions, weighted), (actor, target_critic))
        self.actor, self.critic, self.target_critic = actor, critic, target_critic
        self.epsilon = epsilon

    def forward(self, rows: Tensor) -> Outputs:
        """Returns the loss, the difference, the value and the size, (B, 1) each."""
        obs, action, reward, discount, next_obs, noise, temperature, *weights = self.parts(rows)
        next_action, log_prob = squashed(self.actor(next_obs), noise, self.epsilon)
        following = torch.cat(self.target_critic(next_obs, next_action), 1).amin(1, keepdim=True)
        target = reward + discount * (following - temperature * log_prob)
        errors, *means = _errors(self.critic(obs, action), target)
        return times(0.5 * errors, weights), *means


class SacActorLoss(RowLoss):
    """SAC's loss of the actor: the temperature times the log-density, minus the least value.

    Rows are `obs`, `noise` (standard normal) and `temperature`. Outputs are the loss, the
    log-density of the action and its least value.
    """

    def __init__(
        self,
        actor: nn.Module,
        critic: nn.Module,
        obs_shape: tuple[int, ...],
        num_actions: int,
        *,
        epsilon: float = 1e-6,
    ) -> None:
        """Takes the networks as in `SacCriticLoss`."""
        shapes = {"obs": obs_shape, "noise": (num_actions,), "temperature": (1,)}
        super().__init__(shapes, (critic,))
        self.actor, self.critic, self.epsilon = actor, critic, epsilon

    def forward(self, rows: Tensor) -> Outputs:
        """Returns the loss, the log-density and the value, (B, 1) each."""
        obs, noise, temperature = self.parts(rows)
        action, log_prob = squashed(self.actor(obs), noise, self.epsilon)
        value = torch.cat(self.critic(obs, action), 1).amin(1, keepdim=True)
        return temperature * log_prob - value, log_prob, value


class TemperatureLoss(RowLoss):
    """SAC's loss of the temperature's logarithm. A row is `excess`: the mean log-density of a
    minibatch's actions plus the target entropy."""

    log_temperature: Tensor

    def __init__(self, log_temperature: Tensor) -> None:
        """Takes the logarithm, a tensor (1,) that an optimiser holds."""
        super().__init__({"excess": (1,)})
        self.register_buffer("log_temperature", log_temperature)

    def forward(self, rows: Tensor) -> Outputs:
        """Returns the loss (B, 1)."""
        return (rows * self.log_temperature * -1.0,)


class Td3CriticLoss(RowLoss):
    """TD3's loss of the critics (Fujimoto et al. 2018): the sum of all their squared errors.

    Rows are `obs`, `action`, `reward`, `discount`, `next_obs` and the `noise` that smooths the next
    action. Outputs are those of `SacCriticLoss`.
    """

    def __init__(
        self,
        target_actor: nn.Module,
        critic: nn.Module,
        target_critic: nn.Module,
        obs_shape: tuple[int, ...],
        num_actions: int,
        *,
        weighted: bool = False,
    ) -> None:
        """Takes the networks; the actor maps obs to actions (B, num_actions) within -1 and 1.

        Args:
          weighted: As for `DqnLoss`.
        """
        shapes = transition(obs_shape, num_actions) | {"noise": (num_actions,)}
        shapes |= of_weight(weighted)
        super().__init__(shapes, (target_actor, target_critic))
        self.target_actor, self.critic, self.target_critic = target_actor, critic, target_critic

    def forward(self, rows: Tensor) -> Outputs:
        """Returns the loss, the difference, the value and the size, (B, 1) each."""
        obs, action, reward, discount, next_obs, noise, *weights = self.parts(rows)
        next_action = (self.target_actor(next_obs) + noise).clamp(-1.0, 1.0)
        following = torch.cat(self.target_critic(next_obs, next_action), 1).amin(1, keepdim=True)
        errors, *means = _errors(self.critic(obs, action), reward + discount * following)
        return times(errors, weights), *means


class Td3ActorLoss(RowLoss):
    """TD3's loss of the actor: minus the first critic's value of its action. A row is `obs`."""

    def __init__(self, actor: nn.Module, critic: nn.Module, obs_shape: tuple[int, ...]) -> None:
        """Takes the networks; only the first of the critic's values counts."""
        super().__init__({"obs": obs_shape}, (critic,))
        self.actor, self.critic = actor, critic

    def forward(self, rows: Tensor) -> Outputs:
        """Returns the loss (B, 1)."""
        (obs,) = self.parts(rows)
        return (self.critic(obs, self.actor(obs))[0] * -1.0,)


def squashed(normal: Outputs, noise: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Returns tanh(mean + std * noise) and its log-density (B, 1); `normal` is mean and log_std."""
    mean, log_std = normal
    number = mean + log_std.exp() * noise
    # the slope of tanh, exact even where 1 - tanh(x)**2 is only rounding
    small = (number.abs() * -2.0).exp()
    slope = 4.0 * small / (1.0 + small).square()
    density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    log_prob = (density - (slope + epsilon).log()).sum(1, keepdim=True)
    return number.tanh(), log_prob


def transition(obs_shape: tuple[int, ...], num_actions: int) -> dict[str, tuple[int, ...]]:
    """The shapes of a step's parts."""
    return {
        "obs": obs_shape,
        "action": (num_actions,),
        "reward": (1,),
        "discount": (1,),
        "next_obs": obs_shape,
    }


def _soft(
    obs_shape: tuple[int, ...], num_actions: int, weighted: bool
) -> dict[str, tuple[int, ...]]:
    return {
        **transition(obs_shape, num_actions),
        "noise": (num_actions,),
        "temperature": (1,),
        **of_weight(weighted),
    }


def of_weight(weighted: bool) -> dict[str, tuple[int, ...]]:
    """The shape of a row's weight; empty if rows have none."""
    return {"weight": (1,)} if weighted else {}


def times(loss: Tensor, weights: list[Tensor]) -> Tensor:
    """The loss times the rows' weight, if they have one."""
    return loss * weights[0] if weights else loss


def of_difference(off: Tensor, huber: float | None) -> Tensor:
    """Huber's loss of a difference, or its square."""
    if huber is None:
        return off.square()
    near = off.clamp(-huber, huber)
    return near * off - 0.5 * near.square()


def _errors(values: tuple[Tensor, ...], target: Tensor) -> Outputs:
    """The sum of squared differences from the target; means of differences, values and sizes."""
    both = torch.cat(values, 1)
    offs = both - target
    means = [each.mean(1, keepdim=True) for each in (offs, both, offs.abs())]
    return offs.square().sum(1, keepdim=True), *means


def of_first_maximum(keys: Tensor, values: Tensor) -> Tensor:
    """The value at the place of the first largest key in the last dimension, which becomes 1."""
    best, found = keys[..., :1], values[..., :1]
    for place in range(1, keys.shape[-1]):
        key = keys[..., place : place + 1]
        found = torch.where(key > best, values[..., place : place + 1], found)
        best = torch.maximum(best, key)
    return found
