# SPDX-License-Identifier: Apache-2.0
"""Many episodes of one id, recorded for a comparison with a reference implementation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import rollouts

Array = npt.NDArray[np.generic]
# (obs (n, ...), index (n,), generator) -> actions (n, ...)
Policy = Callable[[Array, Array, np.random.Generator], Array]


@dataclass(frozen=True, slots=True)
class Episode:
    """One environment's first episode of L steps.

    Attributes:
      state (L + 1, *), obs (L + 1, *): Entry 0 is after reset.
      action (L, *), reward (L,)
      terminated, truncated: How it ended.
    """

    state: Array
    obs: Array
    action: Array
    reward: Array
    terminated: bool
    truncated: bool


def get_states(env: rollouts.VectorEnv, index: Array, dtype: npt.DTypeLike) -> Array:
    """Raw states (n, *) of environments: the native State struct as numbers of one dtype."""
    return np.stack([np.frombuffer(env.engine.pool.get_state(i), dtype) for i in index.tolist()])


def set_states(env: rollouts.VectorEnv, states: Array) -> None:
    """Writes raw states (N, *) of all environments."""
    for index, state in enumerate(np.ascontiguousarray(states)):
        env.engine.pool.set_state(index, state.tobytes())


def record(
    env_id: str,
    num_episodes: int,
    policy: Policy,
    state_dtype: npt.DTypeLike,
    *,
    seed: int,
    **options: rollouts.specs.OptionValue,
) -> list[Episode]:
    """Steps `num_episodes` environments, each to the end of its first episode."""
    generator = np.random.default_rng(seed)
    rows: list[list[tuple]] = [[] for _ in range(num_episodes)]
    ends: list[tuple[bool, bool]] = [(False, False)] * num_episodes
    with rollouts.make_vec(
        env_id, num_episodes, seed=seed, autoreset_mode="disabled", **options
    ) as env:
        obs, _ = env.reset()
        going = np.arange(num_episodes)
        first = [
            (state, one)
            for state, one in zip(get_states(env, going, state_dtype), obs.copy(), strict=True)
        ]
        while len(going):
            action = policy(obs, going, generator)
            obs, reward, terminated, truncated, _ = env.step(action, going)
            states = get_states(env, going, state_dtype)
            for row in zip(going.tolist(), states, obs.copy(), action, reward, strict=True):
                rows[row[0]].append(row[1:])
            ended = terminated | truncated
            for i in np.flatnonzero(ended):
                ends[going[i]] = bool(terminated[i]), bool(truncated[i])
            obs, going = obs[~ended], going[~ended]

    episodes = []
    for (state, one), steps, end in zip(first, rows, ends, strict=True):
        later_states, later_obs, actions, rewards = zip(*steps, strict=True)
        episodes.append(
            Episode(
                np.stack([state, *later_states]),
                np.stack([one, *later_obs]),
                np.stack(actions),
                np.array(rewards),
                *end,
            )
        )
    return episodes
