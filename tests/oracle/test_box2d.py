# SPDX-License-Identifier: Apache-2.0
"""Box2D's environments against Gymnasium's: the same draws and actions, to the episode's end.

The reference draws our numbers (own_numbers.py), so that nothing has to be copied into its world,
and every observation, reward and end is equal to the bit. Each episode has a reference of its own:
BipedalWalker goes on in the world of the episode before, whose history then shows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from own_numbers import NumpyLike, Rng

import rollouts
from rollouts import _native

pytest.importorskip("Box2D", reason="Gymnasium's environments need Box2D, which has no wheel here")
from gymnasium.envs.box2d import bipedal_walker, lunar_lander

pytestmark = pytest.mark.system

# with each of two policies; a walker's last twenty times as long, and its reference is as slow.
# The long form has 500
NUM_EPISODES = {"LunarLander": 25, "BipedalWalker": 6}
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
        continuous = options.get("continuous", env_id == "LunarLanderContinuous-v3")

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
    """Ways to act for `count` environments, half of them skilled."""
    space = gymnasium.make(env_id, **options).action_space
    random = [at_random(space, index) for index in range(count)]
    return random + [skilled(env_id, options) for _ in range(count)]


def num_episodes(env_id: str) -> int:
    return next(count for name, count in NUM_EPISODES.items() if env_id.startswith(name))


@pytest.mark.parametrize("env_id", IDS)
def test_episodes_are_gymnasiums_to_the_bit(env_id: str) -> None:
    count = num_episodes(env_id)
    episodes = assert_equal_to_gymnasium(env_id, acts_of(env_id, count))
    assert sum(len(episode.action) for episode in episodes) > 50 * count
    # crashes, and something else
    last = [episode.reward[-1] for episode in episodes]
    assert -100 in last
    assert set(last) != {-100.0}


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
def test_a_thousand_episodes_are_gymnasiums_to_the_bit(env_id: str) -> None:
    assert_equal_to_gymnasium(env_id, acts_of(env_id, 500))


@pytest.mark.parametrize(
    "env_id, options",
    [
        ("LunarLander-v3", {"gravity": -3.7}),
        ("LunarLander-v3", {"enable_wind": True}),
        ("LunarLander-v3", {"enable_wind": True, "wind_power": 20.0, "turbulence_power": 0.3}),
        ("LunarLander-v3", {"continuous": True, "enable_wind": True, "gravity": -11.9}),
        ("LunarLanderContinuous-v3", {"enable_wind": True, "wind_power": 3.0}),
        ("BipedalWalker-v3", {"hardcore": True}),
    ],
)
def test_options_are_gymnasiums(env_id: str, options: dict[str, Any]) -> None:
    count = 2 if env_id.startswith("Bipedal") else 5
    assert_equal_to_gymnasium(env_id, acts_of(env_id, count, **options), **options)


@pytest.mark.parametrize("env_id", IDS)
def test_spaces_limits_and_defaults_are_gymnasiums(env_id: str) -> None:
    reference = gymnasium.make(env_id)
    with rollouts.make_vec(env_id, 1) as env:
        assert env.single_observation_space == reference.observation_space
        assert env.single_action_space == reference.action_space
    ours, theirs = rollouts.env_spec(env_id), reference.spec
    assert ours.max_episode_steps == theirs.max_episode_steps
    assert ours.reward_threshold == theirs.reward_threshold
    task = reference.unwrapped
    assert {name: getattr(task, name) for name in ours.options} == ours.options


@pytest.mark.parametrize("env_id", IDS)
def test_later_episodes_have_worlds_of_their_own(env_id: str) -> None:
    actions = [[at_random(gymnasium.make(env_id).action_space, 9)(None)] for _ in range(400)]
    begun = [0]
    rows: list[tuple[np.ndarray, float]] = []
    with rollouts.make_vec(env_id, 1, seed=SEED, max_episode_steps=60) as env:
        obs, _ = env.reset()
        rows.append((obs[0].copy(), 0.0))
        for i, action in enumerate(actions):
            obs, reward, terminated, truncated, _ = env.step(np.array(action))
            rows.append((obs[0].copy(), float(reward[0])))
            # the next row is the first of another episode
            if terminated[0] or truncated[0]:
                begun.append(i + 2)
    assert len(begun) > 5
    for number, (first, last) in enumerate(pairwise(begun)):
        reference = gymnasium.make(env_id, disable_env_checker=True, max_episode_steps=60)
        played = [action[0] for action in actions[first : last - 1]]
        theirs = follow(reference, played, 0, number)
        np.testing.assert_array_equal([row[0] for row in rows[first:last]], theirs.obs)
        assert [row[1] for row in rows[first + 1 : last]] == theirs.reward


@pytest.mark.parametrize("env_id", IDS)
def test_particles_of_the_reference_change_nothing(env_id: str) -> None:
    # it makes them where frames are asked for; ours has none
    episodes = record(env_id, acts_of(env_id, 1 if env_id.startswith("Bipedal") else 5))
    for index, ours in enumerate(episodes):
        drawn = gymnasium.make(env_id, disable_env_checker=True, render_mode="rgb_array")
        assert_equal(ours, follow(drawn, ours.action, index))


def test_symbols_of_box2d_stay_inside_the_module() -> None:
    # the binding's are in this process too, under the same names
    with pytest.raises(AttributeError):
        _ = ctypes.CDLL(_native.__file__)["_ZN7b2World4StepEfii"]
