# SPDX-License-Identifier: Apache-2.0
"""Running statistics of pools behind adapters: shared with evaluation, saved, or refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from rollouts import RunningStatistics, SpecError

OPTIONS: dict[str, Any] = {"normalize_observation": True, "normalize_reward": True}


def test_torchrl_carries_statistics_in_its_state_dict() -> None:
    pytest.importorskip("torchrl", reason="needs the extra torchrl")
    from rollouts.integrations.torchrl import RolloutsEnv

    trained = RolloutsEnv("Pendulum-v1", num_envs=3, seed=1, **OPTIONS)
    trained.rollout(20)
    state = trained.state_dict()
    assert float(state["observation_statistics.count"]) > 60
    evaluated = RolloutsEnv("Pendulum-v1", num_envs=2, seed=2, **OPTIONS)
    evaluated.load_state_dict(state)
    evaluated.update_statistics = False
    evaluated.rollout(20)
    for name in ("observation_statistics", "reward_statistics"):
        got, want = getattr(evaluated, name), getattr(trained, name)
        np.testing.assert_array_equal(got.mean, want.mean)
        assert got.count == want.count
    plain = RolloutsEnv("Pendulum-v1", num_envs=2)
    assert dict(plain.state_dict()) == {}
    with pytest.raises(RuntimeError, match=r"observation_statistics\.mean"):
        evaluated.load_state_dict({})
    for env in (trained, evaluated, plain):
        env.close()


def test_tianshous_test_environments_follow_those_of_training() -> None:
    pytest.importorskip("tianshou", reason="needs the extra tianshou")
    from rollouts.integrations.tianshou import RolloutsVectorEnv

    def envs(count: int) -> Any:
        return RolloutsVectorEnv(
            "Pendulum-v1", num_envs=count, seed=1, max_episode_steps=10, **OPTIONS
        )

    train, test = envs(3), envs(2)
    # before training, as in Tianshou's own examples
    test.set_obs_rms(train.get_obs_rms())
    train.reset()
    for round_ in range(2):
        for _ in range(9):
            train.step(np.zeros((3, 1), np.float32))
        test.reset()
        for _ in range(9):
            test.step(np.zeros((2, 1), np.float32))
        assert test.observation_statistics.count == train.observation_statistics.count
        assert train.observation_statistics.count > 3 * 9 * (round_ + 1)
        train.reset()
    # a checkpoint has those of its moment
    saved = pickle.loads(pickle.dumps(train.get_obs_rms()))
    assert isinstance(saved, RunningStatistics)
    count = saved.count
    train.reset()
    test.set_obs_rms(saved)
    assert test.observation_statistics.count == count < train.observation_statistics.count
    with pytest.raises(SpecError, match="get_obs_rms"):
        test.set_obs_rms("mean")
    with pytest.raises(SpecError, match="normalize_observation=True"):
        plain = RolloutsVectorEnv("Pendulum-v1", num_envs=2)
        plain.get_obs_rms()
    for env in (train, test, plain):
        env.close()


def test_tianshou_shows_first_observations_in_the_scale_that_was_set() -> None:
    pytest.importorskip("tianshou", reason="needs the extra tianshou")
    from rollouts.integrations.tianshou import RolloutsVectorEnv

    env = RolloutsVectorEnv("Pendulum-v1", num_envs=2, seed=1, max_episode_steps=3, **OPTIONS)
    env.reset()
    for _ in range(3):
        env.step(np.zeros((2, 1), np.float32))
    # the pool has begun the next episodes, and shown them in the scale of then
    env.set_obs_rms(RunningStatistics(np.full(3, 1000.0), np.ones(3), 10.0))
    obs, _ = env.reset()
    assert (obs < -900).all()
    env.close()


def test_rllib_refuses_statistics_that_it_would_not_share() -> None:
    pytest.importorskip("ray.rllib", reason="needs the extra rllib")
    from rollouts.integrations import rllib

    with pytest.raises(SpecError, match="MeanStdFilter"):
        rllib.register("Pendulum-v1", normalize_observation=True)
    creator = rllib.EnvCreator("Pendulum-v1")
    with pytest.raises(SpecError, match="normalize_reward: RLlib neither merges nor saves"):
        creator({"num_envs": 2, "normalize_reward": True})
    creator({"num_envs": 2, "normalize_reward": False, "clip_reward": 1.0}).close()


def test_cleanrls_environments_are_frozen_and_read_as_their_pool_is() -> None:
    from rollouts.integrations import cleanrl

    trained, evaluated = (cleanrl.make_vec("Pendulum-v1", 3, seed=1, **OPTIONS) for _ in range(2))
    action = np.zeros((3, 1), np.float32)
    trained.reset()
    trained.step(action)
    for name in ("observation_statistics", "reward_statistics"):
        setattr(evaluated, name, getattr(trained, name))
    evaluated.update_statistics = False
    evaluated.reset()
    evaluated.step(action)
    for name in ("observation_statistics", "reward_statistics"):
        got, want = getattr(evaluated.env, name), getattr(trained.env, name)
        assert got.count == want.count
        np.testing.assert_array_equal(got.mean, want.mean)
    assert trained.update_statistics and not evaluated.env.update_statistics
    trained.close()
    evaluated.close()


@pytest.mark.parametrize("updates", [True, False])
def test_a_copy_of_a_gymnasium_environment_scales_as_it_does(updates: bool) -> None:
    import gymnasium
    import rollouts.integrations.gymnasium  # noqa: F401

    env = gymnasium.make("rollouts/Pendulum-v1", seed=3, **OPTIONS)
    env.reset()
    for _ in range(20):
        env.step(env.action_space.sample())
    env.unwrapped.pool.update_statistics = updates  # type: ignore[attr-defined]
    again = copy.deepcopy(env)
    for _ in range(20):
        action = env.action_space.sample()
        (obs, reward, *_), (same_obs, same_reward, *_) = env.step(action), again.step(action)
        np.testing.assert_array_equal(obs, same_obs)
        assert reward == same_reward
    pools = [each.unwrapped.pool for each in (env, again)]  # type: ignore[attr-defined]
    assert pools[0].observation_statistics.count == pools[1].observation_statistics.count
    assert [pool.update_statistics for pool in pools] == [updates] * 2


def test_dm_envs_environment_shows_the_pool_whose_statistics_are_frozen() -> None:
    pytest.importorskip("dm_env", reason="needs the extra dm-env")
    from rollouts.integrations.dm_env import Environment

    env = Environment("Pendulum-v1", seed=1, normalize_observation=True)
    env.reset()
    env.env.update_statistics = False
    count = env.env.observation_statistics.count
    env.step(np.zeros(1, np.float32))
    assert env.env.observation_statistics.count == count > 1
    env.close()
