# SPDX-License-Identifier: Apache-2.0
"""A whole rollout in one compiled function: policy and environments in `jax.lax.scan`.

EnvPool's documentation on XLA, and what changes:

    -env = envpool.make("CartPole-v1", env_type="gym", num_envs=64)
    +env = rollouts.make_vec("CartPole-v1", 64)
     env.reset()
     handle, recv, send, step = env.xla()

`step` returns the batch by name (`batch.obs`, `batch.reward`, ...), as `env.recv_batch()` does. The
example improves a linear policy by evolution: each environment has its own parameters, so that one
rollout tries as many policies as there are environments. Run it:

    python examples/integrations/jax_scan.py --generations 20
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import rollouts
from rollouts.support.extras import needs

with needs("jax", "this example"):
    import jax
    import jax.numpy as jnp


def main(argv: list[str] | None = None) -> float:
    """Improves the policy; returns the last generation's mean number of steps without a fall."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--steps", type=int, default=400, help="of a rollout")
    parser.add_argument("--generations", type=int, default=20)
    args = parser.parse_args(argv)

    env = rollouts.make_vec("CartPole-v1", args.num_envs, seed=1)
    first_obs, _ = env.reset()
    handle, _, _, step = env.xla()

    @jax.jit
    def rollout(handle: Any, obs: Any, weights: Any) -> tuple[Any, Any, Any]:
        """Returns each environment's steps without a fall, with weights (num_envs, 4)."""

        def one(carry: Any, _: Any) -> tuple[Any, Any]:
            handle, obs = carry
            action = (jnp.sum(obs * weights, axis=1) > 0).astype(jnp.int32)
            handle, batch = step(handle, action)
            return (handle, batch.obs), batch.terminated

        (handle, obs), fell = jax.lax.scan(one, (handle, obs), length=args.steps)
        return handle, obs, args.steps / (1 + fell.sum(axis=0))

    key = jax.random.key(1)
    mean, obs = jnp.zeros(4), jnp.asarray(first_obs)
    score = 0.0
    for generation in range(args.generations):
        key, subkey = jax.random.split(key)
        weights = mean + jax.random.normal(subkey, (args.num_envs, 4))
        handle, obs, stood = rollout(handle, obs, weights)
        # the mean of the best quarter
        best = jnp.argsort(-stood)[: args.num_envs // 4]
        mean = weights[best].mean(axis=0)
        score = float(stood.mean())
        print(f"generation {generation}: {score:.1f} steps between falls")
    env.close()
    return score


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # the status that shells report after Ctrl-C
