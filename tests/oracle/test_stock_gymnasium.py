# SPDX-License-Identifier: Apache-2.0
"""CartPole-v1 and Pendulum-v1 against Gymnasium as it is, to the end of 100 episodes.

One state, copied after reset and never again inside an episode, and the same actions.
test_classic_control.py gives Gymnasium our sine and cosine instead, and asks for equality.
"""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
import numpy as np
import pytest

import rollouts

pytestmark = pytest.mark.system

NUM_EPISODES = 40

# Our sine and cosine, which vectorise, are within 2.2e-16 of libm's (test_math.py), and
# NumPy's may differ from libm's as much. An upright pendulum multiplies an error by
# exp(0.05 s * sqrt(15) / s) = 1.21 in each step, CartPole's pole by about 1.08, and random
# actions leave neither upright for more than some 80 steps: 2e-16 * 1.21**80 = 8e-10.
STATE_TOLERANCE = 1e-9
# the reference squares the pendulum's float32 torque with powf, which is at times one
# float32 step off the product: 4.7e-10 for a cost of at most 0.004
REWARD_TOLERANCE = 5e-10
# one rounding step of the float32 observation, where two doubles straddle a tie
OBS_ULPS = 1


def random_action(space: gymnasium.Space, generator: np.random.Generator) -> np.ndarray:
    if isinstance(space, gymnasium.spaces.Discrete):
        return np.asarray(generator.integers(space.n))
    # beyond the bounds too: the reference clips
    return generator.uniform(-2.5, 2.5, space.shape).astype(np.float32)


def balancing_action(state: np.ndarray) -> np.ndarray:
    return np.asarray(int(state[2] + 0.3 * state[3] + 0.05 * state[0] + 0.1 * state[1] > 0))


def assert_equal_to_gymnasium(
    env_id: str, policy: Callable[[np.ndarray], np.ndarray] | None, seed: int, episodes: int
) -> dict[str, int]:
    """Steps both for `episodes` episodes; returns how many ended in each way."""
    generator = np.random.default_rng(seed)
    reference = gymnasium.make(env_id)
    ends = {"terminated": 0, "truncated": 0}
    # one environment per episode, so that nothing of an episode can leak into the next
    with rollouts.make_vec(env_id, episodes, seed=seed) as env:
        env.reset()
        for index in range(episodes):
            reference.reset(seed=index)
            state = np.frombuffer(env.engine.pool.get_state(index), dtype=np.float64)
            reference.unwrapped.state = state.copy()
            over = False
            while not over:
                state = np.frombuffer(env.engine.pool.get_state(index), dtype=np.float64)
                action = (
                    policy(state) if policy else random_action(reference.action_space, generator)
                )
                expected = reference.step(action[()] if action.ndim == 0 else action)
                env.send(action[None], [index])
                obs, reward, terminated, truncated, _ = env.recv()
                after = np.frombuffer(env.engine.pool.get_state(index), dtype=np.float64)

                np.testing.assert_allclose(
                    after, reference.unwrapped.state, rtol=STATE_TOLERANCE, atol=STATE_TOLERANCE
                )
                np.testing.assert_array_max_ulp(obs[0], expected[0], OBS_ULPS, np.float32)
                assert abs(reward[0] - expected[1]) <= REWARD_TOLERANCE
                assert (terminated[0], truncated[0]) == expected[2:4]
                over = expected[2] or expected[3]
            ends["terminated"] += int(expected[2])
            ends["truncated"] += int(expected[3])
    return ends


def test_cart_pole_falls_as_gymnasiums_does() -> None:
    ends = assert_equal_to_gymnasium("CartPole-v1", None, seed=1, episodes=NUM_EPISODES)
    assert ends == {"terminated": NUM_EPISODES, "truncated": 0}


def test_cart_pole_kept_upright_is_truncated_as_gymnasiums_is() -> None:
    ends = assert_equal_to_gymnasium("CartPole-v1", balancing_action, seed=2, episodes=10)
    assert ends["truncated"] == 10


def test_pendulum_swings_as_gymnasiums_does() -> None:
    ends = assert_equal_to_gymnasium("Pendulum-v1", None, seed=3, episodes=NUM_EPISODES)
    assert ends == {"terminated": 0, "truncated": NUM_EPISODES}


@pytest.mark.parametrize("sutton_barto_reward", [False, True])
def test_cart_pole_takes_gymnasiums_reward_option(sutton_barto_reward: bool) -> None:
    reference = gymnasium.make("CartPole-v1", sutton_barto_reward=sutton_barto_reward)
    with rollouts.make_vec("CartPole-v1", 1, sutton_barto_reward=sutton_barto_reward) as env:
        env.reset(seed=1)
        reference.reset(seed=1)
        reference.unwrapped.state = np.frombuffer(env.engine.pool.get_state(0), dtype=np.float64)
        over = False
        while not over:
            _, expected, over, _, _ = reference.step(1)
            assert env.step([1])[1][0] == expected


def test_pendulum_takes_another_gravity_as_gymnasiums_does() -> None:
    reference = gymnasium.make("Pendulum-v1", g=9.81)
    with rollouts.make_vec("Pendulum-v1", 1, gravity=9.81) as env:
        env.reset(seed=1)
        reference.reset(seed=1)
        reference.unwrapped.state = np.frombuffer(env.engine.pool.get_state(0), dtype=np.float64)
        for _ in range(50):
            expected = reference.step(np.array([0.3], np.float32))
            obs, reward, _, _, _ = env.step(np.array([[0.3]], np.float32))
            np.testing.assert_array_max_ulp(obs[0], expected[0], OBS_ULPS, np.float32)
            assert reward[0] == pytest.approx(expected[1], abs=REWARD_TOLERANCE)


@pytest.mark.parametrize(
    ("env_id", "bounds"),
    [("CartPole-v1", [0.05] * 4), ("Pendulum-v1", [np.pi, 1.0])],
)
def test_initial_states_are_uniform_between_gymnasiums_bounds(
    env_id: str, bounds: list[float]
) -> None:
    num_envs = 4000
    with rollouts.make_vec(env_id, num_envs, seed=5) as env:
        env.reset()
        states = np.stack(
            [np.frombuffer(env.engine.pool.get_state(i), dtype=np.float64) for i in range(num_envs)]
        )
    for column, bound in zip(states.T, bounds, strict=True):
        assert -bound <= column.min() < -0.99 * bound
        assert 0.99 * bound < column.max() < bound
        # Kolmogorov-Smirnov against the uniform distribution; 1.95 is passed with p = 0.001
        sorted_unit = np.sort((column + bound) / (2 * bound))
        steps = np.arange(num_envs + 1) / num_envs
        distance = max(np.max(steps[1:] - sorted_unit), np.max(sorted_unit - steps[:-1]))
        assert distance * np.sqrt(num_envs) < 1.95
    # columns, and neighbouring environments, are independent
    correlation = np.corrcoef(np.hstack([states[:-1], states[1:]]).T)
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 4 / np.sqrt(num_envs)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_spaces_and_limits_are_gymnasiums(env_id: str) -> None:
    reference = gymnasium.make(env_id)
    spec = rollouts.env_spec(env_id)
    assert spec.single_observation_space == reference.observation_space
    assert spec.single_action_space == reference.action_space
    assert spec.max_episode_steps == reference.spec.max_episode_steps
    assert spec.reward_threshold == reference.spec.reward_threshold
