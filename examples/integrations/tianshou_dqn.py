# SPDX-License-Identifier: Apache-2.0
"""Tianshou's DQN on CartPole-v1, its environments stepped by the native pool.

Run it: `python examples/integrations/tianshou_dqn.py`

It is Tianshou's own example of DQN (`examples/discrete/discrete_dqn.py`), rewritten in this
repository's style. What differs from a script with Tianshou's environments and collectors:

    -    training_envs = ts.env.DummyVectorEnv(
    -        [lambda: gym.make(task) for _ in range(num_training_envs)]
    -    )
    -    test_envs = ts.env.DummyVectorEnv([lambda: gym.make(task) for _ in range(num_test_envs)])
    +    training_envs = RolloutsVectorEnv(task, num_envs=num_training_envs)
    +    test_envs = RolloutsVectorEnv(task, num_envs=num_test_envs)
    -    training_collector = ts.data.Collector(
    +    training_collector = RolloutsCollector(
    -    test_collector = ts.data.Collector(algorithm, test_envs, exploration_noise=True)
    +    test_collector = RolloutsCollector(algorithm, test_envs, exploration_noise=True)
"""

from __future__ import annotations

import argparse
import sys

import gymnasium as gym
import numpy as np

from rollouts.support.extras import needs

with needs("tianshou", "this example"):
    import tianshou as ts
    import torch
    from rollouts.integrations.tianshou import RolloutsCollector, RolloutsVectorEnv
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.space_info import SpaceInfo


def train(
    *,
    task: str = "CartPole-v1",
    epochs: int = 20,
    epoch_steps: int = 10_000,
    num_training_envs: int = 10,
    num_test_envs: int = 100,
    stop_at: float = 475.0,
    seed: int = 0,
) -> float:
    """Trains until the mean return of the test episodes reaches `stop_at`; returns the best."""
    np.random.seed(seed)  # noqa: NPY002 Tianshou's exploration draws from it
    torch.manual_seed(seed)
    training_envs = RolloutsVectorEnv(task, num_envs=num_training_envs, seed=seed)
    test_envs = RolloutsVectorEnv(task, num_envs=num_test_envs, seed=seed + 1)

    env = gym.make(task)
    spaces = SpaceInfo.from_env(env)
    net = Net(
        state_shape=spaces.observation_info.obs_shape,
        action_shape=spaces.action_info.action_shape,
        hidden_sizes=[128, 128],
    )
    policy = DiscreteQLearningPolicy(
        model=net, action_space=env.action_space, eps_training=0.1, eps_inference=0.0
    )
    algorithm = ts.algorithm.DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=0.99,
        n_step_return_horizon=3,
        target_update_freq=128,
    )
    training_collector = RolloutsCollector(
        algorithm,
        training_envs,
        ts.data.VectorReplayBuffer(50_000, num_training_envs),
        exploration_noise=True,
    )
    test_collector = RolloutsCollector(algorithm, test_envs, exploration_noise=True)

    # 4 steps of the environments to one of gradient descent
    result = algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=training_collector,
            test_collector=test_collector,
            max_epochs=epochs,
            epoch_num_steps=epoch_steps,
            collection_step_num_env_steps=num_training_envs,
            test_step_num_episodes=num_test_envs,
            batch_size=64,
            update_step_num_gradient_steps_per_sample=0.25,
            stop_fn=lambda mean_return: mean_return >= stop_at,
            show_progress=False,
        )
    )
    training_collector.close()
    test_collector.close()
    return float(result.best_reward)


def main() -> None:
    """Reads the command line and trains."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    best = train(epochs=args.epochs, seed=args.seed)
    print(f"best mean return of 100 episodes: {best:.1f}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # the status that shells report after Ctrl-C
