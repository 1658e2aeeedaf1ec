# SPDX-License-Identifier: Apache-2.0
"""Classic control against Gymnasium: one state, the same actions, to the episode's end.

The state is copied once, after reset, and never again inside an episode. The reference is
given our sine and cosine (native_math.py; tests/native/test_math.py compares them with
libm's), and then states and observations are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
from lockstep import Episode, Policy, get_states, record
from native_math import compile_sin_and_cos, gymnasium_with

import rollouts

# ends of both kinds come tens of times; ten times as many are slow in Python alone
NUM_EPISODES = 40

# the reference squares the pendulum's float32 torque with powf, which is at times one
# float32 step off the product: 4.7e-10 for a cost of at most 0.004
REWARD_TOLERANCE = 5e-10


@dataclass(frozen=True)
class Task:
    """The dtype of the reference's state, and a policy that ends episodes unlike chance does."""

    state_dtype: type
    skilled: Policy
    bounds: tuple[tuple[float, float], ...]


def balance(obs: Any, index: Any, generator: Any) -> Any:
    return (obs @ np.array([0.05, 0.1, 1, 0.3]) > 0).astype(np.int64)


def brake(obs: Any, index: Any, generator: Any) -> Any:
    return -np.sign(obs[:, 2:])


def pump_acrobot(obs: Any, index: Any, generator: Any) -> Any:
    return np.where(obs[:, 5] > 0, 2, 0)


def pump_car(obs: Any, index: Any, generator: Any) -> Any:
    return np.where(obs[:, 1] < 0, 0, 2)


def pump_car_softly(obs: Any, index: Any, generator: Any) -> Any:
    strength = generator.uniform(0.5, 1.5, (len(obs), 1))
    return (np.where(obs[:, 1:] < 0, -strength, strength)).astype(np.float32)


TASKS = {
    "CartPole-v0": Task(np.float64, balance, ((-0.05, 0.05),) * 4),
    "CartPole-v1": Task(np.float64, balance, ((-0.05, 0.05),) * 4),
    "Pendulum-v1": Task(np.float64, brake, ((-np.pi, np.pi), (-1, 1))),
    "Acrobot-v1": Task(np.float64, pump_acrobot, ((-0.1, 0.1),) * 4),
    "MountainCar-v0": Task(np.float64, pump_car, ((-0.6, -0.4), (0, 0))),
    "MountainCarContinuous-v0": Task(np.float32, pump_car_softly, ((-0.6, -0.4), (0, 0))),
}


def mixed(space: gymnasium.Space, skilled: Policy) -> Policy:
    """Random actions in every other environment, skilled ones in the others."""

    def policy(obs: Any, index: Any, generator: np.random.Generator) -> Any:
        if isinstance(space, gymnasium.spaces.Discrete):
            random = generator.integers(space.n, size=len(obs))
        else:
            # beyond the bounds too: the references clip
            random = generator.uniform(-2.5, 2.5, (len(obs), *space.shape)).astype(np.float32)
        chosen = (index % 2 == 0).reshape(-1, *[1] * (random.ndim - 1))
        return np.where(chosen, skilled(obs, index, generator), random).astype(random.dtype)

    return policy


def follow(reference: Any, first_state: np.ndarray, actions: np.ndarray) -> tuple[Any, ...]:
    """States (L, D), obs (L, *), rewards (L,) and ends (L,) of the reference."""
    reference.reset()
    reference.state = first_state
    states, obs, rewards, ends = [], [], [], []
    for action in actions:
        one_obs, reward, terminated, _, _ = reference.step(action)
        states.append(reference.state)
        obs.append(one_obs)
        rewards.append(reward)
        ends.append(terminated)
    return np.array(states), np.array(obs), np.array(rewards), np.array(ends)


def assert_follows(reference: Any, episode: Episode, state_dtype: type) -> None:
    states, obs, rewards, ends = follow(
        reference, episode.state[0].astype(state_dtype), episode.action
    )
    np.testing.assert_array_equal(episode.state[1:], states)
    np.testing.assert_array_equal(episode.obs[1:], obs)
    np.testing.assert_allclose(episode.reward, rewards, rtol=0, atol=REWARD_TOLERANCE)
    assert ends.tolist() == [False] * (len(ends) - 1) + [episode.terminated]


def assert_equal_to_gymnasium(
    env_id: str,
    episodes: int,
    *,
    seed: int,
    change: Callable[[Any], None] = lambda reference: None,
    reference_options: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, int]:
    """Compares `episodes` episodes; returns how many ended in each way."""
    task = TASKS[env_id]
    reference = gymnasium.make(env_id, **(reference_options or {}))
    change(reference.unwrapped)
    limit = reference.spec.max_episode_steps
    policy = mixed(reference.action_space, task.skilled)
    ours = record(env_id, episodes, policy, np.float64, seed=seed, **options)
    for episode in ours:
        assert_follows(reference.unwrapped, episode, task.state_dtype)
        assert episode.truncated == (len(episode.action) == limit)
    return {
        "terminated": sum(episode.terminated for episode in ours),
        "truncated": sum(episode.truncated for episode in ours),
    }


@pytest.fixture(scope="module")
def sin_and_cos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return compile_sin_and_cos(tmp_path_factory.mktemp("native_math"))


@pytest.fixture
def same_sines(sin_and_cos: tuple[Any, Any]) -> Iterator[None]:
    with gymnasium_with(*sin_and_cos):
        yield


@pytest.mark.usefixtures("same_sines")
@pytest.mark.parametrize("env_id", TASKS)
def test_dynamics_are_gymnasiums_to_the_end_of_many_episodes(env_id: str) -> None:
    ends = assert_equal_to_gymnasium(env_id, NUM_EPISODES, seed=1)
    assert ends["terminated"] + ends["truncated"] >= NUM_EPISODES
    # both ways to end are among them
    assert ends["truncated"] >= NUM_EPISODES // 10
    assert ends["terminated"] >= NUM_EPISODES // 10 or env_id == "Pendulum-v1"


@pytest.mark.slow
@pytest.mark.usefixtures("same_sines")
@pytest.mark.parametrize("env_id", TASKS)
def test_dynamics_are_gymnasiums_to_the_end_of_a_thousand_episodes(env_id: str) -> None:
    ends = assert_equal_to_gymnasium(env_id, 1000, seed=11)
    assert ends["terminated"] + ends["truncated"] >= 1000


@pytest.mark.usefixtures("same_sines")
@pytest.mark.parametrize("sutton_barto_reward", [False, True])
def test_cart_pole_takes_gymnasiums_reward_option(sutton_barto_reward: bool) -> None:
    option = {"sutton_barto_reward": sutton_barto_reward}
    assert_equal_to_gymnasium("CartPole-v1", 10, seed=2, reference_options=option, **option)


@pytest.mark.usefixtures("same_sines")
def test_pendulum_takes_another_gravity_as_gymnasiums_does() -> None:
    option = {"g": 9.81}
    assert_equal_to_gymnasium("Pendulum-v1", 10, seed=3, reference_options=option, gravity=9.81)


@pytest.mark.usefixtures("same_sines")
def test_acrobot_takes_the_papers_equations_as_gymnasiums_does() -> None:
    def to_paper(reference: Any) -> None:
        reference.book_or_nips = "nips"

    assert_equal_to_gymnasium("Acrobot-v1", 15, seed=4, change=to_paper, nips=True)


@pytest.mark.usefixtures("same_sines")
@pytest.mark.parametrize("env_id", ["MountainCar-v0", "MountainCarContinuous-v0"])
@pytest.mark.parametrize("goal_velocity", [0.02, 0.1])
def test_mountain_cars_must_reach_the_goal_as_fast_as_gymnasiums(
    env_id: str, goal_velocity: float
) -> None:
    option = {"goal_velocity": goal_velocity}
    ends = assert_equal_to_gymnasium(env_id, 20, seed=5, reference_options=option, **option)
    # the second is above the car's greatest speed
    assert (ends["terminated"] > 0) == (goal_velocity < 0.07)


@pytest.mark.parametrize("env_id", TASKS)
def test_initial_states_are_uniform_between_gymnasiums_bounds(env_id: str) -> None:
    num_envs = 4000
    task = TASKS[env_id]
    with rollouts.make_vec(env_id, num_envs, seed=5) as env:
        env.reset()
        states = get_states(env, np.arange(num_envs), np.float64)
    random = [low < high for low, high in task.bounds]
    for column, (low, high) in zip(states.T, task.bounds, strict=True):
        if low < high:
            assert_uniform(column, low, high)
        else:
            assert (column == low).all()
    # columns, and neighbouring environments, are independent
    columns = states[:, random]
    correlation = np.corrcoef(np.hstack([columns[:-1], columns[1:]]).T)
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 4 / np.sqrt(num_envs)


def assert_uniform(sample: np.ndarray, low: float, high: float) -> None:
    # bounds that are no float32 may be passed by half a float32 step
    unit = np.sort((sample - low) / (high - low))
    assert -1e-6 <= unit[0] < 0.01
    assert 0.99 < unit[-1] < 1 + 1e-6
    # Kolmogorov-Smirnov against the uniform distribution; 1.95 is passed with p = 0.001
    steps = np.arange(len(unit) + 1) / len(unit)
    distance = max(np.max(steps[1:] - unit), np.max(unit - steps[:-1]))
    assert distance * np.sqrt(len(unit)) < 1.95


@pytest.mark.parametrize("env_id", TASKS)
def test_spaces_and_limits_are_gymnasiums(env_id: str) -> None:
    reference = gymnasium.make(env_id)
    spec = rollouts.env_spec(env_id)
    assert spec.single_observation_space == reference.observation_space
    assert spec.single_action_space == reference.action_space
    assert spec.max_episode_steps == reference.spec.max_episode_steps
    assert spec.reward_threshold == reference.spec.reward_threshold
