# SPDX-License-Identifier: Apache-2.0
"""Slow, obvious models of replay items, and environments whose observations say where they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from rollouts.batch import RolloutBatch
from rollouts.replay import Episodes, Hindsight, NStep, Sequences

OBS_SPACE = spaces.Box(-1, 1e6, (3,), np.float32)
ACTION_SPACE = spaces.Discrete(1000)

TERMINATED, TRUNCATED, BOTH, CUT = "terminated", "truncated", "both", "cut"


@dataclass
class Episode:
    """One finished or cut episode: `num_steps` steps and how it ended."""

    env_id: int
    number: int
    num_steps: int
    how: str

    def obs(self, t: int) -> tuple[float, float, float]:
        return (float(self.env_id), float(self.number), float(t))


def reward_of(env_id: int, episode: int, t: int) -> float:
    """A small whole number, so that discounts of 1/2 give exact sums."""
    return float((env_id * 7 + episode * 3 + t * 5) % 11)


@dataclass
class World:
    """B environments; environment i's episodes have the lengths and ends of `plan[i]`, in turn."""

    plan: Sequence[Sequence[tuple[int, str]]]
    env_id: Sequence[int]
    number: list[int] = field(default_factory=list)
    t: list[int] = field(default_factory=list)
    done: list[Episode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.number, self.t = [0] * len(self.plan), [0] * len(self.plan)

    def obs(self) -> Any:
        return np.array(
            [(e, n, t) for e, n, t in zip(self.env_id, self.number, self.t, strict=True)],
            np.float32,
        )

    def action(self) -> Any:
        return np.array(self.t, np.int64)

    def step_env(self, i: int) -> tuple[float, bool, bool, Any]:
        """Steps environment i; returns reward, terminated, truncated and the true next obs."""
        length, how = self.plan[i][self.number[i] % len(self.plan[i])]
        reward = reward_of(self.env_id[i], self.number[i], self.t[i])
        self.t[i] += 1
        final = np.array((self.env_id[i], self.number[i], self.t[i]), np.float32)
        if self.t[i] < length:
            return reward, False, False, final
        self.done.append(Episode(self.env_id[i], self.number[i], length, how))
        self.number[i] += 1
        self.t[i] = 0
        return reward, how in (TERMINATED, BOTH), how in (TRUNCATED, BOTH), final

    def rollout(self, steps: int) -> RolloutBatch:
        """T steps as a Collector in same-step mode makes them."""
        rows = len(self.plan)
        shape = (steps, rows)
        obs, action = np.zeros((*shape, 3), np.float32), np.zeros(shape, np.int64)
        reward = np.zeros(shape, np.float32)
        terminated, truncated = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        finals = []
        for t in range(steps):
            obs[t], action[t] = self.obs(), self.action()
            for i in range(rows):
                reward[t, i], terminated[t, i], truncated[t, i], final = self.step_env(i)
                if terminated[t, i] or truncated[t, i]:
                    finals.append(final)
        zeros = np.zeros(shape, np.float32)
        return RolloutBatch(
            obs=obs,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            bootstrap_value=zeros,
            log_prob=zeros,
            value=zeros,
            last_obs=self.obs(),
            last_value=zeros[0] if steps else np.zeros(rows, np.float32),
            policy_version=obs[..., 2].astype(np.int64),
            env_id=np.array(self.env_id, np.int32),
            episode_return=np.zeros(shape),
            episode_length=np.zeros(shape, np.int32),
            final_obs=np.array(finals, np.float32).reshape(-1, 3),
        )

    def episodes(self) -> Iterator[Episode]:
        """The episodes so far; of open ones the part whose next observations are stored."""
        yield from self.done
        for i, env_id in enumerate(self.env_id):
            yield Episode(env_id, self.number[i], self.t[i] - 1, CUT)


def n_steps(kind: NStep, episode: Episode, *, is_over: bool) -> Iterator[tuple[Any, ...]]:
    """(obs, action, reward, discount, next_obs, terminated, truncated, k) of each transition."""
    length = episode.num_steps
    for t in range(length):
        k = min(kind.n, length - t)
        if k < kind.n and not is_over:
            return
        yield _transition(kind, episode, t, k)


def hindsight_steps(
    kind: Hindsight, episode: Episode, *, is_over: bool
) -> Iterator[tuple[Any, ...]]:
    """The transitions of whole pieces of an episode, as of `n_steps`, towards their own goals."""
    for start, steps in runs(Episodes(kind.max_length), episode, is_over=is_over):
        for t in range(start, start + steps):
            yield _transition(kind, episode, t, min(kind.n, start + steps - t))


def _transition(kind: NStep | Hindsight, episode: Episode, t: int, k: int) -> tuple[Any, ...]:
    total = sum(
        kind.discount**i * reward_of(episode.env_id, episode.number, t + i) for i in range(k)
    )
    at_end = t + k == episode.num_steps
    terminated = at_end and episode.how in (TERMINATED, BOTH)
    truncated = at_end and episode.how in (TRUNCATED, BOTH)
    discount = 0.0 if terminated else kind.discount**k
    next_obs = episode.obs(t + k)
    return episode.obs(t), t, total, discount, next_obs, terminated, truncated, k


def runs(kind: Sequences | Episodes, episode: Episode, *, is_over: bool) -> list[tuple[int, int]]:
    """(first step, steps) of each sequence of an episode."""
    if isinstance(kind, Episodes):
        length, period, at_end = kind.max_length, kind.max_length, "truncate"
    else:
        length, period, at_end = kind.length, kind.step, kind.end_of_episode
    result, start = [], 0
    while start + length <= episode.num_steps:
        result.append((start, length))
        start += period
    ends_there = bool(result) and sum(result[-1]) == episode.num_steps
    if not is_over or ends_there:
        return result
    if at_end == "write":
        if episode.num_steps >= length:
            result.append((episode.num_steps - length, length))
    elif start < episode.num_steps:
        result.append((start, episode.num_steps - start))
    return result
