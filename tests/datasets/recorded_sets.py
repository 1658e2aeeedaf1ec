# SPDX-License-Identifier: Apache-2.0
"""Helpers of tests of data sets: a policy that costs nothing, and episodes by a slow loop."""

from __future__ import annotations

from typing import Any

import numpy as np

import rollouts
from rollouts.policy import PolicyOutput


class Uniform:
    """Draws actions from the space, some of them beyond its bounds."""

    policy_version = 0

    def __init__(self, space: Any, seed: int = 0) -> None:
        self._space = space
        self._random = np.random.default_rng(seed)
        space.seed(seed)

    def act(self, obs: Any) -> PolicyOutput:
        action = np.stack([self._space.sample() for _ in obs])
        if action.dtype.kind == "f":
            action *= 1.3
        drawn = self._random.random(len(obs), np.float32)
        return PolicyOutput(action, drawn, np.zeros(len(obs), np.float32))

    def value(self, obs: Any) -> Any:
        return np.zeros(len(obs), np.float32)

    def load_weights(self, weights: Any, version: int) -> None:
        raise NotImplementedError


class Closing(rollouts.Collector):
    """A Collector for a `with` block."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def collector_of(id: str, num_envs: int, options: Any, rollout_length: int = 32) -> Closing:
    """A collector of random actions."""
    env = rollouts.make_vec(id, num_envs, seed=11, autoreset_mode="same_step", **options)
    return Closing(env, Uniform(env.single_action_space), rollout_length, keep_final_obs=True)


def rows_of(batches: Any) -> dict[int, list[dict[str, Any]]]:
    """env_id -> the episodes of rollouts that follow each other, row by row."""
    open_rows: dict[int, list[Any]] = {}
    found: dict[int, list[dict[str, Any]]] = {int(one): [] for one in batches[0].env_id}
    for batch in batches:
        finals = iter(batch.final_obs)
        for t in range(len(batch.reward)):
            for column, env_id in enumerate(batch.env_id.tolist()):
                rows = open_rows.setdefault(env_id, [])
                rows.append(
                    (
                        batch.obs[t, column],
                        batch.action[t, column],
                        batch.reward[t, column],
                        batch.log_prob[t, column],
                    )
                )
                if batch.terminated[t, column] or batch.truncated[t, column]:
                    obs, action, reward, log_prob = zip(*rows, strict=True)
                    found[env_id].append(
                        {
                            "obs": np.stack([*obs, next(finals)]),
                            "action": np.stack(action),
                            "reward": np.stack(reward),
                            "log_prob": np.stack(log_prob),
                        }
                    )
                    open_rows[env_id] = []
    return found
