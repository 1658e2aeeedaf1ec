# SPDX-License-Identifier: Apache-2.0
"""`train` of DQN, SAC, TD3 and DDPG in native code, where possible; see native_train.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from rollouts.learner.loss_learner import LossLearner, TargetNetwork
from rollouts.learner.row_losses import (
    DqnLoss,
    SacActorLoss,
    SacCriticLoss,
    Td3ActorLoss,
    Td3CriticLoss,
    TemperatureLoss,
)
from rollouts.machine.cpu_count import usable_cpus

from ..shared.missing import needs
from ..shared.native_training import NativeTrainer, are_as_read

try:
    from stable_baselines3 import DQN, SAC, TD3
    from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution
    from stable_baselines3.sac.policies import Actor
except ImportError as error:
    raise needs("sb3", error) from error

Array = NDArray[Any]


class ModelTrainer(NativeTrainer, Protocol):
    """The learners of one model."""

    @property
    def train(self) -> Callable[..., None]:
        """Makes the steps and the logs of the algorithm's own `train`, with its arguments."""


@dataclass(frozen=True, slots=True)
class TrainerKind:
    """The trainer of an algorithm.

    Attributes:
      find_reason: Returns the reason why native code does not train a model; "" for none.
      parts_of: Returns the optimisers and networks from which a trainer is made.
      make: Makes a trainer.
    """

    find_reason: Callable[[Any], str]
    parts_of: Callable[[Any], tuple[Any, ...]]
    make: Callable[[Any], ModelTrainer]


class DqnTrainer:
    """DQN's gradient steps."""

    def __init__(self, model: Any) -> None:
        """Reads the networks. Raises SpecError where that is not possible."""
        self._num_actions = int(model.action_space.n)
        shape = model.observation_space.shape
        loss = DqnLoss(model.q_net, model.q_net_target, shape, self._num_actions)
        self._learner = LossLearner(loss, model.policy.optimizer, usable_cpus())

    def is_as_read(self) -> bool:
        """See `NativeTrainer`."""
        return are_as_read(self._learner)

    def train(self, model: Any, gradient_steps: int, batch_size: int) -> None:
        """As `DQN.train`."""
        model._update_learning_rate(model.policy.optimizer)
        losses = []
        for _ in range(gradient_steps):
            parts = _sample(model, batch_size)
            index = parts["action"].reshape(-1).astype(np.int64)
            parts["action"] = np.zeros((len(index), self._num_actions), np.float32)
            parts["action"][np.arange(len(index)), index] = 1
            found = self._learner.step(parts, max_grad_norm=model.max_grad_norm)
            losses.append(found.loss)
        model._n_updates += gradient_steps
        model.logger.record("train/n_updates", model._n_updates, exclude="tensorboard")
        model.logger.record("train/loss", np.mean(losses))


class SacTrainer:
    """SAC's gradient steps."""

    def __init__(self, model: Any) -> None:
        """Reads the networks. Raises SpecError where that is not possible."""
        actor, threads = _MeanAndScale(model.actor), usable_cpus()
        epsilon = float(model.actor.action_dist.epsilon)
        shape, size = model.observation_space.shape, int(np.prod(model.action_space.shape))
        critic_loss = SacCriticLoss(
            actor, model.critic, model.critic_target, shape, size, epsilon=epsilon
        )
        actor_loss = SacActorLoss(actor, model.critic, shape, size, epsilon=epsilon)
        self._critic = LossLearner(critic_loss, model.critic.optimizer, threads)
        self._actor = LossLearner(actor_loss, model.actor.optimizer, threads)
        self._target = TargetNetwork(model.critic, model.critic_target)
        self._temperature: LossLearner | None = None
        if model.ent_coef_optimizer is not None and model.log_ent_coef is not None:
            loss = TemperatureLoss(model.log_ent_coef)
            self._temperature = LossLearner(loss, model.ent_coef_optimizer)
        self._logs: dict[str, list[float]] = {}

    def is_as_read(self) -> bool:
        """See `NativeTrainer`."""
        learners = [self._critic, self._actor]
        if self._temperature is not None:
            learners.append(self._temperature)
        return are_as_read(*learners)

    def train(self, model: Any, gradient_steps: int, batch_size: int) -> None:
        """As `SAC.train`."""
        optimizers = [model.actor.optimizer, model.critic.optimizer]
        if model.ent_coef_optimizer is not None:
            optimizers.append(model.ent_coef_optimizer)
        model._update_learning_rate(optimizers)
        names = ("ent_coef", "actor_loss", "critic_loss", "ent_coef_loss")
        self._logs = {name: [] for name in names}
        for step in range(gradient_steps):
            self._step(model, _sample(model, batch_size))
            if step % model.target_update_interval == 0:
                self._target.move(model.tau)
        model._n_updates += gradient_steps
        model.logger.record("train/n_updates", model._n_updates, exclude="tensorboard")
        for name, numbers in self._logs.items():
            if numbers or name != "ent_coef_loss":
                model.logger.record(f"train/{name}", np.mean(numbers))

    def _step(self, model: Any, parts: dict[str, Array]) -> None:
        temperature = model.ent_coef_tensor if self._temperature is None else _exp(model)
        heat = np.full((len(parts["obs"]), 1), float(temperature), np.float32)
        # the algorithm draws for the current observations first
        noise, next_noise = _noise(parts["action"]), _noise(parts["action"])
        self._note("ent_coef", float(temperature))
        critic = self._critic.step({**parts, "noise": next_noise, "temperature": heat})
        self._note("critic_loss", critic.loss)
        actor = self._actor.step({"obs": parts["obs"], "noise": noise, "temperature": heat})
        self._note("actor_loss", actor.loss)
        if self._temperature is not None:
            # the density is that of the actor before its step
            excess = actor.outputs[:, 1].mean() + model.target_entropy
            found = self._temperature.step({"excess": np.full((1, 1), excess)})
            self._note("ent_coef_loss", found.loss)

    def _note(self, name: str, number: float) -> None:
        self._logs[name].append(number)


class Td3Trainer:
    """TD3's gradient steps, and DDPG's."""

    def __init__(self, model: Any) -> None:
        """Reads the networks. Raises SpecError where that is not possible."""
        threads = usable_cpus()
        shape, size = model.observation_space.shape, int(np.prod(model.action_space.shape))
        critic_loss = Td3CriticLoss(
            model.actor_target, model.critic, model.critic_target, shape, size
        )
        actor_loss = Td3ActorLoss(model.actor, _FirstCritic(model.critic), shape)
        self._critic = LossLearner(critic_loss, model.critic.optimizer, threads)
        self._actor = LossLearner(actor_loss, model.actor.optimizer, threads)
        self._targets = [
            TargetNetwork(model.critic, model.critic_target),
            TargetNetwork(model.actor, model.actor_target),
        ]

    def is_as_read(self) -> bool:
        """See `NativeTrainer`."""
        return are_as_read(self._critic, self._actor)

    def train(self, model: Any, gradient_steps: int, batch_size: int) -> None:
        """As `TD3.train`."""
        model._update_learning_rate([model.actor.optimizer, model.critic.optimizer])
        actor_losses, critic_losses = [], []
        for _ in range(gradient_steps):
            model._n_updates += 1
            parts = _sample(model, batch_size)
            noise = torch.from_numpy(parts["action"]).clone().normal_(0, model.target_policy_noise)
            noise = noise.clamp(-model.target_noise_clip, model.target_noise_clip)
            critic_losses.append(self._critic.step({**parts, "noise": noise.numpy()}).loss)
            if model._n_updates % model.policy_delay == 0:
                actor_losses.append(self._actor.step({"obs": parts["obs"]}).loss)
                for target in self._targets:
                    target.move(model.tau)
        record = model.logger.record
        record("train/n_updates", model._n_updates, exclude="tensorboard")
        if actor_losses:
            record("train/actor_loss", np.mean(actor_losses))
        record("train/critic_loss", np.mean(critic_losses))


class _FirstCritic(nn.Module):
    """The critic whose values train the actor."""

    def __init__(self, critic: Any) -> None:
        super().__init__()
        self.critic = critic

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor]:
        return (self.critic.q1_forward(obs, action),)


class _MeanAndScale(nn.Module):
    """Mean and log_std of an action before tanh, as the actor computes them."""

    def __init__(self, actor: Any) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std, _ = self.actor.get_action_dist_params(obs)
        return mean, log_std


def _exp(model: Any) -> Tensor:
    temperature: Tensor = model.log_ent_coef.detach().exp()
    return temperature


def _noise(action: Array) -> Array:
    """Draws as torch.distributions.Normal does."""
    noise = torch.normal(torch.zeros(action.shape, dtype=torch.float32), 1.0)
    return noise.numpy()


def _sample(model: Any, batch_size: int) -> dict[str, Array]:
    """Rows of the replay, drawn by its own `sample`."""
    data = model.replay_buffer.sample(batch_size, env=model._vec_normalize_env)
    discounts = model.gamma if data.discounts is None else data.discounts
    return {
        "obs": data.observations.numpy(),
        "action": data.actions.numpy(),
        "reward": data.rewards.numpy(),
        "discount": ((1 - data.dones) * discounts).numpy(),
        "next_obs": data.next_observations.numpy(),
    }


def _dqn_parts(model: Any) -> tuple[Any, ...]:
    return model.q_net, model.q_net_target, model.policy.optimizer


def _sac_parts(model: Any) -> tuple[Any, ...]:
    networks = model.actor, model.critic, model.critic_target
    optimizers = model.actor.optimizer, model.critic.optimizer, model.ent_coef_optimizer
    # ids are compared: `==` of tensors would compare their numbers
    others = id(model.log_ent_coef), getattr(model.actor.action_dist, "epsilon", None)
    return (*networks, *optimizers, *others)


def _td3_parts(model: Any) -> tuple[Any, ...]:
    networks = model.actor, model.actor_target, model.critic, model.critic_target
    return (*networks, model.actor.optimizer, model.critic.optimizer)


def _why_not(model: Any) -> str:
    if not isinstance(model.observation_space, spaces.Box):
        return f"observations are of {model.observation_space}, expected Box"
    norms = [each for each in model.policy.modules() if isinstance(each, _NormBase)]
    if any(each.track_running_stats for each in norms):
        return "a layer normalises by running means"
    return ""


def _why_not_dqn(model: Any) -> str:
    if why_not := _why_not(model):
        return why_not
    if getattr(model.action_space, "start", 0):
        return f"actions are of {model.action_space}, expected numbers from 0 on"
    if model.max_grad_norm is None:
        return "max_grad_norm is None, which Stable-Baselines3's own train refuses"
    lacking = lacking_in(model.policy.optimizer, model.q_net)
    # parameters of the target network count, too, where they have gradients
    return lacking or lacking_in(model.policy.optimizer, model.q_net_target, only_graded=True)


def lacking_in(
    optimizer: torch.optim.Optimizer, network: nn.Module, *, only_graded: bool = False
) -> str:
    """Names parameters of a network that the optimiser lacks but that count when all gradients are
    clipped together; "" for none.

    Args:
      optimizer: Optimiser of the policy.
      network: The policy, or a part of it.
      only_graded: Whether only parameters that already have gradients count, because backward gives
        this network none.
    """
    held = {id(each) for group in optimizer.param_groups for each in group["params"]}
    lacking = [each for each in network.parameters() if id(each) not in held]
    if any(each.grad is not None for each in lacking):
        return (
            "a parameter of the policy that the optimiser lacks has a gradient, which counts in "
            "max_grad_norm"
        )
    if not only_graded and any(each.requires_grad for each in lacking):
        return (
            "the optimiser lacks a parameter of the policy that requires a gradient, which counts "
            "in max_grad_norm"
        )
    return ""


def _why_not_sac(model: Any) -> str:
    if why_not := _why_not(model):
        return why_not
    actor = model.actor
    if model.use_sde or actor.use_sde:
        return "use_sde=True draws noise that native code does not have"
    if type(actor).action_log_prob is not Actor.action_log_prob or "action_log_prob" in vars(actor):
        return f"{type(actor).__name__} has its own action_log_prob"
    if type(actor.action_dist) is not SquashedDiagGaussianDistribution:
        return f"the actor's distribution is a {type(actor.action_dist).__name__}"
    if any(map(callable, vars(actor.action_dist).values())):
        return "a method of the actor's distribution was replaced"
    return ""


OFF_POLICY_KINDS: dict[Any, TrainerKind] = {
    DQN.train: TrainerKind(_why_not_dqn, _dqn_parts, DqnTrainer),
    SAC.train: TrainerKind(_why_not_sac, _sac_parts, SacTrainer),
    TD3.train: TrainerKind(_why_not, _td3_parts, Td3Trainer),
}
