# SPDX-License-Identifier: Apache-2.0
"""Configs of RLlib's runners, and what is in the episodes that they return."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from rollouts.integrations import rllib


class ByTorch(rllib.RolloutsEnvRunner):
    """Lets torch compute the module, whose bits RLlib's own runner has."""

    rollout_engine = "torch"


class ByPool(rllib.RolloutsEnvRunner):
    """Fails where the pool's threads cannot compute the module."""

    rollout_engine = "native"


def config_of(env: str, num_envs: int = 4, *, runner: Any = None, **env_config: Any) -> PPOConfig:
    """PPO's, with a small network, for one runner in this process."""
    config = PPOConfig().environment(env, env_config=env_config)
    config.env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=num_envs,
        gym_env_vectorize_mode="vector_entry_point",
        env_runner_cls=runner,
    )
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8]))
    config.debugging(seed=7)
    return config


def columns(episode: SingleAgentEpisode) -> dict[str, Any]:
    """Everything that a learner may read, lookback included."""
    extras = episode.extra_model_outputs
    return {
        "obs": episode.observations.data,
        "actions": episode.actions.data,
        "rewards": episode.rewards.data,
        **{name: buffer.data for name, buffer in extras.items()},
    }


def stitched(chunks: list[SingleAgentEpisode]) -> dict[tuple[bytes, ...], dict[str, Any]]:
    """Episodes put together of their chunks, by the first observation."""
    by_id: dict[str, list[SingleAgentEpisode]] = defaultdict(list)
    for chunk in chunks:
        by_id[chunk.id_].append(chunk)
    whole = {}
    for parts in by_id.values():
        for before, after in itertools.pairwise(parts):
            assert after.t_started == before.t and not before.is_done
            last, first = before.get_observations(-1), after.get_observations(0)
            np.testing.assert_array_equal(last, first)
        obs = [part.get_observations(slice(0, len(part))) for part in parts]
        whole[parts[0].get_observations(0).tobytes(),] = {
            "obs": np.concatenate([*obs, parts[-1].get_observations([-1])]),
            "actions": np.concatenate([part.get_actions() for part in parts]),
            "rewards": np.concatenate([part.get_rewards() for part in parts]),
            "end": (parts[-1].is_terminated, parts[-1].is_truncated),
        }
    return whole
