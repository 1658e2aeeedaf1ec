# SPDX-License-Identifier: Apache-2.0
"""`clip_action` is Gymnasium's ClipAction, alone and around RescaleAction."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import ClipAction, RescaleAction
from wrapped_reference import SEED, gymnasium_pool

import rollouts
from rollouts import Collector
from rollouts.policy import TorchPolicy

NUM_ENVS = 5
LIMIT = 20


@pytest.mark.parametrize("rescale", [None, True, (-0.5, np.float32(2.0))])
@pytest.mark.parametrize("env_id", ["Pendulum-v1", "HalfCheetah-v5"])
def test_actions_are_clipped_as_gymnasium_clips_them(env_id: str, rescale: Any) -> None:
    def wrap(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        if rescale is not None:
            env = RescaleAction(env, *((-1.0, 1.0) if rescale is True else rescale))
        return ClipAction(env)

    theirs = gymnasium_pool(env_id, NUM_ENVS, "next_step", LIMIT, wrap)
    given: dict[str, Any] = {"rescale_action": rescale} if rescale is not None else {}
    spec = rollouts.env_spec(env_id, clip_action=True, **given)
    assert spec.single_action_space == theirs.single_action_space
    given |= {"seed": SEED, "max_episode_steps": LIMIT}
    with rollouts.make_vec(env_id, NUM_ENVS, num_threads=2, clip_action=True, **given) as ours:
        assert ours.single_action_space == theirs.single_action_space
        rng = np.random.default_rng(0)
        np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])
        for _ in range(60):
            action = rng.normal(0, 3, ours.action_space.shape).astype(np.float32)
            for got, want in zip(ours.step(action)[:4], theirs.step(action)[:4], strict=True):
                np.testing.assert_array_equal(got, want)
    theirs.close()


def test_a_native_rollout_clips_in_the_same_place() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.mean = torch.nn.Linear(3, 1)

        def forward(self, obs: torch.Tensor) -> Any:
            mean = self.mean(obs)
            return mean, torch.ones_like(mean), mean[..., 0]

    given: dict[str, Any] = {"seed": 1, "autoreset_mode": "same_step", "clip_action": True}
    with (
        rollouts.make_vec("Pendulum-v1", 4, **given) as env,
        rollouts.make_vec("Pendulum-v1", 4, **given) as stepped,
    ):
        policy = TorchPolicy(Net(), env.single_action_space, seed=1)
        batch = Collector(env, policy, 20, engine="native").collect()
        assert (np.abs(batch.action) > 2).any(), "some are beyond the environment's bounds"
        np.testing.assert_array_equal(batch.obs[0], stepped.reset()[0])
        for t in range(20):
            _, reward, _, _, _ = stepped.step(batch.action[t])
            np.testing.assert_array_equal(batch.reward[t], reward.astype(np.float32))
