# SPDX-License-Identifier: Apache-2.0
"""Box2D's environments against Gymnasium's: the same draws and actions, to the episode's end.

The reference draws our numbers (own_numbers.py), so that nothing has to be copied into its world,
and every observation, reward and end is equal to the bit. Each episode has a reference of its own:
BipedalWalker goes on in the world of the episode before, whose history then shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.box2d import bipedal_walker, lunar_lander
from own_numbers import NumpyLike, Rng

import rollouts

NUM_EPISODES = 100  # with each policy
SEED = 11
IDS = (
    "LunarLander-v3",
    "LunarLanderContinuous-v3",
    "BipedalWalker-v3",
    "BipedalWalkerHardcore-v3",
)
# (its own observation) -> action, of one environment
Act = Callable[[np.ndarray], Any]


@dataclass
class Episode:
    """Observations are one more than the rest."""

    obs: list[np.ndarray] = field(default_factory=list)
    action: list[Any] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)
    ends: list[tuple[bool, bool]] = field(default_factory=list)


def skilled(env_id: str, options: dict[str, Any]) -> Act:
    """The heuristic that Gymnasium has for it."""
    if env_id.startswith("Bipedal"):
        walker = bipedal_walker.BipedalWalkerHeuristics()
        walker.a = np.zeros(4)
        return lambda obs: walker.step_heuristic(obs).astype(np.float32)

    class Lander:
        continuous = env_id == "LunarLanderContinuous-v3"

    lander = Lander()
    lander.unwrapped = lander
    return lambda obs: lunar_lander.heuristic(lander, obs)


def at_random(space: gymnasium.Space, index: int) -> Act:
    generator = np.random.default_rng(index)
    if isinstance(space, gymnasium.spaces.Discrete):
        return lambda obs: int(generator.integers(space.n))
    # beyond the bounds too: the references clip
    return lambda obs: generator.uniform(-1.5, 1.5, space.shape).astype(np.float32)


def record(env_id: str, acts: list[Act], **options: Any) -> list[Episode]:
    """Each environment's first episode."""
    episodes = [Episode() for _ in acts]
    with rollouts.make_vec(
        env_id, len(acts), seed=SEED, autoreset_mode="disabled", num_threads=2, **options
    ) as env:
        obs, _ = env.reset()
        for episode, one in zip(episodes, obs.copy(), strict=True):
            episode.obs.append(one)
        going = np.arange(len(acts))
        while len(going):
            action = [acts[i](episodes[i].obs[-1]) for i in going]
            rows = np.array(action, env.single_action_space.dtype)
            obs, reward, terminated, truncated, _ = env.step(rows, going)
            for row, i in enumerate(going):
                episodes[i].obs.append(obs[row].copy())
                episodes[i].action.append(rows[row])
                episodes[i].reward.append(float(reward[row]))
                episodes[i].ends.append((bool(terminated[row]), bool(truncated[row])))
            going = going[~(terminated | truncated)]
    return episodes


def follow(reference: gymnasium.Env, actions: list[Any], index: int, number: int = 0) -> Episode:
    """The reference's episode with the numbers of our environment `index`."""
    reference.unwrapped.np_random = NumpyLike(Rng(SEED, index, number))
    obs, info = reference.reset()
    assert info == {}
    episode = Episode([obs])
    for action in actions:
        obs, reward, terminated, truncated, info = reference.step(action)
        assert info == {}
        episode.obs.append(obs)
        episode.action.append(action)
        episode.reward.append(float(reward))
        episode.ends.append((bool(terminated), bool(truncated)))
    return episode


def assert_equal(ours: Episode, theirs: Episode) -> None:
    np.testing.assert_array_equal(np.array(ours.obs), np.array(theirs.obs), strict=True)
    assert ours.reward == theirs.reward
    assert ours.ends == theirs.ends


def assert_equal_to_gymnasium(env_id: str, acts: list[Act], **options: Any) -> list[Episode]:
    episodes = record(env_id, acts, **options)
    for index, ours in enumerate(episodes):
        reference = gymnasium.make(env_id, disable_env_checker=True, **options)
        assert_equal(ours, follow(reference, ours.action, index))
    return episodes


def acts_of(env_id: str, count: int, **options: Any) -> list[Act]:
    """Half of them skilled."""
    space = gymnasium.make(env_id, **options).action_space
    random = [at_random(space, index) for index in range(count)]
    return random + [skilled(env_id, options) for _ in range(count)]


@pytest.mark.parametrize("env_id", IDS)
def test_episodes_are_gymnasiums_to_the_bit(env_id: str) -> None:
    episodes = assert_equal_to_gymnasium(env_id, acts_of(env_id, NUM_EPISODES))
    assert sum(len(episode.action) for episode in episodes) > 50 * NUM_EPISODES
    last = [episode.reward[-1] for episode in episodes]
    # crashes, and something else
    assert -100 in last
    assert set(last) != {-100.0}
