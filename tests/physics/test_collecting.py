# SPDX-License-Identifier: Apache-2.0
"""`Collector` over a `PhysicsEngine`: its rollouts are what stepping by hand gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rollouts
from rollouts import Collector, EnvError, TorchPolicy
from rollouts.returns import Gae

pytest.importorskip("mujoco_warp")

NUM_ENVS, STEPS = 6, 15


class Agent(nn.Module):
    """Pushes hard enough that pendulums fall within a rollout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.actor, self.critic = nn.Linear(4, 1), nn.Linear(4, 1)
        self.log_std = nn.Parameter(torch.tensor([0.5]))

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        return self.actor(obs), self.log_std, self.critic(obs)


def make(**kwargs: Any) -> Any:
    # the model whose kernels compile fastest
    return rollouts.make_vec(
        "InvertedPendulum-v5",
        NUM_ENVS,
        device="cpu-emulation",
        **{"seed": 1, "autoreset_mode": "same_step", "max_episode_steps": 9, **kwargs},
    )


@pytest.mark.parametrize("engine", ("torch", "native"))
def test_a_rollout_is_what_stepping_by_hand_gives(engine: Any) -> None:
    env, by_hand = make(), make()
    module = Agent()
    policy = TorchPolicy(module, env.single_action_space, seed=3)
    collector = Collector(env, policy, STEPS, engine=engine, returns=Gae(gamma=0.9, gae_lambda=0.9))
    obs, _ = by_hand.reset()
    space = env.single_action_space
    for _ in range(2):
        rollout = collector.collect()
        assert ((rollout.terminated | rollout.truncated).sum(0) >= 1).all()
        for t in range(STEPS):
            assert torch.equal(rollout.obs[t], obs)
            with torch.no_grad():
                *_, value = module(obs)
            torch.testing.assert_close(rollout.value[t], value[:, 0])
            # the distribution is not bounded, the environments' actions are
            action = rollout.action[t].clamp(float(space.low[0]), float(space.high[0]))
            obs, reward, terminated, truncated, info = by_hand.step(action)
            for name, expected in {
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "episode_return": info["episode_return"],
                "episode_length": info["episode_length"],
            }.items():
                assert torch.equal(getattr(rollout, name)[t], expected), name
            cut = truncated & ~terminated
            with torch.no_grad():
                *_, final_value = module(info["final_obs"])
            bootstrap = torch.where(cut, final_value[:, 0], 0.0)
            torch.testing.assert_close(rollout.bootstrap_value[t], bootstrap)
        assert torch.equal(rollout.last_obs, obs)
    assert rollout.truncated.any()
    collector.synchronize()
    assert env.stats().env_steps == by_hand.stats().env_steps
    collector.close()


def test_noise_is_that_of_the_pool_of_threads() -> None:
    env, cpu = make(), make_cpu()
    policies = [TorchPolicy(Agent(), env.single_action_space, seed=3) for _ in range(2)]
    found = Collector(env, policies[0], 2, engine="torch").collect()
    expected = rollouts.Collector(cpu, policies[1], 2).collect()
    # observations of the first step are equal but for their rounding
    torch.testing.assert_close(found.action[0], torch.as_tensor(expected.action[0]))


def make_cpu() -> Any:
    return rollouts.make_vec(
        "InvertedPendulum-v5",
        NUM_ENVS,
        seed=1,
        autoreset_mode="same_step",
        obs_dtype="float32",
    )


def test_a_policy_without_finite_numbers_is_told() -> None:
    env, module = make(), Agent()
    with torch.no_grad():
        module.critic.bias.fill_(torch.nan)
    policy = TorchPolicy(module, env.single_action_space, seed=3)
    collector = Collector(env, policy, 2, engine="torch")
    collector.collect()
    with pytest.raises(EnvError, match="environment 0 got a policy whose value"):
        collector.synchronize()
