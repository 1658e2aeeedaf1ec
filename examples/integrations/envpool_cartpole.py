# SPDX-License-Identifier: Apache-2.0
"""EnvPool's asynchronous loop: twice as many environments as are received at once.

EnvPool's documentation, and what changes:

    -import envpool
    +import rollouts.integrations.envpool as envpool

The step after an episode's end returns the next episode's first observation, as in EnvPool. Run it:

    python examples/integrations/envpool_cartpole.py --steps 2000
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import rollouts.integrations.envpool as envpool


def main(argv: list[str] | None = None) -> float:
    """Steps with a simple rule; returns the mean length of the episodes that ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2000, help="batches to receive")
    args = parser.parse_args(argv)

    env = envpool.make(
        "CartPole-v1",
        env_type="gym",
        num_envs=args.num_envs,
        batch_size=args.batch_size,
        seed=1,
    )
    env.async_reset()
    lengths: list[int] = []
    for _ in range(args.steps):
        obs, _, done, info = env.recv()
        lengths += info["elapsed_step"][done].tolist()
        # pushes the cart to the side to which the pole falls
        action = (obs[:, 2] + 0.2 * obs[:, 3] > 0).astype(np.int32)
        env.send(action, info["env_id"])
    env.close()
    mean = float(np.mean(lengths)) if lengths else float("nan")
    print(f"{len(lengths)} episodes, mean length {mean:.1f}")
    return mean


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # the status that shells report after Ctrl-C
