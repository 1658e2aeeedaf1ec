# SPDX-License-Identifier: Apache-2.0
"""SAC's losses for discrete actions (Christodoulou 2019), in the form of row_losses.py.

Instead of drawing an action, as for a Box, they average over all actions, so rows have no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from rollouts.learner.row_losses import (
    Outputs,
    RowLoss,
    of_difference,
    of_weight,
    times,
    transition,
)
from rollouts.support.extras import needs

with needs("torch", "rollouts.learner.discrete_losses"):
    import torch
    from torch import Tensor, nn


class DiscreteSoftValueLoss(RowLoss):
    """Discrete SAC's loss of one critic, to which a `ValueLoss` of another critic may be added.

    Rows are `obs`, `action` (one-hot), `reward`, `discount`, `next_obs` and `temperature`, and
    perhaps `weight`. Outputs are those of `DqnLoss`, the target (B, 1), and the values of all
    actions (B, num_actions).
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
        weighted: bool = False,
    ) -> None:
        """Takes the networks.

        Args:
          actor: Maps obs to logits (B, num_actions).
          critic: Maps obs to values (B, num_actions).
          target_critic: Maps obs to such values, one array for each of several networks.
          huber, weighted: As for `DqnLoss`.
        """
        shapes = transition(obs_shape, num_actions) | {"temperature": (1,)} | of_weight(weighted)
        super().__init__(shapes, (actor, target_critic))
        self.actor, self.critic, self.target_critic = actor, critic, target_critic
        self.huber = huber

    def forward(self, rows: Tensor) -> Outputs:
        """Returns the loss, the difference, the value, the target and all values."""
        obs, action, reward, discount, next_obs, temperature, *weights = self.parts(rows)
        log_prob = self.actor(next_obs).log_softmax(1)
        following = _least(self.target_critic(next_obs)) - temperature * log_prob
        target = reward + discount * (log_prob.exp() * following).sum(1, keepdim=True)
        values = self.critic(obs)
        value = (values * action).sum(1, keepdim=True)
        off = value - target
        return times(of_difference(off, self.huber), weights), off, value, target, values


class DiscreteSacActorLoss(RowLoss):
    """Discrete SAC's loss of the actor: the mean, over actions by their probabilities, of the
    temperature times the log-probability, minus the least value.

    Rows are `obs` and `temperature`. Outputs are the loss, the mean log-probability, which is minus
    the entropy, and the plain mean of the log-probabilities.
    """

    def __init__(
        self, actor: nn.Module, critic: nn.Module, obs_shape: tuple[int, ...], num_actions: int
    ) -> None:
        """Takes an actor and critics, as `DiscreteSoftValueLoss` takes actor and target critics."""
        super().__init__({"obs": obs_shape, "temperature": (1,)}, (critic,))
        self.actor, self.critic, self.num_actions = actor, critic, num_actions

    def forward(self, rows: Tensor) -> Outputs:
        """Returns the loss, the mean log-probability and the plain mean, (B, 1) each."""
        obs, temperature = self.parts(rows)
        log_prob = self.actor(obs).log_softmax(1)
        prob = log_prob.exp()
        worth = temperature * log_prob - _least(self.critic(obs))
        loss = (prob * worth).sum(1, keepdim=True)
        return loss, (prob * log_prob).sum(1, keepdim=True), log_prob.mean(1, keepdim=True)


def _least(values: Sequence[Tensor]) -> Tensor:
    """The smallest value (B, num_actions) of all networks."""
    return reduce(torch.minimum, values)
