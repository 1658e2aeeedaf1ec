# SPDX-License-Identifier: Apache-2.0
"""`NativeDiscreteSAC`: Tianshou's SAC of discrete actions, whose steps native code makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.algorithm.modelfree.discrete_sac import (
    DiscreteSAC,
    DiscreteSACPolicy,
    DiscreteSACTrainingStats,
)
from tianshou.utils.conversion import to_optional_float
from torch import Tensor, nn

from rollouts.learner.discrete_losses import DiscreteSacActorLoss
from rollouts.learner.loss_learner import LossLearner
from rollouts.learner.row_losses import ValueLoss
from rollouts.machine.cpu_count import usable_cpus

from ..shared.native_training import Networks, are_as_read, own_method
from .native_steps import (
    NativeSteps,
    optimizers_of,
    parts_of,
    refuse_shared_critics,
    why_not_batch,
    why_not_choices,
)

Array = NDArray[Any]


class NativeDiscreteSAC(NativeSteps["_Trainer"], DiscreteSAC):
    """Tianshou's DiscreteSAC with the steps of `NativeSteps`."""

    def _update_with_batch(self, batch: Any) -> Any:
        trainer = self._reader.choose(
            self.train_engine,
            lambda: _why_not(self, batch),
            lambda: Networks(
                self, [each._optim for each in optimizers_of(self)], (batch.obs.shape[1:],)
            ),
            lambda: _Trainer(self, batch.obs.shape[1:]),
        )
        return super()._update_with_batch(batch) if trainer is None else trainer.train(self, batch)


class _Trainer:
    """Discrete SAC's gradient steps."""

    def __init__(self, algorithm: Any, obs_shape: tuple[int, ...]) -> None:
        """Reads the networks. Raises SpecError where that is not possible."""
        refuse_shared_critics(algorithm)
        policy, threads = algorithm.policy, usable_cpus()
        self._num_actions = int(policy.action_space.n)
        critics = algorithm.critic, algorithm.critic2
        optims = algorithm.critic_optim, algorithm.critic2_optim
        self._critics = [
            LossLearner(
                ValueLoss(_ChosenValue(critic), obs_shape, self._num_actions, weighted=True),
                optim._optim,
                threads,
            )
            for critic, optim in zip(critics, optims, strict=True)
        ]
        actor = DiscreteSacActorLoss(
            _Logits(policy.actor), _Both(*critics), obs_shape, self._num_actions
        )
        self._actor = LossLearner(actor, algorithm.policy_optim._optim, threads)

    def is_as_read(self) -> bool:
        """As `NativeTrainer.is_as_read`."""
        return are_as_read(self._actor, *self._critics)

    def train(self, algorithm: Any, batch: Any) -> Any:
        """As `DiscreteSAC._update_with_batch`."""
        parts = parts_of(batch, batch.pop("weight", 1.0))
        parts["action"] = np.eye(self._num_actions, dtype=np.float32)[batch.act]
        optims = algorithm.critic_optim, algorithm.critic2_optim
        # both losses come before either step, so that numbers that are not finite change nothing
        found = [each.compute(parts) for each in self._critics]
        for each, optim in zip(self._critics, optims, strict=True):
            each.apply(max_grad_norm=optim._max_grad_norm)
        offs = torch.from_numpy(np.stack([each.outputs[:, 1] for each in found]))
        batch.weight = offs.mean(0)
        _draw(algorithm.policy, len(batch.obs), self._num_actions)
        heat = np.full((len(batch.obs), 1), algorithm.alpha.value, np.float32)
        actor = self._actor.step(
            {"obs": parts["obs"], "temperature": heat},
            max_grad_norm=algorithm.policy_optim._max_grad_norm,
        )
        alpha_loss = algorithm.alpha.update(torch.from_numpy(-actor.outputs[:, 1]))
        algorithm._update_lagged_network_weights()
        return DiscreteSACTrainingStats(
            actor_loss=actor.loss,
            critic1_loss=found[0].loss,
            critic2_loss=found[1].loss,
            alpha=to_optional_float(algorithm.alpha.value),
            alpha_loss=to_optional_float(alpha_loss),
        )


def _draw(policy: Any, count: int, num_actions: int) -> None:
    """Draws from torch's generator as the policy does; the drawn actions are not used."""
    if policy.is_within_training_step or not policy.deterministic_eval:
        torch.multinomial(torch.ones(count, num_actions), 1, True)


class _ChosenValue(nn.Module):
    """The value of an action that is given as one-hot numbers."""

    def __init__(self, critic: nn.Module) -> None:
        super().__init__()
        self.critic = critic

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        value: Tensor = (self.critic(obs) * action).sum(1, keepdim=True)
        return value


class _Both(nn.Module):
    """Two critics, each with its own values of all actions."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(obs), self.second(obs)


class _Logits(nn.Module):
    """An actor's logits alone."""

    def __init__(self, actor: nn.Module) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, obs: Tensor) -> Tensor:
        logits: Tensor = self.actor(obs)[0]
        return logits


def _why_not(algorithm: Any, batch: Any) -> str:
    policy = algorithm.policy
    if own := own_method(policy, DiscreteSACPolicy, ("forward", "__call__")):
        return f"{type(policy).__name__} has its own {own}"
    return why_not_batch(algorithm, batch, optimizers_of(algorithm)) or why_not_choices(
        policy.action_space, batch.act
    )
