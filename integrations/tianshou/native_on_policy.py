# SPDX-License-Identifier: Apache-2.0
"""`NativePPO` and `NativeA2C`: Tianshou's algorithms, whose steps native code makes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.algorithm.modelfree.a2c import A2C, A2CTrainingStats
from tianshou.algorithm.modelfree.ppo import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.data import Batch, SequenceSummaryStats
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from rollouts.errors import SpecError
from rollouts.learner.native_learner import NativeLearner, PolicyGradientLoss, PpoLoss
from rollouts.machine.cpu_count import usable_cpus
from rollouts.policies.native import NativePolicy
from rollouts.policies.read_actor import ReadActor

from ..shared.native_training import Networks
from .native import check_policy
from .native_steps import NativeSteps, why_not_batch

Array = NDArray[Any]


class NativeA2C(NativeSteps["_ActorCriticTrainer"], A2C):
    """Tianshou's A2C with the steps of `NativeSteps`."""

    def _update_with_batch(self, batch: Any, batch_size: int | None, repeat: int) -> Any:
        trainer = _choose(self, batch)
        if trainer is None:
            return super()._update_with_batch(batch, batch_size, repeat)
        loss = PolicyGradientLoss(value_weight=self.vf_coef, entropy_weight=self.ent_coef)
        batches = (batch for _ in range(repeat))
        return trainer.train(batches, batch_size, loss, self.optim._max_grad_norm)


class NativePPO(NativeSteps["_ActorCriticTrainer"], PPO):
    """Tianshou's PPO with the steps of `NativeSteps`; torch makes the steps with `dual_clip`."""

    def _update_with_batch(self, batch: Any, batch_size: int | None, repeat: int) -> Any:
        trainer = _choose(self, batch)
        if trainer is None:
            return super()._update_with_batch(batch, batch_size, repeat)
        loss = PpoLoss(
            clip_range=self.eps_clip,
            value_clip_range=self.eps_clip if self.value_clip else None,
            value_weight=self.vf_coef,
            entropy_weight=self.ent_coef,
            normalize_advantage=self.advantage_normalization,
        )
        batches = self._estimated(batch, repeat)
        return trainer.train(batches, batch_size, loss, self.optim._max_grad_norm)

    def _estimated(self, batch: Any, repeat: int) -> Iterator[Any]:
        """Yields each pass's batch, with advantages by the present critic if that is asked for."""
        for step in range(repeat):
            if self.recompute_adv and step > 0:
                batch = self._add_returns_and_advantages(batch, self._buffer, self._indices)
            yield batch


class _ActorCriticTrainer:
    """Gradient steps of an actor and a critic."""

    def __init__(self, algorithm: Any, obs_shape: tuple[int, ...]) -> None:
        """Reads both networks. Raises SpecError where that is not possible."""
        policy = algorithm.policy
        check_policy(policy)
        obs_space = gym.spaces.Box(-np.inf, np.inf, obs_shape, np.float32)
        both = _ActorAndCritic(ReadActor(policy, obs_space), algorithm.critic)
        self._is_gaussian = both.actor.is_gaussian
        space = policy.action_space
        if self._is_gaussian:
            # the buffer has the policy's own actions, which map_action bounds later
            space = gym.spaces.Box(-np.inf, np.inf, space.shape, np.float32)
        native = NativePolicy.from_torch(both, space, obs_space)
        self._learner = NativeLearner(native, algorithm.optim._optim, usable_cpus())

    def is_as_read(self) -> bool:
        """As `NativeTrainer.is_as_read`."""
        return self._learner.is_as_read()

    def train(
        self,
        batches: Iterator[Any],
        batch_size: int | None,
        loss: PpoLoss | PolicyGradientLoss,
        limit: float | None,
    ) -> A2CTrainingStats:
        """Makes the steps of one pass over each of `batches`, with Tianshou's minibatches."""
        found: list[Array] = []
        for batch in batches:
            rows, order = self._rows(batch), Batch(row=np.arange(len(batch)))
            parts = [part.row for part in order.split(batch_size or -1, merge_last=True)]
            # the last minibatch also has the remaining rows
            for size, equal in groupby(parts, len):
                losses = self._learner.update(
                    rows, np.concatenate([*equal]), minibatch=size, loss=loss, max_grad_norm=limit
                )
                found.append(np.stack([losses.policy_loss, losses.value_loss, losses.entropy]))
        policy_loss, value_loss, entropy = np.concatenate(found, 1).astype(np.float64)
        total = policy_loss + loss.value_weight * value_loss - loss.entropy_weight * entropy
        return A2CTrainingStats(
            loss=SequenceSummaryStats.from_sequence(total),
            actor_loss=SequenceSummaryStats.from_sequence(policy_loss),
            vf_loss=SequenceSummaryStats.from_sequence(value_loss),
            ent_loss=SequenceSummaryStats.from_sequence(entropy),
            gradient_steps=len(total),
        )

    def _rows(self, batch: Any) -> dict[str, Array]:
        count, action = len(batch), batch.act.numpy()
        log_prob = batch.get("logp_old")
        return {
            "obs": np.ascontiguousarray(batch.obs.reshape(count, -1), np.float32),
            "action": action.reshape(count, -1) if self._is_gaussian else action.astype(np.int64),
            # A2C's loss has no ratio
            "log_prob": np.zeros(count, np.float32) if log_prob is None else log_prob.numpy(),
            "advantage": batch.adv.numpy(),
            "target": batch.returns.numpy(),
            "value": batch.v_s.numpy(),
        }


class _ActorAndCritic(nn.Module):
    """Inputs of the actor's distribution, and the critic's value (B,)."""

    def __init__(self, actor: ReadActor, critic: nn.Module) -> None:
        super().__init__()
        self.actor, self.critic = actor, critic

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        return (*self.actor(obs), self.critic(obs)[:, 0])


def _choose(algorithm: Any, batch: Any) -> _ActorCriticTrainer | None:
    """Returns the trainer of the next steps; None where Tianshou makes them."""
    policy, critic = algorithm.policy, algorithm.critic
    made: _ActorCriticTrainer | None = algorithm._reader.choose(
        algorithm.train_engine,
        lambda: _why_not(algorithm, batch),
        lambda: Networks(
            nn.ModuleList([policy, critic]),
            [algorithm.optim._optim],
            (policy.dist_fn, batch.obs.shape[1:]),
        ),
        lambda: _ActorCriticTrainer(algorithm, batch.obs.shape[1:]),
    )
    return made


def _why_not(algorithm: Any, batch: Any) -> str:
    policy = algorithm.policy
    if not isinstance(policy, ProbabilisticActorPolicy):
        return f"the policy is a {type(policy).__name__}, expected a ProbabilisticActorPolicy"
    if getattr(algorithm, "dual_clip", None):
        return f"dual_clip={algorithm.dual_clip} is not native"
    tensors = [batch.act, batch.adv, batch.returns, batch.v_s]
    if any(not isinstance(each, Tensor) or each.device.type != "cpu" for each in tensors):
        return "rows of the batch are no tensors on the CPU"
    if any(each.dtype != torch.float32 for each in tensors):
        return "numbers of the batch are not float32, as the critic's values"
    if why_not := why_not_batch(algorithm, batch, [algorithm.optim], ("obs",)):
        return why_not
    if batch.act.dim() == 1:
        return ""
    try:
        dist = policy(batch[:1]).dist
    except (SpecError, TypeError, ValueError, RuntimeError) as error:
        return f"the policy fails for one row: {error}"
    if isinstance(dist, Normal) or not isinstance(dist, Independent):
        return f"dist_fn makes a {type(dist).__name__}, expected an Independent of a Normal"
    return ""
