# SPDX-License-Identifier: Apache-2.0
"""Gymnasium's own loop over a batch of environments, stepped by native threads.

    python examples/integrations/gymnasium_make_vec.py --num-steps 2000

The difference from the loop in Gymnasium's documentation:

     import gymnasium
    +import rollouts
     ...
    -envs = gymnasium.make_vec("CartPole-v1", num_envs=64, vectorization_mode="sync")
    +envs = gymnasium.make_vec("rollouts/CartPole-v1", num_envs=64)

All else, with Gymnasium's vector wrappers, stays as it is. Without the import, the id
"rollouts:rollouts/CartPole-v1" does the same.
"""

from __future__ import annotations

import argparse
import sys
import time

import gymnasium
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import rollouts


def main(argv: list[str] | None = None) -> float:
    """Steps both, prints how fast they are, and returns the mean return of our episodes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--num-steps", type=int, default=2000, help="batches to step")
    args = parser.parse_args(argv)

    print(f"rollouts {rollouts.__version__}: {len(rollouts.env_ids())} ids under rollouts/")
    rates = {}
    for env_id in ("CartPole-v1", "rollouts/CartPole-v1"):
        # Gymnasium also has a vectorised CartPole of its own, but "sync" exists for all ids
        mode = None if env_id.startswith("rollouts/") else "sync"
        envs = gymnasium.make_vec(env_id, num_envs=args.num_envs, vectorization_mode=mode)
        envs = RecordEpisodeStatistics(envs)
        envs.reset(seed=42)
        envs.action_space.seed(42)
        begin = time.perf_counter()
        for _ in range(args.num_steps):
            actions = envs.action_space.sample()
            envs.step(actions)
        seconds = time.perf_counter() - begin
        rates[env_id] = args.num_steps * args.num_envs / seconds
        mean_return = sum(envs.return_queue) / len(envs.return_queue)
        print(f"{env_id:22} {rates[env_id]:12,.0f} steps/s, mean return {mean_return:.1f}")
        envs.close()
    return float(mean_return)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # the status that shells report after Ctrl-C
