# SPDX-License-Identifier: Apache-2.0
"""Stable-Baselines3's DQN example, collecting from a native pool.

    python examples/integrations/sb3_dqn.py

The difference from the example in Stable-Baselines3's documentation:

    -import gymnasium as gym
    -from stable_baselines3 import DQN
    +from rollouts.integrations.sb3 import RolloutsDQN, RolloutsVecEnv

    -env = gym.make("CartPole-v1")
    +env = RolloutsVecEnv("CartPole-v1", 16)
    -model = DQN("MlpPolicy", env, verbose=1)
    +model = RolloutsDQN("MlpPolicy", env, verbose=1)

The settings below are for 16 environments at a time; training stops when an evaluation reaches the
target, after about 100 000 steps.
"""

from __future__ import annotations

import argparse
import sys

from rollouts.support.extras import needs

with needs("sb3", "this example"):
    from rollouts.integrations.sb3 import RolloutsDQN, RolloutsVecEnv
    from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
    from stable_baselines3.common.evaluation import evaluate_policy


def main(argv: list[str] | None = None) -> int:
    """Trains and evaluates; returns 0 if the target was reached, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    add = parser.add_argument
    add("--env-id", default="CartPole-v1", help="with Discrete actions")
    add("--num-envs", type=int, default=16)
    add("--total-timesteps", type=int, default=200_000)
    add("--target-return", type=float, default=475.0, help="mean of 20 episodes, greedy actions")
    add("--seed", type=int, default=1)
    args = parser.parse_args(argv)

    env, eval_env = RolloutsVecEnv(args.env_id, args.num_envs), RolloutsVecEnv(args.env_id, 20)
    model = RolloutsDQN(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        batch_size=128,
        buffer_size=100_000,
        learning_starts=1_000,
        # 8 updates per 4 steps of all environments
        train_freq=4,
        gradient_steps=8,
        target_update_interval=500,
        exploration_fraction=0.1,
        exploration_final_eps=0.02,
        seed=args.seed,
        device="cpu",
        verbose=1,
    )
    stop = StopTrainingOnRewardThreshold(args.target_return, verbose=1)
    evaluation = EvalCallback(
        eval_env, callback_on_new_best=stop, n_eval_episodes=20, eval_freq=5_000 // args.num_envs
    )
    model.learn(total_timesteps=args.total_timesteps, callback=evaluation, log_interval=100)

    mean, std = evaluate_policy(model, eval_env, n_eval_episodes=20)
    print(f"return of 20 episodes: {mean:.1f} +- {std:.1f}")
    return 0 if mean >= args.target_return else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # the status that shells report after Ctrl-C
