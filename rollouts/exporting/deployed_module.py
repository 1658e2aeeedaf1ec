# SPDX-License-Identifier: Apache-2.0
"""`DeployedModule`: a policy and the wrappers around it as one torch module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rollouts.errors import SpecError
from rollouts.exporting.deployment import Surroundings
from rollouts.policies.gaussian import GaussianHead, OrnsteinUhlenbeckHead
from rollouts.policies.inputs import as_input
from rollouts.policies.logit_masks import mask_logits
from rollouts.policies.normalized import normalized
from rollouts.policies.sources import state_of
from rollouts.policy import CategoricalHead, MultiCategoricalHead, SquashedGaussianHead


class DeployedModule(nn.Module):
    """Maps observations of the bare environment to actions that it takes.

    Attributes:
      initial: States of the network at the start of an episode, without the dimension of rows.
      num_states: Number of these states.
      is_discrete: Whether the head chooses among logits, which are then an output, too.
    """

    mean: Tensor
    deviation: Tensor
    scale: Tensor
    offset: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self, network: nn.Module, head: Any, around: Surroundings, *, noise: bool, masks: bool
    ) -> None:
        """Takes the network unchanged, in evaluation mode.

        Args:
          network: A network for `rollouts.TorchPolicy` or `rollouts.RecurrentTorchPolicy`.
          head: Its action head.
          around: The work before and after the network.
          noise: Whether the last argument is the noise with which actions are drawn.
          masks: Whether an argument is a mask of the allowed actions.

        Raises:
          SpecError: The head does not belong to this library.
        """
        super().__init__()
        known = [CategoricalHead, MultiCategoricalHead, GaussianHead, SquashedGaussianHead]
        if not noise:
            known.append(OrnsteinUhlenbeckHead)
        if type(head) not in known:
            raise SpecError(
                f"the policy's head is a {type(head).__name__}, expected one of "
                f"{', '.join(one.__name__ for one in known)}: other heads choose in Python"
            )
        self.network, self._head, self._noise, self._masks = network, head, noise, masks
        self.is_discrete = isinstance(head, CategoricalHead | MultiCategoricalHead)
        self.initial: tuple[Tensor, ...] = state_of(network)
        self.num_states = len(self.initial)
        self._limit = around.limit
        for name in ("mean", "deviation", "scale", "offset", "low", "high"):
            value = getattr(around, name)
            # torch.export miscounts buffers that are None
            if value is None:
                setattr(self, name, None)
            else:
                self.register_buffer(name, torch.from_numpy(value.copy()), persistent=True)

    def forward(self, obs: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Acts for obs (B, *obs_shape).

        Args:
          others: States (B, ...), then masks (B, A) bool and noise, if the module takes them. Noise
            is (B, *action_shape) of a normal distribution for Box actions, (B, A) of the standard
            Gumbel distribution for logits.
        Returns:
          (action (B, *action_shape), [logits (B, A)], *new states).
        """
        params, states = self.params(obs, *others[: self.num_states])
        rest = list(others[self.num_states :])
        if self._masks:
            params = (mask_logits(params[0], rest.pop(0)), *params[1:])
        logits = params[:1] if self.is_discrete else ()
        action = self._drawn(params, rest[0]) if self._noise else self._head.most_likely(params)
        return (self._leaving(action), *logits, *states)

    def params(self, obs: Tensor, *states: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The inputs of the head, and the new states."""
        if self.mean is not None:
            obs = normalized(obs, self.mean, self.deviation, self._limit)
        obs = as_input(self.network, obs)
        if self.num_states:
            *params, _, new = self.network(obs, tuple(states))
            return tuple(params), tuple(new)
        *params, _ = self.network(obs)
        return tuple(params), ()

    def _drawn(self, params: tuple[Tensor, ...], noise: Tensor) -> Tensor:
        head = self._head
        if isinstance(head, CategoricalHead | MultiCategoricalHead):
            drawn: Tensor = head.most_likely((params[0] + noise,))
            return drawn
        mean, log_std = params
        raw = mean + log_std.exp().expand_as(mean) * noise
        return head.scaled(raw.tanh()) if isinstance(head, SquashedGaussianHead) else raw

    def _leaving(self, action: Tensor) -> Tensor:
        if self.low is not None:
            action = torch.minimum(torch.maximum(action, self.low), self.high)
        return action if self.scale is None else action * self.scale + self.offset


class Scores(nn.Module):
    """The part of a `DeployedModule` that C computes: logits, or the action, and the new states."""

    def __init__(self, deployed: DeployedModule) -> None:
        super().__init__()
        self.deployed = deployed
        if deployed.num_states:
            self.initial_state = deployed.network.initial_state

    def forward(self, obs: Tensor, state: tuple[Tensor, ...] = ()) -> tuple[Any, ...]:
        """Returns the outputs of a policy's module, and the new state if there is one."""
        if self.deployed.is_discrete:
            params, states = self.deployed.params(obs, *state)
            first = params[0]
        else:
            first, *states = self.deployed(obs, *state)
        return (first, tuple(states)) if self.deployed.num_states else (first,)
