# SPDX-License-Identifier: Apache-2.0
"""What CleanRL's scripts read out of infos, as Gymnasium 0.29 wrote them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from rollouts.integrations import cleanrl

import rollouts
from rollouts.errors import SpecError


def test_final_infos_are_dicts_with_the_episodes_statistics() -> None:
    envs = cleanrl.make_vec("CartPole-v1", 4, seed=1)
    reference = rollouts.make_vec("CartPole-v1", 4, seed=1, autoreset_mode="same_step")
    obs, _ = envs.reset(seed=3)
    np.testing.assert_array_equal(obs, reference.reset(seed=3)[0])
    episodes = 0
    for _ in range(60):
        actions = np.zeros(4, int)
        obs, _, terminated, truncated, infos = envs.step(actions)
        expected = reference.step(actions)
        np.testing.assert_array_equal(obs, expected[0])
        ended = terminated | truncated
        assert ("final_info" in infos) == ("final_observation" in infos) == bool(ended.any())
        if not ended.any():
            continue
        # as ppo.py does
        for row, info in enumerate(infos["final_info"]):
            assert (info is not None) == ended[row]
            if info and "episode" in info:
                episodes += 1
                assert float(info["episode"]["r"][0]) == info["episode"]["l"][0]
                assert info["episode"]["l"][0] == expected[4]["episode_length"][row]
        # as dqn.py does
        real_next_obs = obs.copy()
        for row in np.flatnonzero(ended):
            real_next_obs[row] = infos["final_observation"][row]
        assert (np.abs(real_next_obs[ended, 2]) > 0.2).all()
        assert (np.abs(obs[ended, 2]) < 0.06).all()
    assert episodes >= 16


def test_statistics_of_games_go_on_over_lives() -> None:
    pytest.importorskip("ale_py", reason="Atari games need ale-py")
    envs = cleanrl.make_vec("BreakoutNoFrameskip-v4", 2, seed=1)
    assert envs.single_observation_space.shape == (4, 84, 84)
    envs.reset(seed=1)
    lengths = np.zeros(2, int)
    lives, games = 0, 0
    for _ in range(500):
        _, _, terminated, _, infos = envs.step(np.array([1, 3]))
        lengths += 1
        lives += terminated.sum()
        for row, info in enumerate(infos.get("final_info", [])):
            if info and "episode" in info:
                games += 1
                assert info["episode"]["l"][0] == lengths[row] and info["lives"] == 0
                lengths[row] = 0
    assert lives >= 5 * games > 0


def test_what_the_scripts_do_not_understand_is_refused() -> None:
    with pytest.raises(SpecError, match="same_step"):
        cleanrl.make_vec("CartPole-v1", 2, autoreset_mode="next_step")
    with pytest.raises(SpecError, match="batch_size"):
        cleanrl.make_vec("CartPole-v1", 4, batch_size=2)
    envs = cleanrl.make_vec("CartPole-v1", 1, gravity=5.0)
    assert envs.env_options["gravity"] == 5.0
    assert type(pickle.loads(pickle.dumps(envs))) is type(envs)
