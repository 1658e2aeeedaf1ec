# SPDX-License-Identifier: Apache-2.0
"""A header that declares action_mask among its infos: collectors and rl_games obey it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rollouts

pytestmark = pytest.mark.system

TEMPLATE = Path(rollouts.__file__).parent / "own_env" / "templates" / "one_agent.h"
ENV_ID = "MaskedLamp-v0"
INFO = """
  // Nobody walks beyond the ends of the line.
  ROLLOUTS_HD static void WriteInfo(const Config& config, const State& state, double* mask) {
    mask[0] = state.position > 0;
    mask[1] = 1;
    mask[2] = state.position < config.length - 1;
  }
};
"""
DECLARED = """,
      .num_infos = 1,
      .infos = {{.name = "action_mask", .dtype = rollouts::DType::kInt8, .length = 3}},
      .reset_infos = true};"""


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory: pytest.TempPathFactory, quickly_here: None) -> None:
    text = TEMPLATE.read_text()
    head, end, tail = text.partition(".step_cost_ns = 10}")
    body, _, after = (head + ".step_cost_ns = 10" + DECLARED + tail.partition(";")[2]).rpartition(
        "};"
    )
    assert end and not after.strip()
    header = tmp_path_factory.mktemp("masks") / "masked_lamp.h"
    header.write_text(body + INFO)
    rollouts.register_env(ENV_ID, header=header, type="MyEnv")


def allowed(obs: Any) -> Any:
    """Masks by the header's rules, from observations (..., 2)."""
    position = obs[..., 0]
    return np.stack([position > 0, np.ones_like(position, np.bool_), position < 1], -1)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.actor, self.critic = nn.Linear(2, 3), nn.Linear(2, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(obs), self.critic(obs)[:, 0]


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_collectors_obey_it(engine: Any) -> None:
    with rollouts.make_vec(ENV_ID, 20, seed=1, autoreset_mode="same_step") as env:
        policy = rollouts.TorchPolicy(Network(), env.single_action_space, seed=1)
        collector = rollouts.Collector(env, policy, 64, mask_actions=True, engine=engine)
        for _ in range(2):
            batch = collector.collect()
            mask = batch.extras["action_mask"]
            np.testing.assert_array_equal(mask, allowed(batch.obs))
            assert np.take_along_axis(mask, batch.action[..., None].astype(int), -1).all()
            # lamps are found, and episodes begin anew where the left end forbids a step
            assert batch.terminated.any() and not mask.all()


def test_rl_games_finds_it() -> None:
    adapter = pytest.importorskip("rollouts.integrations.rl_games")
    env = adapter.RolloutsVecEnv("", 6, env_name=ENV_ID, seed=1)
    assert env.has_action_masks()
    obs = env.reset()
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(100):
        np.testing.assert_array_equal(env.get_action_masks(), allowed(obs))
        obs, _, dones, _ = env.step(rng.integers(3, size=6))
        ended += int(dones.sum())
    assert ended
    assert not adapter.RolloutsVecEnv("", 1, env_name="CartPole-v1").has_action_masks()


def test_rllib_modules_read_it() -> None:
    pytest.importorskip("ray.rllib", exc_type=ImportError)
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
    from rollouts.integrations import rllib

    spec = RLModuleSpec(
        module_class=ActionMaskingTorchRLModule, model_config=DefaultModelConfig(fcnet_hiddens=[8])
    )
    for runner_cls in (rllib.RolloutsEnvRunner, SingleAgentEnvRunner):
        config = PPOConfig().environment(rllib.register(ENV_ID, action_masks=True))
        config.env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=6,
            gym_env_vectorize_mode="vector_entry_point",
            env_runner_cls=runner_cls,
        )
        config.rl_module(rl_module_spec=spec).debugging(seed=1)
        runner: Any = runner_cls(config=config)
        assert getattr(runner, "slow_reason", "masks").endswith("masks")
        episodes = [each.to_numpy() for each in runner.sample(num_timesteps=600)]
        assert any(each.is_terminated for each in episodes)
        forbidden = 0
        for each in episodes:
            masks = each.observations.data["action_mask"]
            expected = allowed(each.observations.data["observations"])
            np.testing.assert_array_equal(masks, expected)
            actions = each.get_actions()
            assert np.take_along_axis(masks[: len(actions)], actions[:, None], 1).all()
            forbidden += int((masks == 0).sum())
        assert forbidden
        runner.stop()
    algorithm = config.env_runners(env_runner_cls=rllib.RolloutsEnvRunner).build_algo()
    learned = algorithm.train()["learners"]["default_policy"]
    assert np.isfinite(learned["policy_loss"])
    algorithm.stop()


def test_rllib_refuses_masks_where_there_are_none() -> None:
    pytest.importorskip("ray.rllib", exc_type=ImportError)
    from rollouts.integrations import rllib

    from rollouts.errors import SpecError

    creator = rllib.EnvCreator("CartPole-v1", {"action_masks": True})
    with pytest.raises(SpecError, match="leave action_masks out"):
        creator({"num_envs": 2})
