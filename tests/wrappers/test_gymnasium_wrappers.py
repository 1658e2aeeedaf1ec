# SPDX-License-Identifier: Apache-2.0
"""Wrappers of make_vec equal Gymnasium's around the same environments, to the bit."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import (
    FrameStackObservation,
    RescaleAction,
    TimeAwareObservation,
)
from gymnasium.wrappers.vector import ClipReward, NormalizeObservation, NormalizeReward
from wrapped_reference import (
    MODES,
    SEED,
    Normalizing,
    gymnasium_pool,
    random_actions,
)

import rollouts

# float32 and discrete actions, float32 and continuous ones, float64 and an engine
IDS = ("CartPole-v1", "Pendulum-v1", "InvertedPendulum-v5")
LIMIT = 30  # steps, so that episodes end in both ways
NUM_ENVS = 5


def arguments(env_id: str, mode: str, **wrappers: Any) -> dict[str, Any]:
    return {"id": env_id, "num_envs": NUM_ENVS, "seed": SEED, "autoreset_mode": mode,
            "max_episode_steps": LIMIT, "num_threads": 2, **wrappers}  # fmt: skip


def reset_ended(env: Any, ended: np.ndarray) -> np.ndarray:
    obs, _ = env.reset(options={"reset_mask": ended})
    return obs


def compare(ours: Any, theirs: gym.vector.VectorEnv[Any, Any, Any], mode: str, steps: int) -> int:
    """Steps both with the same actions; returns how many episodes ended."""
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])
    ends = 0
    for _ in range(steps):
        action = random_actions(ours.action_space, rng)
        obs, reward, terminated, truncated, info = ours.step(action)
        want, want_reward, want_terminated, want_truncated, want_info = theirs.step(action)
        assert obs.dtype == ours.observation_space.dtype == theirs.observation_space.dtype
        np.testing.assert_array_equal(obs, want)
        np.testing.assert_array_equal(reward, want_reward)
        np.testing.assert_array_equal(terminated, want_terminated)
        np.testing.assert_array_equal(truncated, want_truncated)
        ended = terminated | truncated
        ends += int(ended.sum())
        if mode == "same_step" and ended.any():
            for row in np.flatnonzero(ended):
                np.testing.assert_array_equal(info["final_obs"][row], want_info["final_obs"][row])
        if mode == "disabled" and ended.any():
            np.testing.assert_array_equal(reset_ended(ours, ended), reset_ended(theirs, ended))
    return ends


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize(
    ("time", "depth"), [("", 3), ("steps", 0), ("fraction", 0), ("steps", 1), ("fraction", 3)]
)
def test_frames_equal_gymnasiums(env_id: str, mode: str, time: str, depth: int) -> None:
    def wrap(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        if time:
            env = TimeAwareObservation(env, normalize_time=time == "fraction")
        return FrameStackObservation(env, depth) if depth else env

    wrappers = {"time_aware": time or False, "frame_stack": depth or None}
    with rollouts.make_vec(**arguments(env_id, mode, **wrappers)) as ours:
        theirs = gymnasium_pool(env_id, NUM_ENVS, mode, LIMIT, wrap)
        assert ours.single_observation_space == theirs.single_observation_space
        assert ours.observation_space == theirs.observation_space
        assert compare(ours, theirs, mode, 100) > 10
        theirs.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (-3, 0.5), (0.0, 1.0)])
def test_actions_and_rewards_equal_gymnasiums(mode: str, bounds: tuple[float, float]) -> None:
    def wrap(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        return RescaleAction(env, *(np.float32(bound) for bound in bounds))

    given = arguments("Pendulum-v1", mode, rescale_action=bounds, clip_reward=(-4, -0.5))
    with rollouts.make_vec(**given) as ours:
        # the vector wrapper: it clips the reward 0 of rows that begin an episode, too
        bare = gymnasium_pool("Pendulum-v1", NUM_ENVS, mode, LIMIT, wrap)
        theirs = ClipReward(bare, -4.0, -0.5)
        assert ours.single_action_space == theirs.single_action_space
        assert compare(ours, theirs, mode, 100) > 10
        theirs.close()


@pytest.mark.parametrize("num_envs", [1, 7, 130, 300])
def test_normalisation_of_float64_equals_gymnasiums_wrappers(num_envs: int) -> None:
    given = arguments("InvertedPendulum-v5", "next_step") | {"num_envs": num_envs}
    normalized = {"normalize_observation": True, "normalize_reward": True, "clip_reward": 2.0}
    with rollouts.make_vec(**given, **normalized) as ours, rollouts.make_vec(**given) as bare:
        theirs = ClipReward(NormalizeReward(NormalizeObservation(bare)), -2.0, 2.0)
        assert compare(ours, theirs, "next_step", 150) > 10


@pytest.mark.parametrize("env_id", IDS)
def test_normalisation_is_near_gymnasiums_for_every_dtype(env_id: str) -> None:
    given = arguments(env_id, "next_step")
    with (
        rollouts.make_vec(**given, normalize_observation=True) as ours,
        rollouts.make_vec(**given) as bare,
    ):
        theirs = NormalizeObservation(bare)
        rng = np.random.default_rng(0)
        ours.reset(), theirs.reset()
        for _ in range(300):
            action = random_actions(ours.action_space, rng)
            obs, want = ours.step(action)[0], theirs.step(action)[0]
            # Gymnasium keeps the statistics of float32 observations in float32, which we keep in
            # float64: 300 updates, each rounded to 24 bits
            np.testing.assert_allclose(obs, want, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("depth", [0, 2])
def test_normalisation_in_every_autoreset_mode(env_id: str, mode: str, depth: int) -> None:
    stack = {"frame_stack": depth or None}
    normalized = {"normalize_observation": True, "normalize_reward": True}
    with (
        rollouts.make_vec(**arguments(env_id, mode, **stack, **normalized)) as ours,
        rollouts.make_vec(**arguments(env_id, mode, **stack)) as bare,
    ):
        reference = Normalizing(bare.single_observation_space.shape, NUM_ENVS)
        rng = np.random.default_rng(0)
        np.testing.assert_array_equal(ours.reset()[0], reference.see(bare.reset()[0]))
        for _ in range(200):
            action = random_actions(ours.action_space, rng)
            obs, reward, terminated, truncated, info = ours.step(action)
            shown, plain, *_, shown_info = bare.step(action)
            np.testing.assert_array_equal(obs, reference.see(shown))
            np.testing.assert_array_equal(reward, reference.rewards(plain, terminated))
            ended = terminated | truncated
            if mode == "same_step":
                for row in np.flatnonzero(ended):
                    want = reference.scale(shown_info["final_obs"][row])
                    np.testing.assert_array_equal(info["final_obs"][row], want)
            if mode == "disabled" and ended.any():
                # rows that are only shown again do not count
                again = reset_ended(bare, ended)
                reference.observations.update(again[ended].astype(np.float64))
                np.testing.assert_array_equal(reset_ended(ours, ended), reference.scale(again))
        statistics = ours.observation_statistics
        np.testing.assert_array_equal(statistics.mean, reference.observations.mean)
        np.testing.assert_array_equal(statistics.var, reference.observations.var)
        assert statistics.count == reference.observations.count
        np.testing.assert_array_equal(ours.reward_statistics.var, reference.returns.var)


def test_observations_of_one_number_are_summed_as_numpy_does() -> None:
    # a single column is summed pairwise, as rewards are
    given = arguments("MountainCarContinuous-v0", "next_step") | {"num_envs": 200}
    with (
        rollouts.make_vec(**given, normalize_reward={"gamma": 0.5}) as ours,
        rollouts.make_vec(**given) as bare,
    ):
        assert compare(ours, NormalizeReward(bare, gamma=0.5), "next_step", 100) > 10
