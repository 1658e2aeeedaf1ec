# SPDX-License-Identifier: Apache-2.0
"""Stable-Baselines3's PPO example, collecting from a native pool.

    python examples/integrations/sb3_ppo.py
    python examples/integrations/sb3_ppo.py --num-workers 2      from two Ray actors

The difference from the example in Stable-Baselines3's documentation:

    -from stable_baselines3 import PPO
    -from stable_baselines3.common.env_util import make_vec_env
    +from rollouts.integrations.sb3 import RolloutsPPO, RolloutsVecEnv

    -vec_env = make_vec_env("CartPole-v1", n_envs=4)
    +vec_env = RolloutsVecEnv("CartPole-v1", 16)
    -model = PPO("MlpPolicy", vec_env, verbose=1)
    +model = RolloutsPPO("MlpPolicy", vec_env, verbose=1)

With more environments, take shorter rollouts and larger minibatches: the settings below.
"""

from __future__ import annotations

import argparse
import sys

from rollouts.support.extras import needs

with needs("sb3", "this example"):
    from rollouts.integrations.sb3 import RolloutsPPO, RolloutsVecEnv
    from stable_baselines3.common.evaluation import evaluate_policy


def main(argv: list[str] | None = None) -> int:
    """Trains and evaluates; returns 0 if the target was reached, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    add = parser.add_argument
    add("--env-id", default="CartPole-v1", help="any id that `rollouts envs` lists")
    add("--num-envs", type=int, default=16)
    add("--num-workers", type=int, default=0, help="Ray actors; 0 collects in this process")
    add("--total-timesteps", type=int, default=150_000)
    add("--target-return", type=float, default=450.0, help="mean of 20 episodes, greedy actions")
    add("--seed", type=int, default=1)
    args = parser.parse_args(argv)

    vec_env = RolloutsVecEnv(args.env_id, args.num_envs)
    model = RolloutsPPO(
        "MlpPolicy",
        vec_env,
        n_steps=128,
        batch_size=256,
        learning_rate=lambda remaining: 1e-3 * remaining,
        seed=args.seed,
        device="cpu",
        verbose=1,
        num_workers=args.num_workers,
    )
    model.learn(total_timesteps=args.total_timesteps, log_interval=10)
    model.close()

    mean, std = evaluate_policy(model, RolloutsVecEnv(args.env_id, 4, seed=7), n_eval_episodes=20)
    print(f"return of 20 episodes: {mean:.1f} +- {std:.1f}")
    return 0 if mean >= args.target_return else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # the status that shells report after Ctrl-C
