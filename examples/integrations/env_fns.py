# SPDX-License-Identifier: Apache-2.0
"""A Python environment of your own, hosted in processes, from which a policy collects.

    python examples/integrations/env_fns.py                     in this process
    python examples/integrations/env_fns.py --num-workers 2     in two Ray workers

What changes where Gymnasium's AsyncVectorEnv was:

    -envs = gymnasium.vector.AsyncVectorEnv([Corridor] * 64)
    +envs = rollouts.from_env_fns([Corridor] * 64)

and further parts of rollouts: a Collector that makes (T, B) batches from the environments, and Ray
workers that each host such environments, by
`RolloutCoordinator(collect=CollectOptions(make_env=...))`.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import gymnasium
import numpy as np

import rollouts
from rollouts.support.extras import needs
from rollouts.workers import CollectOptions

with needs("torch", "this example"):
    import torch
    from torch import nn
    from torch.distributions import Categorical

    from rollouts.policy import TorchPolicy
    from rollouts.returns import batch_gae


class Corridor(gymnasium.Env[Any, Any]):
    """Walk right to the end: +1 there, -0.01 for every step."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    length, time_limit = 8, 50

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts somewhere in the left half."""
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(self.length // 2)), 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        """Goes left (0) or right (1)."""
        self.place = max(0, self.place + (1 if action == 1 else -1))
        self.steps += 1
        is_there = self.place >= self.length
        reward = 1.0 if is_there else -0.01
        return self._observe(), reward, is_there, self.steps >= self.time_limit, {}

    def _observe(self) -> Any:
        place, steps = self.place / self.length, self.steps / self.time_limit
        return np.array([place, steps], np.float32)


class Network(nn.Module):
    """Two layers, a distribution over actions and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
        self.actor, self.critic = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the logits (B, 2) of actions and the values (B,)."""
        features = self.body(obs)
        return self.actor(features), self.critic(features).squeeze(-1)


def make_policy(spec: Any) -> TorchPolicy:
    """Makes the policy of a worker, and the learner's."""
    torch.manual_seed(0)
    return TorchPolicy(Network(), Corridor.action_space)


def make_env(config: Any) -> rollouts.VectorEnv:
    """Makes the environments of one worker."""
    return rollouts.from_env_fns(
        [Corridor] * config.num_envs,
        seed=config.env_seed,
        env_id_offset=config.env_id_offset,
        autoreset_mode="same_step",  # keeps final observations, which a Collector needs
        num_processes=2,
    )


def main(argv: list[str] | None = None) -> list[float]:
    """Learns by REINFORCE with a baseline; returns the mean return of each update."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--num-workers", type=int, default=0, help="Ray actors; 0: none")
    parser.add_argument("--num-updates", type=int, default=30)
    args = parser.parse_args(argv)

    policy = make_policy(None)
    optimizer = torch.optim.Adam(policy.module.parameters(), lr=1e-2)
    returns: list[float] = []
    with rollouts.RolloutCoordinator(
        "Corridor",  # any name: make_env makes the environments
        make_policy,
        num_workers=args.num_workers,
        num_envs_per_worker=16,
        rollout_length=100,
        collect=CollectOptions(make_env=make_env),
    ) as coordinator:
        for update in range(args.num_updates):
            coordinator.publish_weights(policy.weights())
            batch = coordinator.get(1)
            advantages, targets = batch_gae(batch, gamma=0.99, gae_lambda=0.95)
            logits, value = policy.module(torch.as_tensor(batch.obs).flatten(0, 1))
            distribution = Categorical(logits=logits)
            log_prob = distribution.log_prob(torch.as_tensor(batch.action).flatten())
            advantage = torch.as_tensor(advantages).flatten()
            error = value - torch.as_tensor(targets).flatten()
            loss = 0.5 * error.square().mean() - (log_prob * advantage).mean()
            loss -= 0.01 * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            returns.append(float(batch.episodes().returns.mean()))
            print(f"update {update:3}  mean return {returns[-1]:.3f}")
    return returns


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)  # the status that shells report after Ctrl-C
