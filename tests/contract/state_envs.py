# SPDX-License-Identifier: Apache-2.0
"""Environments whose states are saved, and what they say when they are stepped one by one."""

from __future__ import annotations

import functools

import numpy as np
from gymnasium import spaces

import rollouts

LIMIT = 30  # steps of an episode: short, so that ends and resets are among what is compared

# what a step says about one environment, its env_id aside
Row = tuple


def make(env_id: str, num_envs: int = 3, **arguments: object) -> rollouts.VectorEnv:
    arguments = {"seed": 5, "num_threads": 1, "max_episode_steps": LIMIT} | arguments
    return rollouts.make_vec(env_id, num_envs, **arguments)


def action_of(env: rollouts.VectorEnv, step: int) -> np.ndarray:
    """One environment's action, a function of the step alone."""
    generator = np.random.default_rng(step)
    space = env.single_action_space
    if isinstance(space, spaces.Discrete):
        return generator.integers(space.n, size=1)
    if isinstance(space, spaces.MultiDiscrete):
        return generator.integers(space.nvec, size=(1, *space.shape)).astype(space.dtype)
    return generator.uniform(space.low, space.high, (1, *space.shape)).astype(np.float32)


def play(env: rollouts.VectorEnv, one: int, first: int, count: int) -> list[Row]:
    """Steps environment `one` alone through steps first to first + count."""
    rows = []
    for step in range(first, first + count):
        env.send(action_of(env, step), [one])
        batch = env.recv_batch()
        assert batch.env_id.tolist() == [one]
        ended = bool(batch.terminated[0] or batch.truncated[0])
        final = batch.final_obs[0].tobytes() if batch.final_obs is not None and ended else None
        columns = (batch.reward, batch.terminated, batch.truncated, batch.episode_return)
        columns += (batch.episode_length, *batch.info.values())
        rows.append((batch.obs[0].tobytes(), final, *(column[0].tolist() for column in columns)))
        if ended and env.autoreset_mode.name == "DISABLED":
            break
    return rows


@functools.cache
def state_of(env_id: str, **arguments: object) -> bytes:
    with make(env_id, 1, **arguments) as env:
        env.reset()
        return env.get_state()[0]
