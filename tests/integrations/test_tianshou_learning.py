# SPDX-License-Identifier: Apache-2.0
"""Tianshou's trainers learn CartPole-v1 through our collectors."""

from __future__ import annotations

import runpy
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("tianshou", reason="needs Tianshou: pip install 'rollouts[tianshou]'")

from rollouts.integrations.tianshou import RolloutsCollector, RolloutsVectorEnv
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import VectorReplayBuffer
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import ActorCritic, Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

pytestmark = pytest.mark.system

EXAMPLE = Path(__file__).parents[2] / "examples" / "integrations" / "tianshou_dqn.py"


def train_ppo(epochs: int, stop_at: float, num_envs: int = 16) -> float:
    """Trains as Tianshou's example of PPO; returns the best mean return of a test."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 Tianshou draws minibatches from it
    envs = RolloutsVectorEnv("CartPole-v1", num_envs=num_envs, seed=1)
    tests = RolloutsVectorEnv("CartPole-v1", num_envs=50, seed=2)
    net = Net(state_shape=(4,), hidden_sizes=[64, 64])
    actor = DiscreteActor(preprocess_net=net, action_shape=2)
    critic = DiscreteCritic(preprocess_net=net)
    for module in ActorCritic(actor, critic).modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.orthogonal_(module.weight)
            torch.nn.init.zeros_(module.bias)
    policy = DiscreteActorPolicy(
        actor=actor,
        dist_fn=torch.distributions.Categorical,
        action_space=envs.action_space[0],
        deterministic_eval=True,
    )
    algorithm: Any = PPO(
        policy=policy,
        critic=critic,
        optim=AdamOptimizerFactory(lr=1e-3),
        gae_lambda=0.95,
        max_grad_norm=0.5,
        ent_coef=0.0,
    )
    collector = RolloutsCollector(algorithm, envs, VectorReplayBuffer(20_000, num_envs))
    result = algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=collector,
            test_collector=RolloutsCollector(algorithm, tests),
            max_epochs=epochs,
            epoch_num_steps=10_240,
            update_step_num_repetitions=6,
            test_step_num_episodes=50,
            batch_size=256,
            collection_step_num_env_steps=2048,
            stop_fn=lambda mean_return: mean_return >= stop_at,
            show_progress=False,
        )
    )
    assert collector.engine == "native"
    envs.close()
    tests.close()
    return float(result.best_reward)


def train_dqn(**kwargs: Any) -> float:
    np.random.seed(0)  # noqa: NPY002 Tianshou's exploration draws from it
    best: float = runpy.run_path(str(EXAMPLE))["train"](**kwargs)
    return best


def test_a_little_ppo_is_better_than_random() -> None:
    assert train_ppo(epochs=2, stop_at=60) >= 60  # random play: about 22


def test_the_dqn_example_runs() -> None:
    assert train_dqn(epochs=1, epoch_steps=200, num_test_envs=5) > 0


@pytest.mark.slow
def test_ppo_solves_cartpole() -> None:
    begin = time.process_time()
    assert train_ppo(epochs=30, stop_at=475) >= 450
    print(f"PPO: {time.process_time() - begin:.0f} s of CPU time")


@pytest.mark.slow
def test_dqn_solves_cartpole() -> None:
    begin = time.process_time()
    assert train_dqn(stop_at=475) >= 450
    print(f"DQN: {time.process_time() - begin:.0f} s of CPU time")
