# SPDX-License-Identifier: Apache-2.0
"""RolloutsVecEnv keeps the promises of Stable-Baselines3's VecEnv."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

from rollouts.integrations.sb3 import NativeVecEnv, RolloutsVecEnv
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecCheckNan,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)

import rollouts
from rollouts.errors import SpecError


@pytest.fixture
def cart_pole() -> Iterator[NativeVecEnv]:
    """Four CartPoles whose time limit cuts episodes."""
    env = RolloutsVecEnv("CartPole-v1", 4, seed=1, max_episode_steps=12)
    yield env
    env.close()


def zeros(env: Any) -> np.ndarray:
    return np.zeros(env.num_envs, np.int64)


def alternating(env: Any, t: int) -> np.ndarray:
    """Actions under which CartPole stands for a while."""
    return np.full(env.num_envs, t % 2, np.int64)


class TestSteps:
    def test_a_cut_episode_is_told_from_a_terminated_one(self, cart_pole: NativeVecEnv) -> None:
        cart_pole.reset()
        for t in range(12):
            _, _, dones, infos = cart_pole.step(alternating(cart_pole, t))
            assert all(info["TimeLimit.truncated"] is (t == 11) for info in infos)
        assert dones.all()
        terminal = 0
        for _ in range(12):
            _, _, dones, infos = cart_pole.step(zeros(cart_pole))
            terminal += dones.sum()
            assert not any(info["TimeLimit.truncated"] for info in infos)
        assert terminal > 0

    def test_the_last_observation_is_in_the_info_and_the_next_one_is_returned(
        self, cart_pole: NativeVecEnv
    ) -> None:
        twin = rollouts.make_vec("CartPole-v1", 4, seed=1, max_episode_steps=12)
        obs = cart_pole.reset()
        np.testing.assert_array_equal(obs, twin.reset()[0])
        for t in range(12):
            obs, _, _, infos = cart_pole.step(alternating(cart_pole, t))
            # next-step autoreset returns the last observation itself
            last = twin.step(alternating(twin, t))[0]
        for info, expected in zip(infos, last, strict=True):
            np.testing.assert_array_equal(info["terminal_observation"], expected)
        np.testing.assert_array_equal(obs, twin.step(alternating(twin, 0))[0])

    def test_arrays_and_dtypes_are_those_of_dummy_vec_env(self, cart_pole: NativeVecEnv) -> None:
        import gymnasium

        dummy = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 1)
        ours, theirs = cart_pole.reset(), dummy.reset()
        assert (ours.dtype, ours.shape[1:]) == (theirs.dtype, theirs.shape[1:])
        for a, b in zip(cart_pole.step(zeros(cart_pole)), dummy.step(zeros(dummy)), strict=True):
            assert type(a) is type(b)
            if isinstance(a, np.ndarray):
                assert (a.dtype, a.shape[1:]) == (b.dtype, b.shape[1:])
                assert a.flags.writeable
            else:
                assert type(a[0]) is dict

    def test_later_steps_do_not_change_arrays_handed_out(self, cart_pole: NativeVecEnv) -> None:
        kept = [cart_pole.reset()]
        copies = [kept[0].copy()]
        for t in range(40):
            obs, rewards, dones, infos = cart_pole.step(alternating(cart_pole, t))
            kept += [obs, rewards, dones, *(i["terminal_observation"] for i in infos if len(i) > 1)]
            copies += [array.copy() for array in kept[len(copies) :]]
        for array, copy in zip(kept, copies, strict=True):
            np.testing.assert_array_equal(array, copy)

    def test_writing_to_arrays_handed_out_does_not_touch_the_environments(self) -> None:
        clean, spoilt = (RolloutsVecEnv("CartPole-v1", 4, seed=5) for _ in range(2))
        clean.reset()
        spoilt.reset()[:] = 7.0
        for t in range(40):
            expected = clean.step(alternating(clean, t))
            found = spoilt.step(alternating(spoilt, t))
            for a, b in zip(expected[:3], found[:3], strict=True):
                np.testing.assert_array_equal(a, b)
                b[:] = 1

    def test_lists_of_actions_are_taken(self, cart_pole: NativeVecEnv) -> None:
        cart_pole.reset()
        cart_pole.step([0, 1, 0, 1])

    def test_a_failed_environment_ends_on_the_observation_it_failed_on(self) -> None:
        env = RolloutsVecEnv("CartPole-v1", 3, seed=1, on_env_error="reset")
        env.reset()
        step = env.pool.step(zeros(env))
        batch = rollouts.StepBatch(
            step[0],
            step[1],
            np.zeros(3, np.bool_),
            np.array([False, True, False]),
            np.arange(3, dtype=np.int32),
            np.ones(3),
            np.ones(3, np.int32),
            np.full_like(step[0], np.nan),
            {
                "env_error": np.array([None, "it broke", None], object),
                "_env_error": np.array([False, True, False]),
            },
        )
        last_obs = np.arange(12, dtype=np.float32).reshape(3, 4)
        infos = env.make_infos(batch, batch.truncated, last_obs)
        assert infos[1]["env_error"] == "it broke"
        assert infos[1]["TimeLimit.truncated"] is False
        np.testing.assert_array_equal(infos[1]["terminal_observation"], last_obs[1])
        assert "env_error" not in infos[0]


class TestEpisodes:
    def test_monitor_statistics_come_with_the_info(self, cart_pole: NativeVecEnv) -> None:
        cart_pole.reset()
        for t in range(12):
            infos = cart_pole.step(alternating(cart_pole, t))[3]
            assert ("episode" in infos[0]) == (t == 11)
        assert infos[0]["episode"]["r"] == 12.0
        assert infos[0]["episode"]["l"] == 12
        assert set(infos[0]["episode"]) == {"r", "l", "t"}

    def test_evaluate_policy_trusts_them(self, cart_pole: NativeVecEnv, recwarn: Any) -> None:
        model = PPO("MlpPolicy", cart_pole, n_steps=8, batch_size=32, device="cpu")
        recwarn.clear()
        returns, lengths = evaluate_policy(
            model, cart_pole, n_eval_episodes=8, return_episode_rewards=True
        )
        assert not [each for each in recwarn if "Monitor" in str(each.message)]
        assert returns == lengths
        assert max(lengths) <= 12

    def test_vec_monitor_replaces_them_and_counts_once(self, cart_pole: NativeVecEnv) -> None:
        assert cart_pole.env_is_wrapped(Monitor) == [True] * 4
        with pytest.warns(UserWarning, match="already wrapped"):
            env = VecMonitor(cart_pole)
        model = A2C("MlpPolicy", env, n_steps=24, device="cpu").learn(24 * 4)
        seen = [(e["r"], e["l"]) for e in model.ep_info_buffer]
        assert 8 <= len(seen) <= 4 * 24
        assert sum(length for _, length in seen) <= 24 * 4

    def test_without_monitor_the_statistics_are_left_to_others(self) -> None:
        env = RolloutsVecEnv("CartPole-v1", 2, monitor=False, max_episode_steps=5)
        assert env.env_is_wrapped(Monitor) == [False] * 2
        env.reset()
        for t in range(5):
            infos = env.step(alternating(env, t))[3]
        assert "episode" not in infos[0]

    @pytest.mark.parametrize("option", ["episodic_life", "life_loss_info"])
    def test_atari_lives_are_joined_to_games(self, option: str) -> None:
        pytest.importorskip("ale_py", reason="needs ale-py")
        env = RolloutsVecEnv("ALE/Breakout-v5", 2, seed=3, **{option: True})
        env.reset()
        lives, games = 0, []
        rng = np.random.default_rng(0)
        while len(games) < 2:
            _, _, dones, infos = env.step(rng.integers(4, size=2))
            lives += int(dones.sum())
            for done, info in zip(dones, infos, strict=True):
                if "episode" in info:
                    assert done and info["lives"] == 0
                    games.append(info["episode"])
        assert lives > 2 * len(games)
        assert all(game["l"] > 60 for game in games)

    def test_with_restart_a_life_is_a_game(self) -> None:
        pytest.importorskip("ale_py", reason="needs ale-py")
        env = RolloutsVecEnv(
            "ALE/Breakout-v5", 1, seed=3, episodic_life="restart", life_loss_info=True
        )
        env.reset()
        rng = np.random.default_rng(0)
        dones, steps = np.array([False]), 0
        while not dones[0]:
            _, _, dones, infos = env.step(rng.integers(4, size=1))
            steps += 1
        assert infos[0]["lives"] == 4
        assert infos[0]["episode"]["l"] == steps


class TestAttributes:
    def test_seed_makes_episodes_repeat(self) -> None:
        env = RolloutsVecEnv("CartPole-v1", 3)
        assert env.seed(4) == [4, 5, 6]
        first = env.reset()
        second = env.reset()
        env.seed(4)
        np.testing.assert_array_equal(env.reset(), first)
        assert not np.array_equal(first, second)

    def test_options_are_set_at_the_next_reset_and_stay(self) -> None:
        env = RolloutsVecEnv("CartPole-v1", 3)
        env.set_options([{"gravity": 1.0}, {}, {"gravity": 2.0}])
        assert env.get_attr("gravity") == [9.8] * 3
        env.reset()
        env.reset()
        assert env.get_attr("gravity") == [1.0, 9.8, 2.0]
        assert env.get_attr("gravity", indices=[2, 0]) == [2.0, 1.0]

    def test_an_option_is_not_set_behind_the_back_of_an_episode(self) -> None:
        env = RolloutsVecEnv("CartPole-v1", 2)
        with pytest.raises(SpecError, match="set_options"):
            env.set_attr("gravity", 1.0)

    def test_attributes_of_ones_own_are_kept_by_environment(self) -> None:
        env = RolloutsVecEnv("CartPole-v1", 3)
        env.set_attr("level", 1)
        env.set_attr("level", 5, indices=[0, -1])
        assert env.get_attr("level") == [5, 1, 5]
        assert not env.has_attr("no_such_thing")
        assert env.has_attr("spec")

    def test_methods_reach_single_environments(self) -> None:
        env = RolloutsVecEnv("CartPole-v1", 3, seed=1)
        env.reset()
        (state,) = env.env_method("get_state", indices=1)
        first = env.step(zeros(env))[0]
        env.env_method("set_state", state, indices=[1])
        np.testing.assert_array_equal(env.step(zeros(env))[0][1], first[1])

    def test_pickling_makes_the_environments_again(self) -> None:
        env = RolloutsVecEnv("CartPole-v1", 3, seed=2, gravity=5.0)
        first = env.reset()
        again = pickle.loads(pickle.dumps(env))
        np.testing.assert_array_equal(again.reset(), first)
        assert again.get_attr("gravity") == [5.0] * 3


class TestRefusals:
    def test_a_missing_library_is_named_with_its_extra(self) -> None:
        code = (
            "import sys; sys.modules['stable_baselines3'] = None\n"
            "import rollouts\n"
            "try:\n    import rollouts.integrations.sb3\n"
            "except rollouts.EngineError as error:\n    print(error)"
        )
        said = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=300
        )
        assert "pip install 'rollouts[sb3]'" in said.stdout, said.stderr

    @pytest.mark.parametrize("mode", ["next_step", "disabled"])
    def test_other_autoreset_modes_are_refused(self, mode: str) -> None:
        pool = rollouts.make_vec("CartPole-v1", 2, autoreset_mode=mode)
        with pytest.raises(SpecError, match="SAME_STEP"):
            RolloutsVecEnv(pool)

    def test_an_asynchronous_pool_is_refused(self) -> None:
        pool = rollouts.make_vec("CartPole-v1", 4, batch_size=2, autoreset_mode="same_step")
        with pytest.raises(SpecError, match="asynchronous"):
            RolloutsVecEnv(pool)

    @pytest.mark.parametrize("option", [{"autoreset_mode": "next_step"}, {"batch_size": 2}])
    def test_options_that_a_vec_env_cannot_have_are_refused(self, option: dict[str, Any]) -> None:
        with pytest.raises(SpecError, match="leave"):
            RolloutsVecEnv("CartPole-v1", 4, **option)

    def test_options_beside_a_pool_are_refused(self) -> None:
        pool = rollouts.make_vec("CartPole-v1", 2, autoreset_mode="same_step")
        with pytest.raises(SpecError, match="make_vec"):
            RolloutsVecEnv(pool, gravity=1.0)

    def test_a_pool_made_elsewhere_is_taken_over(self) -> None:
        pool = rollouts.make_vec("CartPole-v1", 2, autoreset_mode="same_step")
        assert RolloutsVecEnv(pool).pool is pool


class TestCorruption:
    """Damage that the traps would do if they were not handled."""

    def test_read_only_rewards_break_ppo_where_a_time_limit_cuts(self) -> None:
        class ReadOnly(NativeVecEnv):
            def step_wait(self) -> Any:
                obs, rewards, dones, infos = super().step_wait()
                rewards.flags.writeable = False
                return obs, rewards, dones, infos

        def learn(cls: type[RolloutsVecEnv]) -> Any:
            env = cls("Pendulum-v1", 2, max_episode_steps=5)
            return PPO("MlpPolicy", env, n_steps=8, batch_size=16, device="cpu").learn(16)

        with pytest.raises(ValueError, match="read-only"):
            learn(ReadOnly)
        learn(RolloutsVecEnv)

    def test_without_the_terminal_observation_values_lack_what_was_cut(self) -> None:
        class Silent(NativeVecEnv):
            def step_wait(self) -> Any:
                obs, rewards, dones, infos = super().step_wait()
                for info in infos:
                    info.pop("terminal_observation", None)
                return obs, rewards, dones, infos

        def rewards(cls: type[RolloutsVecEnv]) -> np.ndarray:
            env = cls("CartPole-v1", 2, seed=1, max_episode_steps=5)
            model = PPO("MlpPolicy", env, n_steps=8, batch_size=16, seed=1, device="cpu")
            result: np.ndarray = model.learn(16).rollout_buffer.rewards
            return result

        assert (rewards(Silent) == 1.0).all()
        assert (rewards(RolloutsVecEnv)[4] != 1.0).all()


class TestWrappers:
    @pytest.mark.parametrize(
        "wrap",
        [
            VecNormalize,
            VecCheckNan,
            lambda env: VecFrameStack(env, 3),
            lambda env: VecNormalize(VecFrameStack(env, 2)),
        ],
        ids=["normalize", "check_nan", "frame_stack", "both"],
    )
    def test_models_learn_through_wrappers(self, wrap: Any) -> None:
        env = wrap(RolloutsVecEnv("CartPole-v1", 4, seed=1, max_episode_steps=12))
        model = PPO("MlpPolicy", env, n_steps=32, batch_size=64, device="cpu").learn(256)
        assert len(model.ep_info_buffer) >= 8
        evaluate_policy(model, env, n_eval_episodes=4)

    def test_models_are_saved_and_loaded_with_their_environment(self, tmp_path: Any) -> None:
        env = RolloutsVecEnv("CartPole-v1", 4, seed=1)
        model = PPO("MlpPolicy", env, n_steps=8, batch_size=32, device="cpu").learn(32)
        model.save(tmp_path / "model.zip")
        again = PPO.load(tmp_path / "model.zip", env=env, device="cpu")
        obs = env.reset()
        expected = model.predict(obs, deterministic=True)[0]
        np.testing.assert_array_equal(again.predict(obs, deterministic=True)[0], expected)
        again.learn(32)
