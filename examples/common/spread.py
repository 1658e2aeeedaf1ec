# SPDX-License-Identifier: Apache-2.0
"""simple_spread in the units of MAPPO's authors, for comparison with their figure of -120.

Their scenario (github.com/marlbenchmark/on-policy, onpolicy/envs/mpe/scenarios/simple_spread.py)
differs from PettingZoo's in three things:

- a reward is the sum over all agents, in which the covered landmarks count once for each agent;
  PettingZoo adds half of the landmarks' part and half of the agent's own collisions;
- an agent also collides with itself, which costs it 1 in each step;
- landmarks lie within 0.8 of the middle, in place of 1.

So an agent's return of x is `2 * 3 * x - 3 * 25` there, over episodes whose landmarks lie within
0.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import rollouts
from rollouts.policies.native import Head
from rollouts.policy import TorchPolicy

NUM_AGENTS, NUM_STEPS = 3, 25
# columns of an observation: velocity (2), the agent's position (2), landmarks relative to it
POSITION, LANDMARKS = slice(2, 4), slice(4, 10)
REACH = 0.8


@dataclass(frozen=True, slots=True)
class SpreadScore:
    """Score of policies in simple_spread_v3 with its defaults."""

    mean_return: float  # an agent's mean over all episodes
    num_episodes: int
    authors_return: float  # in the authors' units, over episodes that their scenario could have
    authors_error: float  # standard error of authors_return
    authors_episodes: int


def score_spread(
    policies: Mapping[str, TorchPolicy], *, num_episodes: int, seed: int, likeliest: bool
) -> SpreadScore:
    """Plays an episode in each of `num_episodes` environments.

    Args:
      policies: group -> the policy that its agents share.
      num_episodes: N.
      seed: Seed of the environments.
      likeliest: Whether to take the likeliest actions; else they are drawn, as in training.
    """
    env = rollouts.make_multi_agent_vec(
        "simple_spread_v3", num_episodes, seed=seed, autoreset_mode="same_step"
    )
    with env:
        acting: dict[str, Any] = dict(policies)
        if likeliest:
            head = Head("categorical", deterministic=True)
            acting = {
                name: rollouts.NativePolicy.from_torch(
                    policy.module, env.groups[name].single_action_space, head=head
                )
                for name, policy in policies.items()
            }
        collector = rollouts.Collector(env, acting, NUM_STEPS)
        batch = collector.collect()["agent"]
    by_agent = batch.reward.reshape(NUM_STEPS, num_episodes, NUM_AGENTS)
    returns = by_agent.sum(axis=0).mean(axis=1)
    first = batch.obs[0].reshape(num_episodes, NUM_AGENTS, -1)[:, 0]
    landmarks = first[:, LANDMARKS].reshape(-1, NUM_AGENTS, 2) + first[:, None, POSITION]
    within = (np.abs(landmarks) <= REACH).all(axis=(1, 2))
    authors = 2 * NUM_AGENTS * returns[within] - NUM_AGENTS * NUM_STEPS
    return SpreadScore(
        mean_return=float(returns.mean()),
        num_episodes=num_episodes,
        authors_return=float(authors.mean()),
        authors_error=float(authors.std() / np.sqrt(len(authors))),
        authors_episodes=len(authors),
    )
