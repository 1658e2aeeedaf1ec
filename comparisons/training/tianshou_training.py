# SPDX-License-Identifier: Apache-2.0
"""Trainers of Tianshou: an off-policy training with networks of 2x256; SAC learns each env-step.

"rollouts" has our environments, collector and gradient steps, "rollouts-torch" our environments and
collector, "tianshou" only Tianshou's own parts. DQN makes a gradient step for each 4 env-steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from rollouts.integrations.tianshou import (
    NativeDQN,
    NativeSAC,
    RolloutsCollector,
    RolloutsVectorEnv,
)
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.sac import SAC, AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic

from comparisons.training.result import TrainingResult
from comparisons.training.whole_trainings import Trainer, TrainingTask

_HIDDEN = [256, 256]
_BATCH_SIZES = {"dqn": 64, "sac": 256}
_STEPS_PER_SAMPLE = {"dqn": 0.25, "sac": 1.0}


def _dqn(cls: Any, obs_size: int, space: Any) -> Any:
    net = Net(state_shape=obs_size, action_shape=int(space.n), hidden_sizes=_HIDDEN)
    policy = DiscreteQLearningPolicy(model=net, action_space=space, eps_training=0.1)
    return cls(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=128)


def _sac(cls: Any, obs_size: int, space: Any) -> Any:
    size = int(np.prod(space.shape))
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(state_shape=obs_size, hidden_sizes=_HIDDEN),
        action_shape=size,
        unbounded=True,
        conditioned_sigma=True,
    )
    net = Net(state_shape=obs_size, action_shape=size, hidden_sizes=_HIDDEN, concat=True)
    return cls(
        policy=SACPolicy(actor=actor, action_space=space),
        policy_optim=AdamOptimizerFactory(lr=3e-4),
        critic=ContinuousCritic(preprocess_net=net),
        critic_optim=AdamOptimizerFactory(lr=3e-4),
        alpha=AutoAlpha(-float(size), 0.0, AdamOptimizerFactory(lr=3e-4)),
    )


def _trainer(make: Callable[..., Any], cls: Any, *, is_ours: bool) -> Trainer:
    def train(task: TrainingTask) -> TrainingResult:
        np.random.seed(task.seed)  # noqa: NPY002 Tianshou's exploration draws from it
        torch.manual_seed(task.seed)
        envs: Any = (
            RolloutsVectorEnv(task.id, num_envs=task.num_envs, seed=task.seed)
            if is_ours
            else DummyVectorEnv([lambda: gym.make(task.id) for _ in range(task.num_envs)])
        )
        if not is_ours:
            envs.seed(task.seed)
        space = envs.action_space[0]
        algorithm = make(cls, int(np.prod(envs.observation_space[0].shape)), space)
        collector = (RolloutsCollector if is_ours else Collector)(
            algorithm, envs, VectorReplayBuffer(100_000, task.num_envs), exploration_noise=True
        )
        params = OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=task.total_steps,
            # env-steps of one gradient step of DQN
            collection_step_num_env_steps=-(-4 // task.num_envs) * task.num_envs,
            batch_size=_BATCH_SIZES[task.algorithm],
            update_step_num_gradient_steps_per_sample=_STEPS_PER_SAMPLE[task.algorithm],
            show_progress=False,
            verbose=False,
        )
        started = time.perf_counter()
        result = algorithm.run_training(params)
        seconds = time.perf_counter() - started
        curve = _curve_of(collector.buffer)
        collector.close()
        mean = curve[-1][1] if curve else float("nan")
        return TrainingResult(seconds, int(result.train_step), mean, curve)

    return train


def _curve_of(buffer: Any) -> tuple[tuple[int, float], ...]:
    """Env-steps at which a replay's episodes end, each with the mean of the last 100 returns."""
    found: list[tuple[int, float]] = []
    for each in buffer.buffers:
        ends = np.flatnonzero(each.done[: len(each)])
        returns = np.diff(np.cumsum(each.rew[: len(each)])[ends], prepend=0.0)
        steps = (ends + 1) * len(buffer.buffers)
        found += zip(steps.tolist(), returns.tolist(), strict=True)
    found.sort()
    last = [one for _, one in found]
    return tuple(
        (steps, float(np.mean(last[max(0, i - 99) : i + 1]))) for i, (steps, _) in enumerate(found)
    )


def _trainers(make: Callable[..., Any], ours: Any, stock: Any) -> dict[str, Trainer]:
    return {
        "rollouts": _trainer(make, ours, is_ours=True),
        "rollouts-torch": _trainer(make, stock, is_ours=True),
        "tianshou": _trainer(make, stock, is_ours=False),
    }


TRAINERS = {
    "dqn": _trainers(_dqn, NativeDQN, DQN),
    "sac": _trainers(_sac, NativeSAC, SAC),
}
