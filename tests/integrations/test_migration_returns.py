# SPDX-License-Identifier: Apache-2.0
"""Scripts of the migration pages beside their originals: the same program reaches the same returns.

test_cleanrl_wrappers has the CleanRL page's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rollouts

pytestmark = pytest.mark.slow

SEEDS = range(3)
ENV_ID = "CartPole-v1"  # a random player makes 22


def compare(ours: Callable[[int], float], theirs: Callable[[int], float]) -> None:
    """Both learn, and their mean returns differ by no more than the original's seeds do."""
    got, want = [ours(seed) for seed in SEEDS], [theirs(seed) for seed in SEEDS]
    spread = max(max(want) - min(want), max(got) - min(got), 0.25 * float(np.mean(want)))
    assert min(np.mean(got), np.mean(want)) > 60, (got, want)
    assert np.mean(got) == pytest.approx(np.mean(want), abs=spread), (got, want)


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (as the libraries draw)


def cross_entropy(envs: Any, seed: int, num_envs: int) -> float:
    """Each environment plays an episode of its own linear policy; the best tenth is kept."""
    rng = np.random.default_rng(seed)
    mean, std = np.zeros(4), np.ones(4)
    for _ in range(4):
        weights = rng.normal(mean, std, (num_envs, 4))
        obs = envs.reset()[0]
        returns, alive = np.zeros(num_envs), np.ones(num_envs, bool)
        while alive.any():
            actions = ((obs * weights).sum(1) > 0).astype(np.int64)
            obs, reward, terminated, truncated, _ = envs.step(actions)
            returns += alive * reward
            alive &= ~(terminated | truncated)
        best = weights[np.argsort(returns)[-num_envs // 10 :]]
        mean, std = best.mean(0), best.std(0) + 0.05
    envs.close()
    return float(returns.mean())


def test_gymnasium() -> None:
    def theirs(seed: int) -> float:
        envs = gym.make_vec(ENV_ID, num_envs=40, vectorization_mode="sync")
        envs.reset(seed=seed)
        return cross_entropy(envs, seed, 40)

    compare(lambda seed: cross_entropy(rollouts.make_vec(ENV_ID, 40, seed=seed), seed, 40), theirs)


def test_pufferlib_and_own_python_environments() -> None:
    def hosted(seed: int) -> float:
        makers = [lambda: gym.make(ENV_ID)] * 40
        return cross_entropy(rollouts.from_env_fns(makers, num_processes=2, seed=seed), seed, 40)

    def theirs(seed: int) -> float:
        envs = gym.vector.SyncVectorEnv([lambda: gym.make(ENV_ID)] * 40)
        envs.reset(seed=seed)
        return cross_entropy(envs, seed, 40)

    compare(hosted, theirs)


def test_envpool() -> None:
    original = pytest.importorskip("envpool", reason="needs EnvPool")
    from rollouts.integrations import envpool as adapter

    def with_module(envpool: Any, seed: int) -> float:
        envs = envpool.make(ENV_ID, env_type="gymnasium", num_envs=40, seed=seed)
        return cross_entropy(envs, seed, 40)

    compare(lambda seed: with_module(adapter, seed), lambda seed: with_module(original, seed))


def test_stable_baselines3() -> None:
    sb3 = pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3")
    from rollouts.integrations.sb3 import RolloutsPPO, RolloutsVecEnv
    from stable_baselines3.common.env_util import make_vec_env

    def train(algorithm: Any, env: Any, seed: int) -> float:
        model = algorithm(
            "MlpPolicy", env, n_steps=64, batch_size=128, n_epochs=6, learning_rate=1e-3, seed=seed,
            device="cpu",
        )  # fmt: skip
        model.learn(total_timesteps=16_384)
        returns = [episode["r"] for episode in model.ep_info_buffer]
        env.close()
        return float(np.mean(returns))

    compare(
        lambda seed: train(RolloutsPPO, RolloutsVecEnv(ENV_ID, 16, seed=seed), seed),
        lambda seed: train(sb3.PPO, make_vec_env(ENV_ID, n_envs=16, seed=seed), seed),
    )


def test_tianshou() -> None:
    pytest.importorskip("tianshou", reason="needs Tianshou")
    from rollouts.integrations.tianshou import RolloutsCollector, RolloutsVectorEnv
    from tianshou.algorithm import PPO
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

    def train(make_collector: Any, envs: Any, tests: Any, seed: int) -> float:
        seed_all(seed)
        envs.seed(seed)
        tests.seed(seed + 1000)
        net = Net(state_shape=(4,), hidden_sizes=[64, 64])
        policy = DiscreteActorPolicy(
            actor=DiscreteActor(preprocess_net=net, action_shape=2),
            dist_fn=torch.distributions.Categorical,
            action_space=gym.spaces.Discrete(2),
            deterministic_eval=True,
        )
        algorithm: Any = PPO(
            policy=policy,
            critic=DiscreteCritic(preprocess_net=net),
            optim=AdamOptimizerFactory(lr=1e-3),
            gae_lambda=0.95,
            max_grad_norm=0.5,
            ent_coef=0.0,
        )
        parameters = OnPolicyTrainerParams(
            training_collector=make_collector(algorithm, envs, VectorReplayBuffer(20_000, 16)),
            test_collector=make_collector(algorithm, tests),
            max_epochs=1,
            epoch_num_steps=24_576,
            update_step_num_repetitions=6,
            test_step_num_episodes=50,
            batch_size=256,
            collection_step_num_env_steps=1024,
            show_progress=False,
        )
        result = algorithm.run_training(parameters)
        envs.close()
        tests.close()
        return float(result.best_reward)

    def theirs(seed: int) -> float:
        makers = [lambda: gym.make(ENV_ID)]
        return train(Collector, DummyVectorEnv(makers * 16), DummyVectorEnv(makers * 50), seed)

    def ours(seed: int) -> float:
        made = [RolloutsVectorEnv(ENV_ID, num_envs=count) for count in (16, 50)]
        return train(RolloutsCollector, *made, seed)

    compare(ours, theirs)


def test_torchrl() -> None:
    pytest.importorskip("torchrl", reason="needs TorchRL")
    from rollouts.integrations.torchrl import RolloutsCollector, RolloutsEnv
    from tensordict.nn import TensorDictModule
    from torch import nn
    from torchrl.collectors import Collector
    from torchrl.envs import GymWrapper
    from torchrl.modules import ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    def network(outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
        )

    def train(make_collector: Any, make_env: Callable[[], Any], seed: int) -> float:
        seed_all(seed)
        env = make_env()
        actor = ProbabilisticActor(
            TensorDictModule(network(2), in_keys=["observation"], out_keys=["logits"]),
            in_keys=["logits"],
            distribution_class=torch.distributions.OneHotCategorical,
            return_log_prob=True,
        )
        critic = ValueOperator(network(1), in_keys=["observation"])
        estimate = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
        loss = ClipPPOLoss(actor, critic, entropy_coeff=0.0)
        adam = torch.optim.Adam(loss.parameters(), lr=1e-3)
        collector = make_collector(env, actor, frames_per_batch=1024, total_frames=20_480)
        ended = steps = 0
        for number, batch in enumerate(collector):
            if number >= 16:
                ended += int(batch["next", "done"].sum())
                steps += batch.numel()
            for _ in range(6):
                with torch.no_grad():
                    estimate(batch)
                rows = batch.reshape(-1)
                for chosen in torch.randperm(len(rows)).split(256):
                    parts = loss(rows[chosen])
                    total = parts["loss_objective"] + parts["loss_critic"]
                    adam.zero_grad()
                    total.backward()
                    nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                    adam.step()
        collector.shutdown()
        # a step is a reward of one
        return steps / max(1, ended)

    def their_env() -> Any:
        makers = [lambda: gym.make(ENV_ID)] * 16
        disabled = gym.vector.AutoresetMode.DISABLED
        return GymWrapper(gym.vector.SyncVectorEnv(makers, autoreset_mode=disabled))

    compare(
        lambda seed: train(
            RolloutsCollector, lambda: RolloutsEnv(ENV_ID, num_envs=16, seed=seed), seed
        ),
        lambda seed: train(Collector, their_env, seed),
    )


def test_rllib() -> None:
    pytest.importorskip("ray.tune", exc_type=ImportError, reason="needs RLlib")
    from ray.rllib.algorithms.ppo import PPOConfig
    from rollouts.integrations.rllib import RolloutsEnvRunner

    def train(seed: int, **runners: Any) -> float:
        config: Any = PPOConfig().environment(ENV_ID).debugging(seed=seed)
        config.env_runners(num_env_runners=0, num_envs_per_env_runner=16, **runners)
        config.training(
            train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=6, lr=1e-3
        )
        algo = config.build_algo()
        try:
            for _ in range(16):
                found = algo.train()["env_runners"]["episode_return_mean"]
        finally:
            algo.stop()
        return float(found)

    compare(lambda seed: train(seed, env_runner_cls=RolloutsEnvRunner), train)
