# SPDX-License-Identifier: Apache-2.0
"""CleanRL's scripts find in our infos what Gymnasium 0.29 put there."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from rollouts.integrations.cleanrl import Gym029, SyncVectorEnv, make_vec

import rollouts
from rollouts.errors import SpecError


def logged_by_ppo(infos: dict[str, Any]) -> list[tuple[float, int]]:
    """The episodes that the logging of CleanRL's ppo.py, dqn.py and sac.py takes from infos."""
    logged = []
    if "final_info" in infos:
        for info in infos["final_info"]:
            if info and "episode" in info:
                episode = info["episode"]
                logged.append((episode["r"].item(), episode["l"].item()))
    return logged


def next_obs_of_dqn(next_obs: Any, truncations: Any, infos: dict[str, Any]) -> Any:
    """The next observations that CleanRL's off-policy scripts put into the replay."""
    real_next_obs = next_obs.copy()
    for idx, trunc in enumerate(truncations):
        if trunc:
            real_next_obs[idx] = infos["final_observation"][idx]
    return real_next_obs


def python_envs() -> Any:
    """Gymnasium's own vector environment, as scripts would make it today."""
    make = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=7)] * 3
    recorded = [
        lambda make=make_one: gymnasium.wrappers.RecordEpisodeStatistics(make())
        for make_one in make
    ]
    return gymnasium.vector.SyncVectorEnv(recorded, autoreset_mode=AutoresetMode.SAME_STEP)


def hosted_envs() -> Any:
    """The same in processes, by the name that scripts know."""
    make = [
        lambda: gymnasium.wrappers.RecordEpisodeStatistics(
            gymnasium.make("CartPole-v1", max_episode_steps=7)
        )
    ]
    return SyncVectorEnv(make * 3, num_processes=1)


ENVIRONMENTS = {
    "hosted": hosted_envs,
    "native": lambda: make_vec("CartPole-v1", 3, seed=1, max_episode_steps=7),
    "gymnasium": lambda: Gym029(python_envs()),
}


@pytest.mark.parametrize("make", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
class TestScripts:
    def test_episodes_are_logged_once_each(self, make: Any) -> None:
        envs = make()
        envs.reset(seed=1)
        logged = []
        for t in range(14):
            infos = envs.step(np.full(3, t % 2))[4]
            logged += logged_by_ppo(infos)
            assert ("final_info" in infos) == (t % 7 == 6)
        assert logged == [(7.0, 7)] * 6

    def test_the_replay_gets_the_observation_before_the_reset(self, make: Any) -> None:
        envs = make()
        obs, _ = envs.reset(seed=1)
        for t in range(7):
            next_obs, _, _, truncations, infos = envs.step(np.full(3, t % 2))
            following = next_obs_of_dqn(next_obs, truncations, infos)
            # positions move by velocity * 0.02 s; a reset would move them elsewhere
            np.testing.assert_allclose(following[:, 0], obs[:, 0] + 0.02 * obs[:, 1], atol=1e-6)
            obs = next_obs
        assert truncations.all()
        assert not np.allclose(next_obs, following)

    def test_rows_without_an_end_are_none(self, make: Any) -> None:
        envs = make()
        envs.reset(seed=1)
        ends = 0
        for _ in range(30):
            _, _, terminated, truncated, infos = envs.step(np.zeros(3, np.int64))
            ended = terminated | truncated
            if not ended.any():
                assert not {"final_info", "final_observation"} & set(infos)
                continue
            ends += 1
            for name in ("final_info", "final_observation"):
                assert infos[name].dtype == object
                np.testing.assert_array_equal(infos[f"_{name}"], ended)
                assert [value is None for value in infos[name]] == (~ended).tolist()
            assert type(infos["final_info"][np.flatnonzero(ended)[0]]) is dict
        assert ends > 1

    def test_the_attributes_that_scripts_read_are_there(self, make: Any) -> None:
        envs = make()
        assert isinstance(envs.single_action_space, gymnasium.spaces.Discrete)
        assert envs.single_observation_space.shape == (4,)
        assert envs.action_space.shape == (3,)
        assert (envs.num_envs, envs.is_vector_env) == (3, True)
        obs, _ = envs.reset(seed=1)
        _, rewards, terminations, truncations, _ = envs.step(np.zeros(3, np.int64))
        assert obs.dtype == np.float32
        dtypes = (rewards.dtype, terminations.dtype, truncations.dtype)
        assert dtypes == (np.float64, np.bool_, np.bool_)
        envs.close()


def test_gymnasium_s_infos_of_today_break_both_readings() -> None:
    envs = python_envs()
    envs.reset(seed=1)
    for t in range(7):
        next_obs, _, _, truncations, infos = envs.step(np.full(3, t % 2))
    # a dict of arrays: the loop over it meets names, finds no episode in them and logs nothing
    with pytest.raises((TypeError, KeyError, IndexError, AssertionError)):
        assert logged_by_ppo(infos) == [(7.0, 7)] * 3
    with pytest.raises(KeyError):
        next_obs_of_dqn(next_obs, truncations, infos)


def test_games_of_several_lives_are_logged_whole() -> None:
    pytest.importorskip("ale_py", reason="needs ale-py")
    envs = make_vec("ALE/Breakout-v5", 2, seed=3, episodic_life=True)
    envs.reset()
    rng, ends, games = np.random.default_rng(0), 0, []
    while not games:
        _, _, terminated, truncated, infos = envs.step(rng.integers(4, size=2))
        ends += int((terminated | truncated).sum())
        assert infos["lives"].shape == (2,)
        assert infos["_lives"].all()
        for row, info in enumerate(infos.get("final_info", [])):
            if info and "episode" in info:
                assert infos["lives"][row] == info["lives"] == 0
                games.append(info)
    assert ends >= 5
    assert games[0]["episode"]["l"][0] > 60


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_other_autoreset_modes_are_refused(mode: str) -> None:
    with pytest.raises(SpecError, match="SAME_STEP"):
        Gym029(rollouts.make_vec("CartPole-v1", 2, autoreset_mode=mode))


@pytest.mark.parametrize("option", [{"autoreset_mode": "next_step"}, {"batch_size": 1}])
def test_options_that_0_29_did_not_have_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="leave"):
        make_vec("CartPole-v1", 2, **option)
