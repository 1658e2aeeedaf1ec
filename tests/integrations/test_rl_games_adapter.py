# SPDX-License-Identifier: Apache-2.0
"""rl_games trains on our environments."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.errors import SpecError

pytest.importorskip("rl_games", reason="rl_games is not installed")
adapter = pytest.importorskip("rollouts.integrations.rl_games", reason="rl_games is not installed")


def test_a_row_that_is_done_has_the_next_episodes_observation() -> None:
    env = adapter.RolloutsVecEnv("", 4, env_name="CartPole-v1", seed=1)
    assert env.reset().shape == (4, 4)
    ended = 0
    for _ in range(60):
        obs, rewards, dones, infos = env.step(np.zeros(4, int))
        assert rewards.dtype == np.float32 and dones.dtype == np.bool_
        assert (np.abs(obs[dones, 2]) < 0.06).all()
        # CartPole pays 1 a step: the score is the length
        assert ((infos["scores"][dones] > 6) & (infos["scores"][dones] < 12)).all()
        assert not infos["time_outs"].any() and "lives" not in infos
        ended += dones.sum()
    assert ended > 8


def test_time_outs_are_truncations_without_termination() -> None:
    env = adapter.RolloutsVecEnv("", 3, env_name="Pendulum-v1", max_episode_steps=5)
    env.reset()
    for step in range(1, 11):
        _, _, dones, infos = env.step(np.zeros((3, 1), np.float32))
        assert (infos["time_outs"] == (step % 5 == 0)).all()
        np.testing.assert_array_equal(infos["time_outs"], dones)


@pytest.mark.parametrize("option", ["episodic_life", "life_loss_info"])
def test_scores_go_on_over_lives(option: str) -> None:
    pytest.importorskip("ale_py", reason="Atari games need ale-py")
    env = adapter.RolloutsVecEnv("", 2, env_name="ALE/Breakout-v5", seed=1, **{option: True})
    env.reset()
    for _ in range(600):
        before = env._scores.copy()
        _, _, dones, infos = env.step(np.array([1, 3]))
        over = infos["lives"] == 0
        assert not (over & ~dones).any()
        assert (infos["scores"] >= before).all()
        np.testing.assert_array_equal(env._scores == 0, over | (infos["scores"] == 0))
    # in a game without lives, lives would say "over" in each step
    pong = adapter.RolloutsVecEnv("", 1, env_name="ALE/Pong-v5", episodic_life=True, seed=1)
    pong.reset()
    assert "lives" not in pong.step(np.zeros(1, int))[3]


def test_what_would_corrupt_training_is_refused() -> None:
    with pytest.raises(SpecError, match="same_step"):
        adapter.RolloutsVecEnv("", 2, env_name="CartPole-v1", autoreset_mode="next_step")
    with pytest.raises(SpecError, match="batch_size"):
        adapter.RolloutsVecEnv("", 4, env_name="CartPole-v1", batch_size=2)
    with pytest.raises(SpecError, match="Box"):
        adapter.RolloutsVecEnv("", 2, env_name="Taxi-v3")


def test_states_can_be_put_back() -> None:
    env = adapter.RolloutsVecEnv("", 2, env_name="CartPole-v1", seed=1)
    assert env.get_env_state() is None
    env.reset()
    env.step(np.zeros(2, int))
    state = env.get_env_state()
    expected = env.step(np.ones(2, int))
    env.set_env_state(state)
    again = env.step(np.ones(2, int))
    np.testing.assert_array_equal(expected[0], again[0])
    np.testing.assert_array_equal(expected[3]["scores"], again[3]["scores"])


def test_running_statistics_are_part_of_the_state() -> None:
    options: dict[str, Any] = {"env_name": "Pendulum-v1", "seed": 1, "normalize_observation": True}
    env = adapter.RolloutsVecEnv("", 2, **options)
    env.reset()
    env.step(np.zeros((2, 1), np.float32))
    state = env.get_env_state()
    again = adapter.RolloutsVecEnv("", 2, **options)
    again.reset()
    again.set_env_state(state)
    counted = env.env.observation_statistics
    assert again.env.observation_statistics.count == counted.count > 4
    np.testing.assert_array_equal(again.env.observation_statistics.mean, counted.mean)
    # one of before there were any
    del state["observation_statistics"]
    again.set_env_state(state)


def config(train_dir: Path, epochs: int) -> dict[str, Any]:
    """PPO on CartPole, as in rl_games' own configuration but for the learning rate."""
    return {
        "params": {
            "seed": 1,
            "algo": {"name": "a2c_discrete"},
            "model": {"name": "discrete_a2c"},
            "network": {
                "name": "actor_critic",
                "separate": True,
                "space": {"discrete": None},
                "mlp": {
                    "units": [32, 32],
                    "activation": "relu",
                    "initializer": {"name": "default"},
                    "regularizer": {"name": None},
                },
            },
            "config": {
                "name": "cartpole",
                "full_experiment_name": "cartpole",
                "train_dir": str(train_dir),
                "env_name": "rollouts",
                "env_config": {"env_name": "CartPole-v1", "num_threads": 1},
                "reward_shaper": {"scale_value": 0.1},
                "normalize_advantage": True,
                "value_bootstrap": True,
                "gamma": 0.99,
                "tau": 0.9,
                "learning_rate": 3e-3,
                "grad_norm": 1.0,
                "entropy_coef": 0.01,
                "truncate_grads": True,
                "e_clip": 0.2,
                "clip_value": True,
                "num_actors": 16,
                "horizon_length": 32,
                "minibatch_size": 256,
                "torch_compile": False,
                "mini_epochs": 4,
                "critic_coef": 1,
                "lr_schedule": None,
                "kl_threshold": 0.008,
                "normalize_input": False,
                "score_to_win": 1000,
                "max_epochs": epochs,
                "save_best_after": 10_000,
                "device": "cpu",
                "device_name": "cpu",
                "multi_gpu": False,
            },
        }
    }


def train(train_dir: Path, epochs: int) -> float:
    """Mean score of the last episodes as rl_games' observer counts it."""
    from rl_games.common.algo_observer import DefaultAlgoObserver
    from rl_games.torch_runner import Runner

    adapter.register()
    observer = DefaultAlgoObserver()
    runner = Runner(observer)
    runner.load(config(train_dir, epochs))
    runner.reset()
    runner.run({"train": True, "play": False})
    return float(observer.game_scores.get_mean())


def test_ppo_rises_clearly_above_random(tmp_path: Path) -> None:
    # a random policy lasts about 22 steps
    assert train(tmp_path, epochs=25) > 45


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """A configuration, and the checkpoint that an epoch of it left."""
    from rl_games.torch_runner import Runner

    adapter.register()
    folder = tmp_path_factory.mktemp("trained")
    settings = config(folder, epochs=1)
    settings["params"]["config"]["env_config"]["normalize_observation"] = True
    runner = Runner()
    runner.load(copy.deepcopy(settings))
    runner.reset()
    runner.run({"train": True, "play": False})
    return settings, str(next(folder.rglob("*.pth")))


@pytest.mark.parametrize("use_vecenv", [False, True])
def test_a_player_scales_by_the_checkpoints_statistics_and_counts_no_more(
    trained: tuple[dict[str, Any], str], use_vecenv: bool
) -> None:
    from rl_games.torch_runner import Runner

    settings, checkpoint = copy.deepcopy(trained)
    env_config = settings["params"]["config"]["env_config"]
    player_config = {"games_num": 2, "use_vecenv": use_vecenv}
    if use_vecenv:
        player_config["env_config"] = env_config | {"update_statistics": False}
    settings["params"]["config"]["player"] = player_config
    runner = Runner()
    runner.load(settings)
    player = runner.create_player()
    pool = player.env.env
    player.restore(checkpoint)
    before = pool.observation_statistics
    # 16 environments, one epoch of 32 steps and the first observations
    assert 16 * 33 <= before.count < 16 * 33 + 1
    player.run()
    after = pool.observation_statistics
    assert after.count == before.count and not pool.update_statistics
    np.testing.assert_array_equal(after.mean, before.mean)


@pytest.mark.parametrize("num_actors", [16, 8])
def test_training_goes_on_from_a_checkpoint_with_as_many_environments_or_others(
    trained: tuple[dict[str, Any], str], num_actors: int
) -> None:
    from rl_games.torch_runner import Runner

    settings, checkpoint = copy.deepcopy(trained)
    settings["params"]["config"] |= {"num_actors": num_actors, "max_epochs": 2}
    runner = Runner()
    runner.load(settings)
    runner.reset()
    agent = runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)
    agent.restore(checkpoint)
    pool = agent.vec_env.env
    assert 16 * 33 <= pool.observation_statistics.count < 16 * 33 + 1
    agent.train()
    # an epoch more
    assert pool.observation_statistics.count >= 16 * 33 + num_actors * 33


def test_the_adapters_pools_are_closed_by_close() -> None:
    env = adapter.RolloutsVecEnv("", 2, env_name="CartPole-v1")
    env.close()
    with pytest.raises(rollouts.ClosedError):
        env.reset()
