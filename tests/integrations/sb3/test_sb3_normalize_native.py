# SPDX-License-Identifier: Apache-2.0
"""Native rollouts through Stable-Baselines3's VecNormalize have the numbers of its own steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from rollouts.integrations.sb3 import RolloutsPPO, RolloutsVecEnv
from stable_baselines3.common.vec_env import VecNormalize

import rollouts

STEPS = 16
PPO_OPTIONS: dict[str, Any] = {"n_steps": STEPS, "batch_size": 32, "n_epochs": 1, "device": "cpu"}
IDS = ("Pendulum-v1", "InvertedPendulum-v5")  # float32 and float64


class Collecting(RolloutsPPO):
    """Collects and learns nothing, so that its buffer stays as it was filled."""

    def train(self) -> None:
        """Leaves the policy as it is."""


def plain(env_id: str, num_threads: int = 2) -> Any:
    return RolloutsVecEnv(env_id, 20, seed=1, max_episode_steps=10, num_threads=num_threads)


def wrap(env: Any, **options: Any) -> VecNormalize:
    return VecNormalize(env, clip_reward=5.0, **options)


def compare_statistics(ours: VecNormalize, theirs: VecNormalize, *, observations: bool) -> None:
    kinds = ["ret_rms", "obs_rms"] if observations else ["ret_rms"]
    for kind in kinds:
        got, want = getattr(ours, kind), getattr(theirs, kind)
        for name in ("mean", "var", "count"):
            # statistics of float32 observations are summed in float32 there, in float64 here
            near = 1e-5 if kind == "obs_rms" and ours.old_obs.dtype == np.float32 else 0
            np.testing.assert_allclose(getattr(got, name), getattr(want, name), rtol=near)
    np.testing.assert_array_equal(ours.returns, theirs.returns)
    np.testing.assert_array_equal(ours.old_obs, theirs.old_obs)
    np.testing.assert_array_equal(ours.get_original_reward(), theirs.get_original_reward())


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize(
    "options",
    [{}, {"norm_obs": False}, {"norm_reward": False}, {"training": False}, {"gamma": 0.5}],
    ids=["both", "rewards", "observations", "frozen", "gamma"],
)
def test_a_native_rollout_is_what_vec_normalize_steps(env_id: str, options: Any) -> None:
    ours, theirs = wrap(plain(env_id), **options), wrap(plain(env_id, 1), **options)
    model = Collecting("MlpPolicy", ours, seed=0, rollout_engine="native", gamma=0.0, **PPO_OPTIONS)
    theirs.seed(0)  # as the model has done
    obs = theirs.reset()
    exact = env_id == "InvertedPendulum-v5" or not ours.norm_obs
    space = theirs.action_space
    for round_ in range(1, 3):
        model.learn(STEPS * 20, reset_num_timesteps=round_ == 1)
        assert model.engine == "native", model.why_not_native
        buffer = model.rollout_buffer
        for t in range(STEPS):
            near = {"rtol": 0} if exact else {"rtol": 1e-4, "atol": 1e-4}
            np.testing.assert_allclose(buffer.observations[t], obs, **near)
            action = np.clip(buffer.actions[t], space.low, space.high)
            obs, reward, _, _ = theirs.step(action)
            # gamma is 0: a time limit adds nothing
            np.testing.assert_array_equal(buffer.rewards[t], reward)
        np.testing.assert_allclose(model._last_obs, obs, **near)
        compare_statistics(ours, theirs, observations=ours.norm_obs)
    ours.close()
    theirs.close()


def test_any_number_of_threads_gives_the_same_rollout() -> None:
    rollouts_of = []
    for num_threads in (1, 2, 3):
        env = wrap(plain("InvertedPendulum-v5", num_threads))
        model = Collecting("MlpPolicy", env, seed=0, rollout_engine="native", **PPO_OPTIONS)
        model.learn(STEPS * 20 * 2)
        buffer = model.rollout_buffer
        rollouts_of.append((buffer.observations.copy(), buffer.rewards.copy(), env.obs_rms.var))
        env.close()
    for other in rollouts_of[1:]:
        for got, want in zip(other, rollouts_of[0], strict=True):
            np.testing.assert_array_equal(got, want)


def test_why_not_native_names_another_wrapper() -> None:
    class Mine(VecNormalize):
        """May do anything."""

    env = Mine(plain("Pendulum-v1"))
    model = RolloutsPPO("MlpPolicy", env, **PPO_OPTIONS)
    assert model.engine == "torch" and "a Mine, expected a NativeVecEnv" in model.why_not_native
    env.close()


@pytest.mark.system
def test_workers_count_together_what_vec_normalize_has(ray_session: Any) -> None:
    env = RolloutsVecEnv("Pendulum-v1", 4, seed=1, max_episode_steps=10,
                         normalize_observation=True, normalize_reward=True)  # fmt: skip
    model = RolloutsPPO("MlpPolicy", env, seed=0, num_workers=2, **PPO_OPTIONS)
    try:
        for round_ in range(1, 4):
            model.learn(STEPS * 4, reset_num_timesteps=round_ == 1)
            steps = round_ * STEPS * 4
            assert env.ret_rms.count == pytest.approx(steps + 1e-4, rel=1e-9)
            # also the first observations, the workers' and this environment's
            assert steps <= env.obs_rms.count <= steps + 2 * 4 + 1
        env.training = False
        with pytest.raises(rollouts.SpecError, match="training=False"):
            model.learn(STEPS * 4, reset_num_timesteps=False)
    finally:
        model.close()
        env.close()
