# SPDX-License-Identifier: Apache-2.0
"""`RolloutsVectorEnv` behaves as Tianshou's vector environments."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("tianshou", reason="needs Tianshou: pip install 'rollouts[tianshou]'")

from rollouts.integrations.tianshou import RolloutsVectorEnv
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import BaseVectorEnv, VectorEnvNormObs
from tianshou_cases import make_actor

import rollouts
from rollouts.errors import EngineError, ProtocolError, SpecError


def step_until_one_ends(env: RolloutsVectorEnv) -> tuple[np.ndarray, np.ndarray]:
    """Returns the observations of the step in which episodes ended, and their ids."""
    action = np.zeros(len(env), np.int64)
    while True:
        obs, _, terminated, truncated, _ = env.step(action)
        if (terminated | truncated).any():
            return obs, np.flatnonzero(terminated | truncated)


def test_is_a_vector_env_with_lists_of_what_each_environment_has() -> None:
    with_env = RolloutsVectorEnv("CartPole-v1", num_envs=3)
    assert isinstance(with_env, BaseVectorEnv)
    assert len(with_env) == with_env.env_num == 3
    assert not with_env.is_async
    assert [space.n for space in with_env.action_space] == [2, 2, 2]
    assert [space.shape for space in with_env.observation_space] == [(4,)] * 3
    assert [spec.reward_threshold for spec in with_env.spec] == [475.0] * 3
    assert len(with_env.metadata) == 3
    with_env.close()
    with_env.close()
    with pytest.raises(ProtocolError, match="closed"):
        with_env.reset()


def test_infos_are_dicts_that_name_their_environment() -> None:
    env = RolloutsVectorEnv("CartPole-v1", num_envs=4)
    _, infos = env.reset()
    assert infos.dtype == object
    _, _, _, _, infos = env.step(np.zeros(2, np.int64), [3, 1])
    assert [info["env_id"] for info in infos] == [3, 1]
    env.close()


def test_last_observation_is_the_episodes_own_and_reset_gives_the_next_first() -> None:
    env = RolloutsVectorEnv("CartPole-v1", num_envs=4, seed=5)
    plain = rollouts.make_vec("CartPole-v1", 4, seed=5, autoreset_mode="disabled")
    first, _ = env.reset()
    assert np.array_equal(first, plain.reset()[0])
    last, ended = step_until_one_ends(env)
    while True:
        expected, _, terminated, truncated, _ = plain.step(np.zeros(4, np.int64))
        if (terminated | truncated).any():
            break
    assert np.array_equal(last, expected)
    obs, infos = env.reset(ended)
    after, _ = plain.reset(options={"reset_mask": terminated | truncated})
    assert np.array_equal(obs, after[ended])
    assert [info["env_id"] for info in infos] == ended.tolist()
    env.close()
    plain.close()


def test_an_ended_environment_must_be_reset_before_it_steps() -> None:
    env = RolloutsVectorEnv("CartPole-v1", num_envs=4, seed=5)
    with pytest.raises(ProtocolError, match="never reset"):
        env.step(np.zeros(4, np.int64))
    env.reset()
    _, ended = step_until_one_ends(env)
    with pytest.raises(ProtocolError, match=r"reset\(env_id\)"):
        env.step(np.zeros(4, np.int64))
    env.reset(ended)
    env.step(np.zeros(4, np.int64))
    env.close()


def test_resets_of_running_environments_leave_the_others_alone() -> None:
    env = RolloutsVectorEnv("CartPole-v1", num_envs=3, seed=1)
    other = RolloutsVectorEnv("CartPole-v1", num_envs=3, seed=1)
    env.reset()
    other.reset()
    env.step(np.ones(3, np.int64))
    other.step(np.ones(3, np.int64))
    obs, _ = env.reset(1)
    assert obs.shape == (1, 4)
    assert np.abs(obs).max() <= 0.05  # where CartPole's episodes begin
    ours, theirs = env.step(np.ones(3, np.int64))[0], other.step(np.ones(3, np.int64))[0]
    assert np.array_equal(ours[[0, 2]], theirs[[0, 2]])
    assert not np.array_equal(ours[1], theirs[1])
    env.close()
    other.close()


def test_a_next_step_pool_is_refused_for_the_row_it_would_add() -> None:
    pool = rollouts.make_vec("CartPole-v1", 1, seed=0, autoreset_mode="next_step")
    pool.reset()
    rewards, done = [], False
    while not done:
        _, reward, terminated, truncated, _ = pool.step(np.zeros(1, np.int64))
        rewards.append(reward[0])
        done = bool(terminated[0] or truncated[0])
    obs, reward, _, _, _ = pool.step(np.zeros(1, np.int64))
    # the corruption: what a collector would store as the first transition of the next episode
    assert set(rewards) == {1.0}
    assert reward[0] == 0.0
    assert np.abs(obs).max() <= 0.05
    with pytest.raises(SpecError, match="next_step"):
        RolloutsVectorEnv(pool)
    pool.close()


def test_takes_pools_without_autoreset_and_of_several_ids() -> None:
    env = RolloutsVectorEnv(rollouts.make_vec("CartPole-v1", 3, seed=5, autoreset_mode="disabled"))
    same = RolloutsVectorEnv("CartPole-v1", num_envs=3, seed=5)
    for one in (env, same):
        one.reset()
    (obs, ended), (expected, others) = step_until_one_ends(env), step_until_one_ends(same)
    assert np.array_equal(obs, expected)
    assert np.array_equal(ended, others)
    assert np.array_equal(env.reset(ended)[0], same.reset(ended)[0])
    env.close()
    same.close()
    mixed = RolloutsVectorEnv(["CartPole-v0", "CartPole-v1"])
    assert [spec.max_episode_steps for spec in mixed.spec] == [200, 500]
    mixed.close()
    with pytest.raises(SpecError, match="equal spaces"):
        RolloutsVectorEnv(["CartPole-v1", "Acrobot-v1"])


def test_options_are_attributes_that_hold_from_the_next_reset() -> None:
    env = RolloutsVectorEnv("CartPole-v1", num_envs=3, gravity=9.0)
    assert env.get_env_attr("gravity") == [9.0] * 3
    env.reset()
    env.set_env_attr("gravity", 20.0, [1])
    assert env.get_env_attr("gravity") == [9.0, 20.0, 9.0]
    assert env.pool.env_options["gravity"] == 9.0
    env.reset(1)
    assert env.pool.env_options["gravity"].tolist() == [9.0, 20.0, 9.0]
    env.set_env_attr("label", "a", 2)
    assert env.get_env_attr("label", 2) == ["a"]
    with pytest.raises(AttributeError, match="gravity"):
        env.get_env_attr("label")
    env.close()


def test_seeds_make_episodes_and_action_spaces_repeatable() -> None:
    env = RolloutsVectorEnv("CartPole-v1", num_envs=3)
    assert env.seed(7) == [[7], [8], [9]]
    first = env.reset()[0], [space.sample() for space in env.action_space]
    env.seed([7, 8, 9])
    again = env.reset()[0], [space.sample() for space in env.action_space]
    assert np.array_equal(first[0], again[0])
    assert first[1] == again[1]
    assert not np.array_equal(env.reset(seed=3)[0], first[0])
    with pytest.raises(SpecError, match="2 seeds"):
        env.reset(seed=[1, 2])
    env.close()


def test_asynchronous_steps_return_when_wait_num_are_ready() -> None:
    env = RolloutsVectorEnv("CartPole-v1", wait_num=2, num_envs=6, seed=0)
    assert env.is_async
    env.reset()
    _, _, _, _, infos = env.step(np.zeros(6, np.int64))
    seen = [info["env_id"] for info in infos]
    assert len(seen) >= 2
    assert sorted(env.waiting_id + env.ready_id) == list(range(6))
    if env.waiting_id:
        with pytest.raises(ProtocolError, match="stepping now"):
            env.step(np.zeros(1, np.int64), [env.waiting_id[0]])
    while env.waiting_id:
        _, _, _, _, infos = env.step(None)
        seen += [info["env_id"] for info in infos]
    assert sorted(seen) == list(range(6))
    with pytest.raises(ProtocolError, match="nothing to fetch"):
        env.step(None)
    env.close()


def test_a_timeout_brings_one_environment_at_least() -> None:
    env = RolloutsVectorEnv("CartPole-v1", timeout=1e-6, num_envs=4, seed=0)
    assert env.is_async
    env.reset()
    obs, *_ = env.step(np.zeros(4, np.int64))
    assert len(obs) >= 1
    env.close()


def test_asynchronous_resets_of_running_environments_lose_no_step() -> None:
    env = RolloutsVectorEnv("CartPole-v1", wait_num=1, num_envs=4, seed=0)
    first, _ = env.reset()
    _, _, _, _, infos = env.step(np.ones(4, np.int64))
    ready = [info["env_id"] for info in infos]
    obs, _ = env.reset(ready[0])
    assert np.abs(obs).max() <= 0.05
    arrived = list(ready)
    while env.waiting_id:
        obs, reward, _, _, infos = env.step(None)
        assert (reward == 1).all()
        ids = [info["env_id"] for info in infos]
        assert not np.array_equal(obs, first[ids])
        arrived += ids
    assert sorted(arrived) == list(range(4))
    env.close()


def test_arrays_stay_what_they_were_while_somebody_holds_them() -> None:
    env = RolloutsVectorEnv("CartPole-v1", num_envs=8, seed=0)
    env.reset()
    held, copies = [], []
    for _ in range(100):
        obs, reward, terminated, truncated, _ = env.step(np.zeros(8, np.int64))
        held.append(obs)
        copies.append(obs.copy())
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            env.reset(ended)
        assert reward.flags.writeable
    assert all(np.array_equal(one, copy) for one, copy in zip(held, copies, strict=True))
    env.close()


def test_wrappers_of_tianshou_work_on_it() -> None:
    env = VectorEnvNormObs(RolloutsVectorEnv("CartPole-v1", num_envs=4, seed=0))
    obs, infos = env.reset()
    assert obs.shape == (4, 4)
    assert isinstance(infos[0], dict)
    env.step(np.zeros(4, np.int64))
    env.close()


class Counting(gym.Env[Any, Any]):
    """Counts its steps, to which an attribute is added."""

    observation_space = gym.spaces.Box(-9, 9, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, extra: int) -> None:
        self.extra, self.steps = extra, 0

    def reset(self, **kwargs: Any) -> Any:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.full(1, self.steps + self.extra, np.float32), 1.0, self.steps == 3, False, {}


@pytest.mark.system
def test_functions_that_make_environments_get_a_process_each() -> None:
    env = RolloutsVectorEnv([lambda i=i: Counting(i) for i in range(2)])
    assert isinstance(env, RolloutsVectorEnv)
    env.reset()
    obs, *_ = env.step(np.zeros(2, np.int64))
    assert obs.ravel().tolist() == [1.0, 2.0]
    assert env.get_env_attr("extra") == [0, 1]
    env.close()


@pytest.mark.system
def test_tianshous_own_collector_runs_on_it() -> None:
    env = RolloutsVectorEnv("CartPole-v1", num_envs=4, seed=0)
    collector = Collector(make_actor(env), env, VectorReplayBuffer(400, 4))
    collector.reset()
    assert collector.collect(n_step=40).n_collected_steps == 40
    assert collector.collect(n_episode=6).n_collected_episodes == 6
    collector.close()


def test_without_tianshou_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rollouts.integrations.tianshou")
    monkeypatch.setitem(sys.modules, "tianshou", None)
    with pytest.raises(EngineError, match=r"pip install 'rollouts\[tianshou\]'"):
        importlib.import_module("rollouts.integrations.tianshou")


def dict_pools() -> list[Any]:
    minigrid = rollouts.make_vec(
        "MiniGrid-Empty-5x5-v0",
        3,
        autoreset_mode="same_step",
        flatten_observation=False,
        max_episode_steps=4,
    )

    def make() -> Any:
        import gymnasium

        env = gymnasium.make("CartPole-v1", max_episode_steps=4)
        space = gymnasium.spaces.Dict(a=env.observation_space, b=gymnasium.spaces.Discrete(2))
        return gymnasium.wrappers.TransformObservation(env, lambda obs: {"a": obs, "b": 1}, space)

    hosted = rollouts.from_env_fns([make] * 3, num_processes=0, autoreset_mode="same_step")
    return [minigrid, hosted]


@pytest.mark.parametrize("which", [0, 1], ids=["native", "hosted"])
def test_dict_observations_are_those_that_the_pool_shows(which: int) -> None:
    env, pool = RolloutsVectorEnv(dict_pools()[which]), dict_pools()[which]
    obs, _ = env.reset(seed=5)
    expected, _ = pool.reset(seed=[5] * 3)
    assert obs.shape == (3,) and obs.dtype == object
    for step in range(6):
        for row in range(3):
            assert obs[row].keys() == expected.keys()
            for name, column in expected.items():
                np.testing.assert_array_equal(obs[row][name], column[row])
        obs, _, _, truncated, _ = env.step(np.zeros(3, int))
        expected, _, _, ended, info = pool.step(np.zeros(3, int))
        assert (truncated == ended).all() and truncated.all() == (step % 4 == 3)
        if truncated.any():
            last = info["final_obs"]
            for row in range(3):
                for name in expected:
                    np.testing.assert_array_equal(obs[row][name], last[row][name])
            obs, _ = env.reset([0, 1, 2])
    env.close()
    pool.close()


def test_a_collector_stores_dict_observations() -> None:
    env = RolloutsVectorEnv(dict_pools()[1])
    buffer = VectorReplayBuffer(60, 3)
    actor = make_actor(RolloutsVectorEnv("CartPole-v1", num_envs=1))
    collector = Collector(actor, env, buffer)
    collector.reset()
    collector.collect(n_step=30, random=True)
    assert buffer.obs.a.shape[1:] == (4,)
    assert (buffer[:].obs.b == 1).all() and len(buffer) == 30
