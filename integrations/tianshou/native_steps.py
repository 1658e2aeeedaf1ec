# SPDX-License-Identifier: Apache-2.0
"""`NativeDQN` and `NativeSAC`: Tianshou's algorithms, whose steps native code makes.

native_on_policy.py has PPO and A2C, native_discrete_sac.py SAC of discrete actions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from tianshou.algorithm.algorithm_base import Algorithm
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import SimpleLossTrainingStats
from tianshou.algorithm.modelfree.sac import SAC, SACPolicy, SACTrainingStats
from tianshou.utils.conversion import to_optional_float
from torch import Tensor, nn

from rollouts.errors import SpecError
from rollouts.learner.loss_learner import LossLearner
from rollouts.learner.row_losses import SacActorLoss, ValueLoss
from rollouts.machine.cpu_count import usable_cpus

from ..shared.native_training import Made, Networks, ReadsTrainer, are_as_read, own_method

Array = NDArray[Any]

# the epsilon of Tianshou's correct_log_prob_gaussian_tanh
_EPSILON = float(np.finfo(np.float32).eps)


class NativeSteps(ReadsTrainer[Made]):
    """A mixin to list before one of Tianshou's algorithms: gradient steps in native code.

    What native code lacks stays with torch: layers such as convolutions and dropout, optimisers
    other than Adam, AdamW, RMSprop and SGD, observations other than Box, networks on a GPU,
    policies with a forward of their own, critics that share layers. `learner_engine` is the engine
    of the last step, and `why_not_native_learner` the reason why torch made it. Tianshou computes
    the target values and updates the target networks.

    Native steps set no `.grad`. Numbers that are not finite raise SpecError; Tianshou goes on.

    `train_engine` may be set at any time.
    """


class NativeDQN(NativeSteps["_DqnTrainer"], DQN[Any]):
    """Tianshou's DQN with the steps of `NativeSteps`."""

    def _update_with_batch(self, batch: Any) -> SimpleLossTrainingStats:
        trainer = self._reader.choose(
            self.train_engine,
            lambda: _why_not_dqn(self, batch),
            lambda: Networks(
                self.policy, [self.optim._optim], (self.huber_loss_delta, batch.obs.shape[1:])
            ),
            lambda: _DqnTrainer(self, batch.obs.shape[1:]),
        )
        if trainer is None:
            return super()._update_with_batch(batch)
        self._periodically_update_lagged_network_weights()
        return trainer.train(self, batch)


class NativeSAC(NativeSteps["_SacTrainer"], SAC[Any]):
    """Tianshou's SAC with the steps of `NativeSteps`."""

    def _update_with_batch(self, batch: Any) -> Any:
        trainer = self._reader.choose(
            self.train_engine,
            lambda: _why_not_sac(self, batch),
            lambda: Networks(
                self, [each._optim for each in optimizers_of(self)], (batch.obs.shape[1:],)
            ),
            lambda: _SacTrainer(self, batch.obs.shape[1:]),
        )
        return super()._update_with_batch(batch) if trainer is None else trainer.train(self, batch)


class _DqnTrainer:
    """DQN's gradient steps."""

    def __init__(self, algorithm: Any, obs_shape: tuple[int, ...]) -> None:
        """Reads the network. Raises SpecError where that is not possible."""
        policy, optim = algorithm.policy, algorithm.optim
        self._num_actions = int(policy.action_space.n)
        loss = ValueLoss(
            _ChosenValue(policy.model),
            obs_shape,
            self._num_actions,
            huber=algorithm.huber_loss_delta,
            weighted=True,
        )
        self._learner = LossLearner(loss, optim._optim, usable_cpus())

    def is_as_read(self) -> bool:
        """As `NativeTrainer.is_as_read`."""
        return are_as_read(self._learner)

    def train(self, algorithm: Any, batch: Any) -> SimpleLossTrainingStats:
        """As `DQN._update_with_batch`, after the update of the target network."""
        weight = batch.pop("weight", 1.0)
        if algorithm.huber_loss_delta is not None:
            # Tianshou's Huber loss has no weights
            weight = 1.0
        parts = parts_of(batch, weight)
        parts["action"] = np.eye(self._num_actions, dtype=np.float32)[batch.act]
        found = self._learner.step(parts, max_grad_norm=algorithm.optim._max_grad_norm)
        batch.weight = torch.from_numpy(-found.outputs[:, 1])
        return SimpleLossTrainingStats(loss=found.loss)


class _SacTrainer:
    """SAC's gradient steps."""

    def __init__(self, algorithm: Any, obs_shape: tuple[int, ...]) -> None:
        """Reads the networks. Raises SpecError where that is not possible."""
        policy, threads = algorithm.policy, usable_cpus()
        refuse_shared_critics(algorithm)
        size = int(np.prod(policy.action_space.shape))
        critics = [_Critic(algorithm.critic), _Critic(algorithm.critic2)]
        actor = SacActorLoss(
            _MeanAndScale(policy.actor), _Both(*critics), obs_shape, size, epsilon=_EPSILON
        )
        self._critics = [
            LossLearner(ValueLoss(critic, obs_shape, size, weighted=True), optim._optim, threads)
            for critic, optim in zip(
                critics, (algorithm.critic_optim, algorithm.critic2_optim), strict=True
            )
        ]
        self._actor = LossLearner(actor, algorithm.policy_optim._optim, threads)

    def is_as_read(self) -> bool:
        """As `NativeTrainer.is_as_read`."""
        return are_as_read(self._actor, *self._critics)

    def train(self, algorithm: Any, batch: Any) -> Any:
        """As `SAC._update_with_batch`."""
        parts = parts_of(batch, getattr(batch, "weight", 1.0))
        optims = algorithm.critic_optim, algorithm.critic2_optim
        # both losses come before either step, so that numbers that are not finite change nothing
        found = [each.compute(parts) for each in self._critics]
        for each, optim in zip(self._critics, optims, strict=True):
            each.apply(max_grad_norm=optim._max_grad_norm)
        offs = torch.from_numpy(np.stack([each.outputs[:, 1] for each in found]))
        batch.weight = offs.mean(0)
        # drawn as by torch.distributions.Normal
        noise = torch.normal(torch.zeros(batch.act.shape, dtype=torch.float32), 1.0)
        heat = np.full((len(batch.obs), 1), algorithm.alpha.value, np.float32)
        actor = self._actor.step(
            {"obs": parts["obs"], "noise": noise.numpy(), "temperature": heat},
            max_grad_norm=algorithm.policy_optim._max_grad_norm,
        )
        alpha_loss = algorithm.alpha.update(torch.from_numpy(-actor.outputs[:, 1:2]))
        algorithm._update_lagged_network_weights()
        return SACTrainingStats(
            actor_loss=actor.loss,
            critic1_loss=found[0].loss,
            critic2_loss=found[1].loss,
            alpha=to_optional_float(algorithm.alpha.value),
            alpha_loss=to_optional_float(alpha_loss),
        )


class _ChosenValue(nn.Module):
    """The value of an action that is given as one-hot numbers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        value: Tensor = (self.model(obs)[0] * action).sum(1, keepdim=True)
        return value


class _Critic(nn.Module):
    """The value (B, 1) of an action."""

    def __init__(self, critic: nn.Module) -> None:
        super().__init__()
        self.critic = critic

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        value: Tensor = self.critic(obs, action)
        return value.reshape(-1, 1)


class _Both(nn.Module):
    """Two critics, each with its own value."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(obs, action), self.second(obs, action)


class _MeanAndScale(nn.Module):
    """Mean and log_std of an action before tanh."""

    def __init__(self, actor: nn.Module) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, scale = self.actor(obs)[0]
        return mean, scale.log()


def parts_of(batch: Any, weight: Any) -> dict[str, Array]:
    """Rows of a batch with Tianshou's targets."""
    count = len(batch.obs)
    weights = np.broadcast_to(torch.as_tensor(weight).numpy().reshape(-1, 1), (count, 1))
    target = torch.as_tensor(batch.returns).reshape(count, 1).numpy()
    return {"obs": batch.obs, "action": batch.act, "target": target, "weight": weights}


def optimizers_of(algorithm: Any) -> tuple[Any, ...]:
    """The optimisers of an actor and two critics."""
    return algorithm.policy_optim, algorithm.critic_optim, algorithm.critic2_optim


def refuse_shared_critics(algorithm: Any) -> None:
    """Raises SpecError where the first critic's step changes weights of the second critic."""
    held = _held(algorithm.critic_optim)
    if any(id(each) in held for each in algorithm.critic2.parameters()):
        raise SpecError("both critics have a parameter in common: expected two of their own")


def _held(optim: Any) -> set[int]:
    """The ids of the parameters that an optimiser holds."""
    return {id(each) for group in optim._optim.param_groups for each in group["params"]}


def _why_not_dqn(algorithm: Any, batch: Any) -> str:
    policy = algorithm.policy
    if own := own_method(policy, DiscreteQLearningPolicy, ("forward", "__call__")):
        return f"{type(policy).__name__} has its own {own}"
    return why_not_batch(algorithm, batch, [algorithm.optim]) or why_not_choices(
        policy.action_space, batch.act
    )


def why_not_choices(space: Any, action: Array) -> str:
    """Names what native code cannot train in discrete actions; "" for nothing."""
    if not isinstance(space, spaces.Discrete) or space.start:
        return f"actions are of {space}, expected Discrete with numbers from 0 on"
    num_actions = int(space.n)
    if action.ndim != 1 or not np.issubdtype(action.dtype, np.integer):
        return f"actions are {action.dtype} of shape {action.shape}, expected whole numbers (B,)"
    if action.min(initial=0) < 0 or action.max(initial=0) >= num_actions:
        return f"an action is not within 0 and {num_actions - 1}"
    return ""


def _why_not_sac(algorithm: Any, batch: Any) -> str:
    policy, names = algorithm.policy, ("_minimize_critic_squared_loss",)
    if own := own_method(algorithm, NativeSAC, names):
        return f"{type(algorithm).__name__} has its own {own}"
    if own := own_method(policy, SACPolicy, ("forward", "__call__")):
        return f"{type(policy).__name__} has its own {own}"
    if policy.deterministic_eval and not policy.is_within_training_step:
        return "the policy is not within a training step, where its actions are not drawn"
    return why_not_batch(algorithm, batch, optimizers_of(algorithm))


def why_not_batch(
    algorithm: Any, batch: Any, optims: Any, names: tuple[str, ...] = ("obs", "act")
) -> str:
    """Names an optimiser or array that native code cannot train with; "" for none."""
    for each in optims:
        if type(each) is not Algorithm.Optimizer or "step" in vars(each):
            return "an optimiser of the algorithm has a step of its own"
        held = _held(each)
        if each._max_grad_norm is not None and not all(
            id(p) in held for p in each._module.parameters()
        ):
            return "an optimiser lacks a parameter that counts in max_grad_norm"
    for name in names:
        array = batch[name]
        if not isinstance(array, np.ndarray) or array.dtype == object:
            return f"{name} of the batch is a {type(array).__name__}, expected an array of numbers"
    if torch.as_tensor(batch.returns).numel() != len(batch.obs):
        return "returns of the batch are not one number for each row"
    return ""
