# SPDX-License-Identifier: Apache-2.0
"""The bulk collectors give what Stable-Baselines3's own collect_rollouts gives, bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

import torch
from gymnasium import spaces
from rollouts.integrations.sb3 import (
    RolloutsA2C,
    RolloutsDDPG,
    RolloutsDQN,
    RolloutsPPO,
    RolloutsSAC,
    RolloutsTD3,
    RolloutsVecEnv,
)
from rollouts.integrations.sb3.callbacks import reads_locals
from rollouts.integrations.sb3.policy_forward import ActorCriticForward
from rollouts.integrations.sb3.random_actions import can_sample_rows, sample_rows
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    ConvertCallback,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnMaxEpisodes,
)
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecCheckNan, VecNormalize

from rollouts.errors import SpecError

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("one_torch_thread")]

ROLLOUT = (
    "observations",
    "actions",
    "rewards",
    "returns",
    "advantages",
    "episode_starts",
    "values",
    "log_probs",
)
REPLAY = ("observations", "actions", "rewards", "dones", "timeouts")
# the next rollout is the library's own where the gradient steps before it are, too
TorchPPO = partial(RolloutsPPO, rollout_engine="torch", train_engine="torch")
ON_POLICY = {PPO: TorchPPO, A2C: partial(RolloutsA2C, rollout_engine="torch", train_engine="torch")}
TorchDQN = partial(RolloutsDQN, train_engine="torch")
TorchSAC = partial(RolloutsSAC, train_engine="torch")
OFF_POLICY = {
    DQN: TorchDQN,
    SAC: TorchSAC,
    TD3: partial(RolloutsTD3, train_engine="torch"),
    DDPG: partial(RolloutsDDPG, train_engine="torch"),
}
ENVS = {
    "CartPole-v1": {"max_episode_steps": 30},
    "Pendulum-v1": {"max_episode_steps": 20},
    "FrozenLake-v1": {},
    "Blackjack-v1": {},
}


def learnt(algorithm: Any, env: Any, num_steps: int, callback: Any = None, **settings: Any) -> Any:
    model = algorithm("MlpPolicy", env, seed=1, device="cpu", **settings)
    return model.learn(num_steps, callback=callback)


def assert_same(stock: Any, ours: Any, buffer: str, names: tuple[str, ...]) -> None:
    expected, found = getattr(stock, buffer), getattr(ours, buffer)
    for name in names:
        a, b = getattr(expected, name), getattr(found, name)
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)
    assert (expected.pos, expected.full) == (found.pos, found.full)
    assert stock.num_timesteps == ours.num_timesteps
    episodes = [[(e["r"], e["l"]) for e in model.ep_info_buffer] for model in (stock, ours)]
    assert episodes[0] == episodes[1]
    assert episodes[0]
    for a, b in zip(stock.policy.parameters(), ours.policy.parameters(), strict=True):
        assert torch.equal(a, b)


class TestOnPolicy:
    @pytest.mark.parametrize("env_id", ENVS)
    @pytest.mark.parametrize("stock", ON_POLICY)
    def test_rollouts_are_bit_for_bit_those_of_the_library(self, stock: Any, env_id: str) -> None:
        def run(algorithm: Any) -> Any:
            env = RolloutsVecEnv(env_id, 8, seed=3, **ENVS[env_id])
            # two rollouts, with an update between them
            settings = {"n_epochs": 2, "batch_size": 256} if stock is PPO else {}
            return learnt(algorithm, env, 1024, n_steps=64, **settings)

        assert_same(run(stock), run(ON_POLICY[stock]), "rollout_buffer", ROLLOUT)

    @pytest.mark.parametrize(
        "settings",
        [
            {"policy_kwargs": {"net_arch": [], "activation_fn": torch.nn.ReLU}},
            {"policy_kwargs": {"share_features_extractor": False}},
            {"policy_kwargs": {"activation_fn": torch.nn.ELU}},
            {"use_sde": True, "sde_sample_freq": 4},
        ],
        ids=["no_layers", "two_extractors", "elu", "sde"],
    )
    def test_other_policies_give_the_same_too(self, settings: dict[str, Any]) -> None:
        def run(algorithm: Any) -> Any:
            env = RolloutsVecEnv("Pendulum-v1", 4, seed=3, max_episode_steps=20)
            return learnt(algorithm, env, 256, n_steps=32, n_epochs=2, **settings)

        assert_same(run(PPO), run(TorchPPO), "rollout_buffer", ROLLOUT)

    def test_wrapped_environments_are_collected_by_the_library(self) -> None:
        def run(algorithm: Any) -> Any:
            env = VecNormalize(RolloutsVecEnv("CartPole-v1", 4, seed=3, max_episode_steps=20))
            return learnt(algorithm, env, 256, n_steps=32, n_epochs=2)

        assert_same(run(PPO), run(TorchPPO), "rollout_buffer", ROLLOUT)

    def test_images_are_collected_the_same(self) -> None:
        pytest.importorskip("ale_py", reason="needs ale-py")

        def run(algorithm: Any) -> Any:
            env = RolloutsVecEnv("ALE/Pong-v5", 2, seed=3, max_episode_steps=10, noop_max=1)
            model = algorithm("CnnPolicy", env, n_steps=12, batch_size=24, n_epochs=1, seed=1)
            return model.learn(24)

        assert_same(run(PPO), run(TorchPPO), "rollout_buffer", ROLLOUT)

    def test_a_policy_with_a_forward_of_its_own_is_called(self) -> None:
        class Greedy(ActorCriticPolicy):
            def forward(self, obs: Any, deterministic: bool = False) -> Any:
                return super().forward(obs, deterministic=True)

        env = RolloutsVecEnv("CartPole-v1", 4, seed=3)
        model = RolloutsPPO(Greedy, env, n_steps=8, batch_size=16, device="cpu")
        assert not ActorCriticForward(model.policy).is_fast
        assert ActorCriticForward(RolloutsPPO("MlpPolicy", env, n_steps=8).policy).is_fast

    def test_hooks_of_layers_are_called(self) -> None:
        env = RolloutsVecEnv("CartPole-v1", 4, seed=3)
        model = RolloutsPPO("MlpPolicy", env, n_steps=8, batch_size=16, device="cpu")
        calls = []
        model.policy.action_net.register_forward_hook(lambda *_: calls.append(1))
        model.learn(32)
        assert len(calls) >= 8

    def test_a_diverged_policy_is_named(self) -> None:
        env = RolloutsVecEnv("Pendulum-v1", 4, seed=3)
        model = RolloutsPPO("MlpPolicy", env, n_steps=8, batch_size=16, device="cpu")
        with torch.no_grad():
            model.policy.log_std.fill_(float("nan"))
        with pytest.raises(ValueError, match=r"finite|NaN|nan"):
            model.learn(32)

    def test_models_of_either_class_load_the_other_s(self, tmp_path: Any) -> None:
        env = RolloutsVecEnv("CartPole-v1", 4, seed=3)
        learnt(RolloutsPPO, env, 32, n_steps=8, batch_size=16).save(tmp_path / "ours.zip")
        PPO.load(tmp_path / "ours.zip", env=env).save(tmp_path / "stock.zip")
        RolloutsPPO.load(tmp_path / "stock.zip", env=env, device="cpu").learn(32)


class TestOffPolicy:
    @pytest.mark.parametrize(
        ("stock", "env_id"),
        [
            (DQN, "CartPole-v1"),
            (DQN, "FrozenLake-v1"),
            (SAC, "Pendulum-v1"),
            (TD3, "Pendulum-v1"),
            (DDPG, "Pendulum-v1"),
        ],
    )
    def test_replays_are_bit_for_bit_those_of_the_library(self, stock: Any, env_id: str) -> None:
        settings: dict[str, Any] = {"learning_starts": 100, "train_freq": 4, "buffer_size": 560}
        if stock in (TD3, DDPG):
            settings["action_noise"] = NormalActionNoise(np.zeros(1), np.full(1, 0.1))

        def run(algorithm: Any) -> Any:
            env = RolloutsVecEnv(env_id, 8, seed=3, **ENVS[env_id])
            return learnt(algorithm, env, 800, **settings)

        expected, found = run(stock), run(OFF_POLICY[stock])
        assert_same(expected, found, "replay_buffer", (*REPLAY, "next_observations"))
        assert expected._episode_num == found._episode_num
        assert expected.replay_buffer.dones.any()

    def test_the_memory_saving_replay_is_filled_the_same(self) -> None:
        kwargs = {"handle_timeout_termination": False}

        def run(algorithm: Any) -> Any:
            env = RolloutsVecEnv("CartPole-v1", 4, seed=3, max_episode_steps=15)
            return learnt(
                algorithm,
                env,
                300,
                buffer_size=200,
                optimize_memory_usage=True,
                replay_buffer_kwargs=kwargs,
            )

        assert_same(run(DQN), run(TorchDQN), "replay_buffer", REPLAY)

    def test_n_step_replays_are_filled_by_the_library(self) -> None:
        def run(algorithm: Any) -> Any:
            env = RolloutsVecEnv("CartPole-v1", 4, seed=3, max_episode_steps=15)
            return learnt(algorithm, env, 300, buffer_size=400, n_steps=3)

        assert_same(run(DQN), run(TorchDQN), "replay_buffer", REPLAY)

    @pytest.mark.parametrize(
        "space",
        [
            spaces.Discrete(3),
            spaces.Discrete(5, start=-2),
            spaces.Box(-2.0, 3.0, (2,), np.float32),
            spaces.Box(np.array([-1.0, 0.0]), np.array([0.5, 9.0]), dtype=np.float64),
        ],
        ids=str,
    )
    def test_random_actions_at_once_are_those_drawn_one_by_one(self, space: Any) -> None:
        assert can_sample_rows(space)
        space.seed(4)
        rows = np.array([space.sample() for _ in range(65)])
        after = space.sample()
        space.seed(4)
        drawn = sample_rows(space, 65)
        assert drawn.dtype == rows.dtype
        np.testing.assert_array_equal(drawn, rows)
        np.testing.assert_array_equal(space.sample(), after)


class Recorder(BaseCallback):
    """Keeps what it is shown, and stops the training after a number of calls."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.stop_after = stop_after
        self.seen: list[Any] = []
        self.events: list[str] = []

    def _on_rollout_start(self) -> None:
        self.events.append("start")

    def _on_rollout_end(self) -> None:
        self.events.append("end")

    def _on_step(self) -> bool:
        shown = self.locals
        self.events.append("step")
        infos = [
            {k: v for k, v in info.items() if k not in ("episode", "terminal_observation")}
            for info in shown["infos"]
        ]
        actions = np.array(shown["actions"])
        self.seen.append(
            (self.num_timesteps, shown["dones"].copy(), shown["rewards"].copy(), infos, actions)
        )
        return self.n_calls != self.stop_after


class TestCallbacks:
    @pytest.mark.parametrize("stop_after", [None, 20])
    @pytest.mark.parametrize(
        ("stock", "ours", "settings"),
        [(PPO, TorchPPO, {"n_steps": 32}), (DQN, TorchDQN, {"buffer_size": 500})],
        ids=["ppo", "dqn"],
    )
    def test_callbacks_see_what_the_library_shows(
        self, stock: Any, ours: Any, settings: dict[str, Any], stop_after: int | None
    ) -> None:
        recorders = []
        for algorithm in (stock, ours):
            env = RolloutsVecEnv("CartPole-v1", 4, seed=3, max_episode_steps=12)
            recorders.append(Recorder(stop_after))
            learnt(algorithm, env, 256, callback=recorders[-1], **settings)
        expected, found = recorders
        assert expected.events == found.events
        for a, b in zip(expected.seen, found.seen, strict=True):
            assert (a[0], a[3]) == (b[0], b[3])
            for i in (1, 2, 4):
                np.testing.assert_array_equal(a[i], b[i])

    @pytest.mark.parametrize("ours", [RolloutsPPO, TorchPPO], ids=["native", "torch"])
    def test_rewards_that_a_callback_changes_are_what_is_learnt_from(self, ours: Any) -> None:
        class Shaping(BaseCallback):
            def _on_step(self) -> bool:
                self.locals["rewards"] += 10.0
                return True

        env = RolloutsVecEnv("CartPole-v1", 4, seed=3)
        model = learnt(ours, env, 32, callback=Shaping(), n_steps=8, batch_size=16)
        assert (model.rollout_buffer.rewards >= 11.0).all()

    def test_only_callbacks_that_may_read_locals_are_given_them(self, tmp_path: Any) -> None:
        env = RolloutsVecEnv("CartPole-v1", 1)
        blind = [
            ConvertCallback(None),
            CheckpointCallback(10, str(tmp_path)),
            EvalCallback(env),
            EveryNTimesteps(10, CheckpointCallback(1, str(tmp_path))),
        ]
        assert not any(map(reads_locals, blind))
        assert not reads_locals(CallbackList(blind))
        for callback in (ConvertCallback(lambda *_: True), StopTrainingOnMaxEpisodes(1)):
            assert reads_locals(callback)
            assert reads_locals(CallbackList([*blind, callback]))
            assert reads_locals(EveryNTimesteps(10, callback))
            assert reads_locals(EvalCallback(env, callback_after_eval=callback))

    def test_evaluation_and_checkpoints_happen_on_time(self, tmp_path: Any) -> None:
        env, other = (RolloutsVecEnv("CartPole-v1", 4, seed=s) for s in (3, 4))
        evaluation = EvalCallback(other, eval_freq=16, n_eval_episodes=4, log_path=str(tmp_path))
        checkpoints = CheckpointCallback(16, str(tmp_path))
        learnt(RolloutsPPO, env, 256, callback=[evaluation, checkpoints], n_steps=32, batch_size=64)
        assert evaluation.evaluations_timesteps == [64, 128, 192, 256]
        assert len(list(tmp_path.glob("rl_model_*.zip"))) == 4


class TestRemote:
    @pytest.mark.parametrize(
        ("env", "settings", "match"),
        [
            (lambda: VecCheckNan(RolloutsVecEnv("CartPole-v1", 4)), {}, "without wrappers"),
            (lambda: RolloutsVecEnv("CartPole-v1", 3), {}, "multiple of"),
            (lambda: RolloutsVecEnv("Pendulum-v1", 4), {"use_sde": True}, "use_sde"),
            (lambda: RolloutsVecEnv("CartPole-v1", 2, gravity=[1.0, 2.0]), {}, "differ"),
            (
                lambda: RolloutsVecEnv("CartPole-v1", 2),
                {"worker_options": {"sync_mode": "free_running"}},
                "sync_mode",
            ),
        ],
        ids=["wrapped", "odd", "sde", "options", "async"],
    )
    def test_what_workers_cannot_do_is_refused_before_they_start(
        self, env: Any, settings: dict[str, Any], match: str
    ) -> None:
        model = RolloutsPPO("MlpPolicy", env(), n_steps=8, num_workers=2, **settings)
        with pytest.raises(SpecError, match=match):
            model.learn(32)

    def test_noise_that_workers_do_not_have_is_refused(self) -> None:
        env = RolloutsVecEnv("Pendulum-v1", 2)
        noise = NormalActionNoise(np.zeros(1), np.ones(1))
        model = RolloutsTD3("MlpPolicy", env, action_noise=noise, num_workers=2, buffer_size=100)
        with pytest.raises(SpecError, match="action_noise"):
            model.learn(32)
