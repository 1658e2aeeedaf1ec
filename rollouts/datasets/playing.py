# SPDX-License-Identifier: Apache-2.0
"""`play_again`: plays episodes again and checks that they are the same, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rollouts.datasets.episodes import Episode
from rollouts.datasets.start_states import seek
from rollouts.errors import SpecError
from rollouts.support.plain_values import shown


def start_of(episode: Episode, env: Any) -> Any:
    """Begins an episode again in the first environment of a pool; returns its observation.

    Args:
      episode: An episode with a `start`.
      env: A synchronous pool of threads with the options in the set and autoreset_mode="disabled".

    Raises:
      SpecError: The episode has no `start`, or the pool is of another kind.
    """
    if env.autoreset_mode is not AutoresetMode.DISABLED or not hasattr(env.engine.pool, "seek"):
        raise SpecError(
            "env begins episodes by itself or is no pool of threads: make it with make_vec(id, 1, "
            'autoreset_mode="disabled")'
        )
    if episode.start is None:
        raise SpecError(
            "the episode does not say with which random stream it began: it was recorded from "
            "environments that do not tell it, or by another library"
        )
    obs, _ = seek(env, 0, episode.start)
    return obs[0]


def play_again(episodes: Iterable[Episode], env: Any) -> int:
    """Plays episodes again and compares each bit; returns their number.

    Args:
      episodes: Episodes of environments with one agent.
      env: As for `start_of`.

    Raises:
      SpecError: An observation, a reward or an end differs; the message names the place. Also the
        errors of `start_of`.
    """
    count = 0
    for count, episode in enumerate(episodes, 1):
        if not isinstance(episode, Episode):
            raise SpecError(
                f"episodes has {shown(episode)}, expected an Episode: give a set of "
                "rollouts.datasets.open_set(path), or a list of its episodes"
            )
        expected = episode.observation
        _compare("observation", start_of(episode, env), expected[0], count, 0)
        for step in range(episode.num_steps):
            actions = np.zeros((env.num_envs, *episode.action.shape[1:]), episode.action.dtype)
            actions[:] = env.single_action_space.sample() if env.num_envs > 1 else actions
            actions[0] = episode.action[step]
            obs, reward, terminated, truncated, _ = env.step(actions)
            found = {
                "observation": (obs[0], expected[step + 1]),
                "reward": (np.float32(reward[0]), episode.reward[step]),
                "terminated": (terminated[0], episode.terminated[step]),
                "truncated": (truncated[0], episode.truncated[step]),
            }
            for name, (one, other) in found.items():
                _compare(name, one, other, count, step)
    return count


def _compare(name: str, found: Any, expected: Any, number: int, step: int) -> None:
    if np.asarray(found).tobytes() != np.asarray(expected).tobytes():
        raise SpecError(
            f"{name} of episode {number}, step {step} is {found}, recorded was {expected}: the "
            "environment has another id, other options, or another version"
        )
