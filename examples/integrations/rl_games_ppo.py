# SPDX-License-Identifier: Apache-2.0
"""rl_games' PPO on CartPole, stepped by the native pool.

rl_games' own configuration (rl_games/configs/ppo_cartpole.yaml), and what changes:

    +rollouts.integrations.rl_games.register()
     params:
       config:
    -    env_name: CartPole-v1
    +    env_name: rollouts
    +    env_config:
    +      env_name: CartPole-v1
    -    device: 'cuda'
    +    device: cpu

The learning rate is higher than theirs, so that it learns in a minute. Run it:

    python examples/integrations/rl_games_ppo.py --epochs 200
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rollouts.support.extras import needs

with needs("rl-games", "this example"):
    from rl_games.common.algo_observer import DefaultAlgoObserver
    from rl_games.torch_runner import Runner
    from rollouts.integrations import rl_games as rollouts_rl_games


def params(epochs: int, train_dir: str) -> dict[str, Any]:
    """The settings that rl_games reads from a yaml file."""
    mlp = {
        "units": [32, 32],
        "activation": "relu",
        "initializer": {"name": "default"},
        "regularizer": {"name": None},
    }
    return {
        "seed": 1,
        "algo": {"name": "a2c_discrete"},
        "model": {"name": "discrete_a2c"},
        "network": {
            "name": "actor_critic",
            "separate": True,
            "space": {"discrete": None},
            "mlp": mlp,
        },
        "config": {
            "name": "cartpole",
            "env_name": "rollouts",
            "env_config": {"env_name": "CartPole-v1"},
            "device": "cpu",
            "train_dir": train_dir,
            "max_epochs": epochs,
            "score_to_win": 400,
            "reward_shaper": {"scale_value": 0.1},
            "normalize_advantage": True,
            "value_bootstrap": True,
            "normalize_input": False,
            "gamma": 0.99,
            "tau": 0.9,
            "learning_rate": 3e-3,
            "lr_schedule": None,
            "kl_threshold": 0.008,
            "grad_norm": 1.0,
            "truncate_grads": True,
            "entropy_coef": 0.01,
            "critic_coef": 1,
            "e_clip": 0.2,
            "clip_value": True,
            "num_actors": 16,
            "horizon_length": 32,
            "minibatch_size": 256,
            "mini_epochs": 4,
            "save_best_after": 10,
            "multi_gpu": False,
            "torch_compile": False,
        },
    }


def main(argv: list[str] | None = None) -> float:
    """Trains; returns the mean score of the last episodes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--train-dir", default="runs", help="where rl_games writes")
    args = parser.parse_args(argv)

    rollouts_rl_games.register()
    observer = DefaultAlgoObserver()
    runner = Runner(observer)
    runner.load({"params": params(args.epochs, args.train_dir)})
    runner.reset()
    runner.run({"train": True, "play": False})
    score = float(observer.game_scores.get_mean())
    print(f"mean score {score:.1f}")
    return score


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # the status that shells report after Ctrl-C
