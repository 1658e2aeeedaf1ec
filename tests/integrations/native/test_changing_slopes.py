# SPDX-License-Identifier: Apache-2.0
"""Adapters whose policies the pool's threads compute: a number of a layer that is no weight, here
the slope of an activation, is the module's also after it has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

NUM_ENVS = 4


def set_slopes(module: nn.Module, slope: float) -> None:
    layers = [each for each in module.modules() if isinstance(each, nn.LeakyReLU)]
    assert layers
    for layer in layers:
        layer.negative_slope = slope


def test_stable_baselines3() -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    from rollouts.integrations.sb3 import RolloutsPPO, RolloutsVecEnv

    model: Any = RolloutsPPO(
        "MlpPolicy",
        RolloutsVecEnv("CartPole-v1", NUM_ENVS, seed=3),
        rollout_engine="native",
        n_steps=16,
        seed=1,
        device="cpu",
        policy_kwargs={"activation_fn": nn.LeakyReLU},
    )
    model._setup_learn(10**6)
    for slope in (0.01, 0.9, -0.5):
        set_slopes(model.policy, slope)
        model.collect_rollouts(model.env, _Silent(), model.rollout_buffer, 16)
        buffer = model.rollout_buffer
        obs = torch.from_numpy(buffer.observations.reshape(-1, 4).copy())
        actions = torch.from_numpy(buffer.actions.reshape(-1).copy())
        with torch.no_grad():
            values, log_probs, _ = model.policy.evaluate_actions(obs, actions)
        np.testing.assert_allclose(buffer.values.reshape(-1), values[:, 0], atol=1e-5)
        np.testing.assert_allclose(buffer.log_probs.reshape(-1), log_probs, atol=1e-5)
    model.env.close()


class _Silent:
    """A callback that hears nothing."""

    def on_rollout_start(self) -> None: ...
    def on_rollout_end(self) -> None: ...
    def on_step(self) -> bool:
        return True

    def update_locals(self, found: Any) -> None: ...


def test_tianshou() -> None:
    pytest.importorskip("tianshou", reason="needs the extra tianshou")
    from rollouts.integrations.tianshou import RolloutsCollector, RolloutsVectorEnv
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.data import VectorReplayBuffer
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor

    env = RolloutsVectorEnv("CartPole-v1", num_envs=NUM_ENVS, seed=3)
    net = Net(state_shape=4, hidden_sizes=[16], activation=nn.LeakyReLU)
    actor = DiscreteActor(preprocess_net=net, action_shape=2, softmax_output=False)
    policy = DiscreteActorPolicy(
        actor=actor, action_space=env.action_space[0], deterministic_eval=True
    )
    collector: Any = RolloutsCollector(policy, env, VectorReplayBuffer(16 * NUM_ENVS, NUM_ENVS))
    collector.rollout_engine = "native"
    for slope in (0.01, -8.0):
        set_slopes(actor, slope)
        collector.reset()
        collector.collect(n_step=16 * NUM_ENVS)
        seen = collector.buffer.obs
        with torch.no_grad():
            logits, _ = actor(torch.from_numpy(np.asarray(seen, np.float32)))
        np.testing.assert_array_equal(collector.buffer.act, logits.argmax(1))
    env.close()


def test_torchrl() -> None:
    pytest.importorskip("torchrl", reason="needs the extra torchrl")
    from rollouts.integrations.torchrl import RolloutsCollector, RolloutsEnv
    from tensordict.nn import TensorDictModule
    from torchrl.modules import MLP, OneHotCategorical, ProbabilisticActor

    layers = MLP(in_features=4, out_features=2, num_cells=[16], activation_class=nn.LeakyReLU)
    policy = ProbabilisticActor(
        TensorDictModule(layers, in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
        return_log_prob=True,
    )
    collector = RolloutsCollector(
        RolloutsEnv("CartPole-v1", num_envs=NUM_ENVS, seed=3),
        policy,
        frames_per_batch=16 * NUM_ENVS,
        total_frames=-1,
    )
    collector.rollout_engine = "native"
    batches = iter(collector)
    for slope in (0.01, 0.9, -0.5):
        set_slopes(layers, slope)
        batch = next(batches)
        with torch.no_grad():
            logits = layers(batch["observation"])
        torch.testing.assert_close(batch["logits"], logits, rtol=1e-4, atol=1e-5)
    collector.shutdown()


def test_rllib() -> None:
    pytest.importorskip("ray.tune", exc_type=ImportError, reason="needs the extra rllib")
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from rllib_cases import ByPool, config_of

    config = config_of("CartPole-v1", NUM_ENVS)
    config.rl_module(
        model_config=DefaultModelConfig(fcnet_hiddens=[8], fcnet_activation="LeakyReLU")
    )
    runner: Any = ByPool(config=config)
    for slope in (0.01, 0.9, -0.5):
        set_slopes(runner.module, slope)
        for chunk in runner.sample(num_timesteps=16 * NUM_ENVS):
            obs = torch.from_numpy(chunk.get_observations(slice(0, len(chunk))).copy()).float()
            with torch.no_grad():
                inputs = runner.module.forward_exploration({"obs": obs})["action_dist_inputs"]
            said = chunk.get_extra_model_outputs("action_dist_inputs")
            np.testing.assert_allclose(said, inputs, rtol=1e-4, atol=1e-5)
    assert runner.native_reason == ""
