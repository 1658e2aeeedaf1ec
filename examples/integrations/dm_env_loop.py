# SPDX-License-Identifier: Apache-2.0
"""dm_env's loop over one environment, and over a batch of them.

An agent's loop as Acme and dm_env's documentation write it, and what changes:

    -environment = catch.Catch()
    +environment = rollouts.integrations.dm_env.Environment("Catch-v0", seed=1)

The second loop does the same over N environments: every field of a TimeStep is an array. Run it:

    python examples/integrations/dm_env_loop.py --episodes 20 --steps 500
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from rollouts.support.extras import needs

with needs("dm-env", "this example"):
    from rollouts.integrations import dm_env as rollouts_dm_env


def play(episodes: int) -> float:
    """Mean return of a random agent in one environment."""
    environment = rollouts_dm_env.Environment("Catch-v0", seed=1)
    rng = np.random.default_rng(1)
    total = 0.0
    for _ in range(episodes):
        timestep = environment.reset()
        while not timestep.last():
            timestep = environment.step(rng.integers(environment.action_spec().num_values))
            total += timestep.reward
    environment.close()
    return total / episodes


def play_batch(num_envs: int, steps: int) -> float:
    """Mean return of a random agent in a batch of environments."""
    rng = np.random.default_rng(1)
    total, episodes = 0.0, 0
    with rollouts_dm_env.BatchedEnvironment("Catch-v0", num_envs, seed=1) as environments:
        environments.reset()
        for _ in range(steps):
            timestep = environments.step(rng.integers(3, size=num_envs))
            # Catch gives a reward only in an episode's last step
            total += timestep.reward.sum()
            episodes += int((timestep.step_type == 2).sum())
    return total / max(1, episodes)


def main(argv: list[str] | None = None) -> tuple[float, float]:
    """Runs both loops."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args(argv)
    one, many = play(args.episodes), play_batch(args.num_envs, args.steps)
    print(f"mean return of a random agent: {one:.2f} alone, {many:.2f} in a batch")
    return one, many


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # the status that shells report after Ctrl-C
