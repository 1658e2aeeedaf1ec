# SPDX-License-Identifier: Apache-2.0
"""Noise that goes on from step to step: the recursion, whose noise of the steps is drawn again."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rollouts
from rollouts import Collector, TorchPolicy
from rollouts.errors import SpecError
from rollouts.policies.native import Head, NativePolicy
from rollouts.policy import OrnsteinUhlenbeckHead

SIX = gymnasium.spaces.Box(-1, 1, (6,), np.float32)


class Still(nn.Module):
    """The same mean and deviation everywhere: only noise moves."""

    def __init__(self, obs_size: int, size: int) -> None:
        super().__init__()
        self.mean, self.value = nn.Linear(obs_size, size), nn.Linear(obs_size, 1)
        nn.init.zeros_(self.mean.weight)
        self.log_std = nn.Parameter(torch.tensor(0.2).log())

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = self.mean(obs.float())
        return mean, self.log_std.expand_as(mean), self.value(obs.float())


def noise_of(damping: float, keys: Any) -> tuple[Any, Any]:
    """Noise (B, 6) and its log-densities (B,) of rows of env_id, episode and step (3, B)."""
    torch.manual_seed(0)
    native = NativePolicy.from_torch(
        Still(4, 6), SIX, 4, head=Head("gaussian", damping=damping), seed=7
    ).refresh()
    obs = np.zeros((keys.shape[1], 4), np.float32)
    action, log_prob, _, mean, *_ = native.act(obs, np.ascontiguousarray(keys, np.uint32))
    return (action - mean) / np.float32(0.2), log_prob


@pytest.mark.parametrize("damping", [0.02, 0.15, 0.9])
def test_noise_is_that_of_the_recursion(damping: float) -> None:
    steps, envs = 400, 5
    step, env = (x.ravel() for x in np.meshgrid(np.arange(steps), np.arange(envs), indexing="ij"))
    keys = np.stack([env, env % 2, step])
    fresh, density = noise_of(1.0, keys)
    found, its_density = noise_of(damping, keys)
    expected, x = [], np.zeros((envs, 6))
    for e in fresh.reshape(steps, envs, 6).astype(np.float64):
        x = (1 - damping) * x + e
        expected.append(x)
    # rounding of float32 numbers of up to 20
    np.testing.assert_allclose(found.reshape(steps, envs, 6), expected, atol=2e-5)
    np.testing.assert_array_equal(its_density, density)
    # an episode's first noise has nothing behind it
    np.testing.assert_array_equal(found[:envs], fresh[:envs])


def test_it_spreads_as_the_process_does() -> None:
    envs = np.arange(20_000)
    found, _ = noise_of(0.15, np.stack([envs, envs * 0, envs * 0 + 200]))
    # 1 / (1 - 0.85^2); 120 000 numbers: five standard deviations are 0.02 of it
    assert abs(found.var() * (1 - 0.85**2) - 1) < 0.02


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_device_draws_what_a_pool_draws(engine: Any) -> None:
    options: dict[str, Any] = {"seed": 3, "autoreset_mode": "same_step", "max_episode_steps": 30}
    cpu: Any = rollouts.make_vec("Pendulum-v1", 20, num_threads=1, **options)
    device: Any = rollouts.make_vec("Pendulum-v1", 20, device="cpu-emulation", **options)
    found = []
    for env, by in ((cpu, "native"), (device, engine)):
        torch.manual_seed(0)
        policy = TorchPolicy(Still(3, 1), env.single_action_space, seed=5)
        policy.head = OrnsteinUhlenbeckHead.of(env.single_action_space)
        collector = Collector(env, policy, 50, engine=by)
        found.append([collector.collect() for _ in range(2)])
    for theirs, mine in zip(*found, strict=True):
        np.testing.assert_array_equal(mine.action, theirs.action)
        np.testing.assert_array_equal(mine.log_prob, theirs.log_prob)
    # neighbours are alike, but where an episode ends between them
    noise = found[1][0].action[..., 0] - found[1][0].action.mean()
    alike = noise[1:] * noise[:-1] / noise.var()
    assert alike[:29].mean() > 0.7 and abs(alike[29].mean()) < 0.6


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(SpecError, match=r"damping is 0, expected a share from 0\.01 to 1"):
        OrnsteinUhlenbeckHead.of(SIX, 0)
    with pytest.raises(SpecError, match="expected a Box of floats"):
        OrnsteinUhlenbeckHead.of(gymnasium.spaces.Discrete(2))
    with pytest.raises(SpecError, match=r"head\.damping is 2, expected a share"):
        Head("gaussian", damping=2)
    with pytest.raises(SpecError, match=r"is for a gaussian head, this one is tanh_gaussian"):
        Head("tanh_gaussian", damping=0.5)
    env = rollouts.make_vec("Pendulum-v1", 2, autoreset_mode="same_step")
    policy = TorchPolicy(Still(3, 1), env.single_action_space)
    policy.head = OrnsteinUhlenbeckHead.of(env.single_action_space)
    with pytest.raises(SpecError, match="collect with engine='native', or on a device"):
        Collector(env, policy, 2, engine="torch").collect()
