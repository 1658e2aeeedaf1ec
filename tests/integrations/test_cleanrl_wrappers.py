# SPDX-License-Identifier: Apache-2.0
"""The CleanRL page's line for ppo_continuous_action.py beside the wrappers of the original."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import wrappers
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "wrappers"))
from rollouts.integrations import cleanrl
from wrapped_reference import SEED, OneEnv

GAMMA = 0.99


def ours(limit: int) -> Any:
    """As the page has it."""
    return cleanrl.make_vec(
        "HalfCheetah-v5",
        1,
        seed=SEED,
        max_episode_steps=limit,
        clip_action=True,
        normalize_observation={"clip": 10},
        normalize_reward={"gamma": GAMMA},
        clip_reward=10,
    )


def theirs(limit: int) -> Any:
    """As make_env of ppo_continuous_action.py does, which has one environment by default."""

    def make() -> gym.Env[Any, Any]:
        env: Any = wrappers.TimeLimit(OneEnv("HalfCheetah-v5", 0, limit), limit)
        env = wrappers.FlattenObservation(env)
        env = wrappers.RecordEpisodeStatistics(env)
        env = wrappers.ClipAction(env)
        env = wrappers.NormalizeObservation(env)
        env = wrappers.TransformObservation(
            env, lambda obs: np.clip(obs, -10, 10), env.observation_space
        )
        env = wrappers.NormalizeReward(env, gamma=GAMMA)
        return wrappers.TransformReward(env, lambda reward: float(np.clip(reward, -10, 10)))

    return gym.vector.SyncVectorEnv([make], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)


def test_the_pages_options_are_the_originals_wrappers() -> None:
    limit = 80
    left, right = ours(limit), theirs(limit)
    assert left.single_action_space == right.single_action_space
    rng = np.random.default_rng(0)
    # Gymnasium's wrapper of one environment rounds what it returns to float32
    near = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(left.reset()[0], right.reset()[0], **near)
    for t in range(1, 3 * limit + 1):
        action = rng.normal(0, 2, (1, 6)).astype(np.float32)
        got, want = left.step(action), right.step(action)
        if t >= limit:
            # there an episode's last observation is counted beside the next one's first
            near = {"rtol": 0.1, "atol": 0.2}
        np.testing.assert_allclose(got[0], want[0], **near)
        np.testing.assert_allclose(got[1], want[1], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(got[3], want[3])
        assert got[3][0] == (t % limit == 0)
    left.close()
    right.close()


def train(make: Callable[[int], Any], num_steps: int, seed: int) -> float:
    """PPO with the original's numbers; the mean return of the last episodes."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (as the original does)
    env, length = make(250), 1000

    def network(size: int, last: float) -> nn.Sequential:
        layers = nn.Sequential(
            nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, size)
        )
        for layer, gain in zip(layers[::2], (2**0.5, 2**0.5, last), strict=True):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)
        return layers

    actor, critic, log_std = network(6, 0.01), network(1, 1.0), nn.Parameter(torch.zeros(6))
    parameters = [*actor.parameters(), *critic.parameters(), log_std]
    adam = torch.optim.Adam(parameters, lr=3e-4, eps=1e-5)

    def act(obs: torch.Tensor) -> torch.distributions.Normal:
        return torch.distributions.Normal(actor(obs), log_std.exp())

    shown = torch.as_tensor(np.array(env.reset()[0]), dtype=torch.float32)
    returns: list[float] = []
    for _ in range(num_steps // length):
        obs, actions = torch.zeros(length, 17), torch.zeros(length, 6)
        rewards, ends = torch.zeros(length), torch.zeros(length)
        for t in range(length):
            with torch.no_grad():
                action = act(shown).sample()
            obs[t], actions[t] = shown[0], action[0]
            after, reward, terminated, truncated, info = env.step(action.numpy())
            shown = torch.as_tensor(np.array(after), dtype=torch.float32)
            rewards[t], ends[t] = float(reward[0]), float(terminated[0] | truncated[0])
            if ends[t]:
                found = info["final_info"]
                episode = found[0]["episode"] if isinstance(found, (list, np.ndarray)) else (
                    found["episode"]
                )  # fmt: skip
                returns.append(float(np.ravel(episode["r"])[0]))
        with torch.no_grad():
            values = critic(torch.cat([obs, shown])).squeeze(-1)
            old = act(obs).log_prob(actions).sum(-1)
            advantage, last = torch.zeros(length), torch.zeros(())
            for t in reversed(range(length)):
                goes_on = 1 - ends[t]
                delta = rewards[t] + GAMMA * values[t + 1] * goes_on - values[t]
                last = advantage[t] = delta + GAMMA * 0.95 * goes_on * last
            target = advantage + values[:-1]
        for _ in range(10):
            for rows in torch.randperm(length).split(64):
                chosen = act(obs[rows]).log_prob(actions[rows]).sum(-1)
                ratio = (chosen - old[rows]).exp()
                gain = advantage[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                loss = loss + 0.25 * (critic(obs[rows]).squeeze(-1) - target[rows]).square().mean()
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                adam.step()
    env.close()
    return float(np.mean(returns[-12:]))


@pytest.mark.slow
def test_the_pages_script_returns_what_the_original_returns() -> None:
    # the same seeds give the same noise, but rounding parts the two after some updates
    got = [train(ours, 20_000, seed) for seed in range(3)]
    want = [train(theirs, 20_000, seed) for seed in range(3)]
    spread = max(want) - min(want)
    assert np.mean(got) == pytest.approx(np.mean(want), abs=max(spread, 0.15 * abs(np.mean(want))))
