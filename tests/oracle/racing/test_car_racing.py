# SPDX-License-Identifier: Apache-2.0
"""CarRacing against Gymnasium's, step by step to the episode's end.

The reference draws our numbers (own_numbers.py), so that its road is ours. The car's motion,
rewards and ends are equal to the bit, and so is every pixel of an observation but for those of the
score, whose digits are ours. Each episode has a reference of its own: Gymnasium goes on in the
world of the episode before, whose history then shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from own_numbers import NumpyLike, Rng

import rollouts

pytestmark = pytest.mark.system

pytest.importorskip("Box2D", reason="Gymnasium's environments need Box2D, which has no wheel here")
pytest.importorskip("pygame", reason="Gymnasium's CarRacing needs pygame")

ENV_ID = "CarRacing-v3"
SEED = 11
SCORE = np.s_[87:93, :12]  # rows and columns of the score's digits
# the reference draws a picture in 2 ms: compared in the fast lane are those of every so many steps
PICTURE_STEPS = 10

# (the reference, its own numbers) -> action
Act = Callable[[Any, np.random.Generator], Any]


def skilled(task: Any, generator: np.random.Generator) -> np.ndarray:
    """Steers towards the road ahead, with some noise: it finishes laps."""
    hull = task.car.hull
    places = np.array([point[2:4] for point in task.track])
    nearest = int(np.argmin(((places - np.array(hull.position)) ** 2).sum(1)))
    target = places[(nearest + 5) % len(places)] - np.array(hull.position)
    off = math.atan2(-target[0], target[1]) - hull.angle
    off = math.remainder(off, 2 * math.pi)
    speed = math.hypot(*hull.linearVelocity)
    wanted = 55 if abs(off) < 0.3 else 30
    action = [-1.5 * off, 0.6 * (speed < wanted), 0.3 * (speed > wanted + 10)]
    noisy = np.array(action) + generator.normal(0, 0.05, 3)
    # beyond the bounds too, where the reference clips what it clips
    return noisy.astype(np.float32)


def at_random(task: Any, generator: np.random.Generator) -> Any:
    if not task.continuous:
        return int(generator.choice(5, p=[0.1, 0.2, 0.2, 0.45, 0.05]))
    return generator.uniform([-1, 0, 0], [1, 1, 0.2]).astype(np.float32)


def straight(task: Any, generator: np.random.Generator) -> Any:
    """Off the field."""
    return np.array([generator.normal(0, 0.01), 1, 0], np.float32) if task.continuous else 3


def reference_of(seed: int, index: int, **options: Any) -> gymnasium.Env:
    """It draws what our environment `index` draws."""
    reference = gymnasium.make(ENV_ID, disable_env_checker=True, **options)
    reference.unwrapped.np_random = NumpyLike(Rng(seed, index, 0))
    return reference


def assert_pictures_are_equal(ours: np.ndarray, theirs: np.ndarray) -> None:
    away = np.abs(ours.astype(int) - theirs)
    # differences of 255, on average; 5 to 9 are usual
    assert away[SCORE].mean() < 16
    away[SCORE] = 0
    assert away.max() == 0, f"pixels differ at {np.argwhere(away.max(-1))[:5].tolist()}"


class Pair:
    """Our environment `index` of several, and its reference."""

    def __init__(
        self, seed: int, index: int, act: Act, options: dict[str, Any], every: int
    ) -> None:
        self.reference = reference_of(seed, index, **options)
        self.act = act
        self.generator = np.random.default_rng([seed, index])
        self.every = every
        self.steps = 0
        self.draw = self.reference.unwrapped._render
        self.reference.unwrapped._render = self.draw_some
        self.picture, _ = self.reference.reset()

    def draw_some(self, mode: str) -> Any:
        return self.draw(mode) if self.steps % self.every == 0 else None

    def choose(self) -> Any:
        self.steps += 1
        return self.act(self.reference.unwrapped, self.generator)


def assert_equal_to_gymnasium(
    acts: list[Act], every: int = PICTURE_STEPS, seed: int = SEED, **options: Any
) -> list[dict[str, Any]]:
    """Plays an episode with each; what the reference's last steps told."""
    pairs = [Pair(seed, index, act, options, every) for index, act in enumerate(acts)]
    told: list[dict[str, Any]] = [{} for _ in acts]
    arguments: dict[str, Any] = {"seed": seed, "num_threads": 1, "autoreset_mode": "disabled"}
    with rollouts.make_vec(ENV_ID, len(acts), **arguments, **options) as env:
        obs, _ = env.reset()
        for pair, one in zip(pairs, obs, strict=True):
            assert_pictures_are_equal(one, pair.picture)
        going = np.arange(len(acts))
        while len(going):
            actions = np.array([pairs[i].choose() for i in going], env.single_action_space.dtype)
            obs, reward, terminated, truncated, info = env.step(actions, going)
            for row, i in enumerate(going):
                pair = pairs[i]
                picture, their_reward, *ends, their_info = pair.reference.step(actions[row])
                assert float(reward[row]) == float(their_reward)
                assert [terminated[row], truncated[row]] == ends
                assert info["lap_finished"][row] == their_info.get("lap_finished", False)
                if picture is not None:
                    assert_pictures_are_equal(obs[row], picture)
                if any(ends):
                    told[i] = {"reward": their_reward, "steps": pair.steps, **their_info}
                    pair.reference.close()
            going = going[~(terminated | truncated)]
    return told


def test_episodes_are_gymnasiums() -> None:
    told = assert_equal_to_gymnasium([skilled, skilled, at_random, straight])
    # a lap, one that the time limit cut off, and one that left the field
    assert told[0]["lap_finished"] is True
    assert told[2]["steps"] == 1000 and "lap_finished" not in told[2]
    assert told[3]["lap_finished"] is False and told[3]["reward"] == -100


@pytest.mark.parametrize(
    "options",
    [
        {"continuous": False},
        {"domain_randomize": True},
        pytest.param({"continuous": False, "domain_randomize": True}, marks=pytest.mark.slow),
        {"lap_complete_percent": 0.3},
    ],
)
def test_options_are_gymnasiums(options: dict[str, Any]) -> None:
    acts = [straight, at_random] if "continuous" in options else [straight, skilled]
    assert_equal_to_gymnasium(acts, max_episode_steps=120, **options)


def test_every_picture_of_the_first_seconds_is_gymnasiums() -> None:
    assert_equal_to_gymnasium([skilled, at_random], every=1, max_episode_steps=60)


@pytest.mark.slow
@pytest.mark.parametrize("continuous", [True, False])
def test_five_hundred_episodes_are_gymnasiums(continuous: bool) -> None:
    skill = [skilled] * 200 if continuous else []
    acts = skill + [at_random] * (450 - len(skill)) + [straight] * 50
    for first in range(0, len(acts), 50):
        some = acts[first : first + 50]
        # roads of their own
        assert_equal_to_gymnasium(some, every=25, seed=SEED + 1 + first, continuous=continuous)


def test_spaces_limits_and_defaults_are_gymnasiums() -> None:
    reference = gymnasium.make(ENV_ID)
    for continuous in (True, False):
        theirs = gymnasium.make(ENV_ID, continuous=continuous)
        with rollouts.make_vec(ENV_ID, 1, continuous=continuous) as env:
            assert env.single_observation_space == theirs.observation_space
            assert env.single_action_space == theirs.action_space
    ours = rollouts.env_spec(ENV_ID)
    assert reference.spec is not None
    assert ours.max_episode_steps == reference.spec.max_episode_steps
    assert ours.reward_threshold == reference.spec.reward_threshold
    # `randomize` is an option of the reference's reset, True where it is not given
    assert ours.options["randomize"] is True
    names = ours.options.keys() - {"randomize"}
    assert all(getattr(reference.unwrapped, name) == ours.options[name] for name in names)
