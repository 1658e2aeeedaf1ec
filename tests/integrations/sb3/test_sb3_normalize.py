# SPDX-License-Identifier: Apache-2.0
"""Statistics in Stable-Baselines3: shared with evaluation, saved, and never counted twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from rollouts.integrations.sb3 import NativeVecEnv, RolloutsPPO, RolloutsVecEnv
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.vec_env import (
    VecNormalize,
    sync_envs_normalization,
    unwrap_vec_normalize,
)

import rollouts
from rollouts import RunningStatistics, SpecError

PPO_OPTIONS: dict[str, Any] = {"n_steps": 16, "batch_size": 32, "n_epochs": 1, "device": "cpu"}


def pendulum(num_envs: int = 4, **options: Any) -> Any:
    wrappers = {"normalize_observation": {"clip": 10.0}, "normalize_reward": True, **options}
    return RolloutsVecEnv("Pendulum-v1", num_envs, seed=1, max_episode_steps=12, **wrappers)


def stock(num_envs: int = 4, **options: Any) -> VecNormalize:
    env = RolloutsVecEnv("Pendulum-v1", num_envs, seed=1, max_episode_steps=12)
    return VecNormalize(env, clip_obs=10.0, clip_reward=float("inf"), **options)


def test_the_options_are_vec_normalize_bit_for_bit() -> None:
    ours, theirs = pendulum(), stock()
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    for _ in range(30):
        actions = rng.uniform(-2, 2, (4, 1)).astype(np.float32)
        for got, want in zip(ours.step(actions)[:3], theirs.step(actions)[:3], strict=True):
            np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(ours.observation_statistics.var, theirs.obs_rms.var)
    assert ours.reward_statistics.count == theirs.ret_rms.count
    ours.close()
    theirs.close()


@pytest.mark.parametrize("algorithm", [PPO, RolloutsPPO])
def test_an_evaluation_takes_the_training_statistics_and_counts_nothing(algorithm: Any) -> None:
    env, evaluated = pendulum(), pendulum(2)
    model = algorithm("MlpPolicy", env, seed=0, **PPO_OPTIONS)
    callback = EvalCallback(evaluated, n_eval_episodes=4, eval_freq=16, verbose=0, warn=False)
    model.learn(16 * 4 * 2, callback)
    assert callback.evaluations_results is not None and callback.n_calls == 32
    # those of the last evaluation, during the training's last step
    trained, seen = env.observation_statistics, evaluated.observation_statistics
    assert 0 < seen.count <= trained.count
    sync_envs_normalization(env, evaluated)
    evaluated.reset()
    for _ in range(20):
        evaluated.step(np.zeros((2, 1), np.float32))
    assert evaluated.observation_statistics.count == trained.count
    assert not evaluated.update_statistics and env.update_statistics
    np.testing.assert_array_equal(evaluated.observation_statistics.mean, trained.mean)
    env.close()
    evaluated.close()


def test_an_environment_for_evaluation_alone_never_counts() -> None:
    env = pendulum(training=False)
    env.reset()
    env.step(np.zeros((4, 1), np.float32))
    assert env.observation_statistics.count == pytest.approx(1e-4)
    env.close()


def test_the_statistics_are_saved_and_loaded_as_those_of_vec_normalize(tmp_path: Path) -> None:
    env = pendulum()
    model = RolloutsPPO("MlpPolicy", env, seed=0, **PPO_OPTIONS)
    saving = CheckpointCallback(16, str(tmp_path), save_vecnormalize=True)
    model.learn(16 * 4, saving)
    found = model.get_vec_normalize_env()
    assert found is env is unwrap_vec_normalize(env)
    (saved,) = tmp_path.glob("*vecnormalize*.pkl")
    # around the plain environment, or one that was asked to normalise: once in either case
    for venv in (RolloutsVecEnv("Pendulum-v1", 2), pendulum(2)):
        again = VecNormalize.load(str(saved), venv)
        assert type(again.venv) is NativeVecEnv
        assert again.training and again.obs_rms.count == env.observation_statistics.count
        np.testing.assert_array_equal(again.obs_rms.mean, env.obs_rms.mean)
        again.close()
    env.close()


def test_statistics_of_a_pool_go_in_and_out() -> None:
    env = pendulum()
    given = RunningStatistics(np.arange(3.0), np.full(3, 2.0), 100.0)
    env.observation_statistics = given
    assert env.update_statistics, "setting them by this name does not freeze"
    np.testing.assert_array_equal(env.obs_rms.mean, given.mean)
    with pytest.raises(SpecError, match="expected \\(3,\\)"):
        env.observation_statistics = RunningStatistics(np.zeros(4), np.ones(4), 1.0)
    env.close()
    rewards = pendulum(normalize_observation=False)
    with pytest.raises(SpecError, match="normalize_observation=True"):
        _ = rewards.observation_statistics
    rewards.close()


def test_what_vec_normalize_cannot_do_is_refused_in_one_sentence() -> None:
    with pytest.raises(SpecError, match="clips to -c and c"):
        pendulum(clip_reward=(-1, 2))
    with pytest.raises(SpecError, match="epsilons"):
        pendulum(normalize_reward={"epsilon": 1e-3})
    with pytest.raises(SpecError, match="training=False"):
        RolloutsVecEnv("Pendulum-v1", 2, training=False)
    with pytest.raises(SpecError, match="is for Box observations"):
        RolloutsVecEnv("Taxi-v4", 2, normalize_observation=True)
    counting = rollouts.make_vec(
        "Pendulum-v1", 2, autoreset_mode="same_step", normalize_observation=True
    )
    with pytest.raises(SpecError, match="give normalize_observation"):
        RolloutsVecEnv(counting)
    counting.update_statistics = False
    RolloutsVecEnv(counting).close()


def test_python_environments_are_normalised_the_same() -> None:
    def make() -> Any:
        return gymnasium.make("Pendulum-v1")

    env = RolloutsVecEnv([make] * 2, num_processes=0, normalize_observation=True)
    env.reset()
    env.step(np.zeros((2, 1), np.float32))
    assert env.observation_statistics.count == pytest.approx(4 + 1e-4)
    env.close()
