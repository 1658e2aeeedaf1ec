# SPDX-License-Identifier: Apache-2.0
"""PPO in one loop with CleanRL's agent and settings: `ppo.py`, and `ppo_continuous_action.py`.

"rollouts" collects by `Collector` and learns by `NativeLearner`, as
examples/integrations/cleanrl_ppo.py does; "cleanrl" steps SyncVectorEnv and computes all by torch,
as the scripts do.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers import vector as wrappers
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, Normal

import rollouts
from comparisons.training.result import TrainingResult
from comparisons.training.whole_trainings import Trainer, TrainingTask
from rollouts.errors import SpecError
from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.returns import batch_gae


@dataclass(frozen=True, slots=True)
class _Settings:
    """The scripts' own arguments."""

    num_steps: int = 128
    num_minibatches: int = 4
    epochs: int = 4
    learning_rate: float = 2.5e-4
    entropy: float = 0.01


_SETTINGS = {
    "ppo": _Settings(),
    "ppo-continuous": _Settings(2048, 32, 10, 3e-4, 0.0),
}
_GAMMA, _LAMBDA, _CLIP, _VALUE, _NORM = 0.99, 0.95, 0.2, 0.5, 0.5


class _Agent(nn.Module):
    """An actor and a critic, two hidden layers of 64 each."""

    def __init__(self, obs_size: int, space: Any) -> None:
        super().__init__()
        self.critic = _mlp(obs_size, 1, 1.0)
        if isinstance(space, gym.spaces.Discrete):
            self.actor = _mlp(obs_size, int(space.n), 0.01)
        else:
            size = int(np.prod(space.shape))
            self.actor_mean = _mlp(obs_size, size, 0.01)
            self.actor_logstd = nn.Parameter(torch.zeros(1, size))

    def get_value(self, obs: Tensor) -> Tensor:
        value: Tensor = self.critic(obs)
        return value

    def get_action_and_value(self, obs: Tensor, action: Tensor | None = None) -> tuple[Any, ...]:
        if hasattr(self, "actor_mean"):
            mean = self.actor_mean(obs)
            probs: Any = Independent(Normal(mean, self.actor_logstd.exp().expand_as(mean)), 1)
        else:
            probs = Categorical(logits=self.actor(obs))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(obs)


def _mlp(inputs: int, outputs: int, gain: float) -> nn.Module:
    layers = []
    for size, out, scale in ((inputs, 64, 2**0.5), (64, 64, 2**0.5), (64, outputs, gain)):
        linear = nn.Linear(size, out)
        nn.init.orthogonal_(linear.weight, scale)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def _begin(task: TrainingTask, envs: Any) -> tuple[_Agent, torch.optim.Optimizer, _Settings, int]:
    """The agent, its optimiser, the settings and the number of updates."""
    torch.manual_seed(task.seed)
    settings, space = _SETTINGS[task.algorithm], envs.single_action_space
    if task.algorithm == "ppo" and not isinstance(space, gym.spaces.Discrete):
        raise SpecError(
            f"CleanRL's script for the actions of {task.id}, {space}, is ppo-continuous, not ppo: "
            "pass --algorithm ppo-continuous"
        )
    agent = _Agent(int(np.prod(envs.single_observation_space.shape)), space)
    optimizer = torch.optim.Adam(agent.parameters(), lr=settings.learning_rate, eps=1e-5)
    return agent, optimizer, settings, -(-task.total_steps // (settings.num_steps * task.num_envs))


def _ours(task: TrainingTask) -> TrainingResult:
    is_box = task.algorithm == "ppo-continuous"
    wrapped: dict[str, Any] = {"clip_action": True, "normalize_observation": {"clip": 10}}
    wrapped |= {"normalize_reward": {"gamma": _GAMMA}, "clip_reward": 10}
    envs = rollouts.make_vec(
        task.id,
        task.num_envs,
        seed=task.seed,
        autoreset_mode="same_step",
        **(wrapped if is_box else {}),
    )
    agent, optimizer, settings, num_updates = _begin(task, envs)
    policy = rollouts.NativePolicy.from_torch(
        agent, envs.single_action_space, envs.single_observation_space, seed=task.seed
    )
    collector = rollouts.Collector(envs, policy, rollout_length=settings.num_steps)
    learner = NativeLearner(policy, optimizer)
    loss = PpoLoss(
        value_clip_range=_CLIP, value_weight=0.5 * _VALUE, entropy_weight=settings.entropy
    )
    size, returns = settings.num_steps * task.num_envs, deque[float](maxlen=100)
    curve: list[tuple[int, float]] = []
    started = time.perf_counter()
    for update, batch in zip(range(num_updates), collector, strict=False):
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - update / num_updates)
        returns.extend(batch.episodes().returns)
        advantage, target = batch_gae(batch, gamma=_GAMMA, gae_lambda=_LAMBDA)
        parts = {name: getattr(batch, name) for name in ("obs", "action", "log_prob", "value")}
        parts |= {"advantage": advantage, "target": target}
        rows = {name: each.reshape(size, -1) for name, each in parts.items()}
        for _ in range(settings.epochs):
            order, minibatch = torch.randperm(size).numpy(), -(-size // settings.num_minibatches)
            learner.update(rows, order, minibatch=minibatch, loss=loss, max_grad_norm=_NORM)
        curve.append(((update + 1) * size, float(np.mean(returns or [np.nan]))))
    seconds = time.perf_counter() - started
    envs.close()
    return TrainingResult(seconds, num_updates * size, curve[-1][1], tuple(curve))


def _stock_envs(task: TrainingTask) -> Any:
    envs: Any = gym.vector.SyncVectorEnv([lambda: gym.make(task.id) for _ in range(task.num_envs)])
    envs = wrappers.RecordEpisodeStatistics(envs)
    if task.algorithm == "ppo-continuous":
        envs = wrappers.ClipAction(envs)
        envs = wrappers.NormalizeObservation(envs)
        envs = wrappers.TransformObservation(envs, lambda obs: np.clip(np.asarray(obs), -10, 10))
        envs = wrappers.NormalizeReward(envs, gamma=_GAMMA)
        envs = wrappers.TransformReward(envs, lambda reward: np.clip(reward, -10, 10))
    return envs


def _stock(task: TrainingTask) -> TrainingResult:
    envs = _stock_envs(task)
    agent, optimizer, settings, num_updates = _begin(task, envs)
    size = settings.num_steps * task.num_envs
    returns = deque[float](maxlen=100)
    curve: list[tuple[int, float]] = []
    started = time.perf_counter()
    obs = torch.Tensor(envs.reset(seed=task.seed)[0])
    for update in range(num_updates):
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - update / num_updates)
        steps, obs = _collect(envs, agent, obs, settings.num_steps, returns)
        with torch.no_grad():
            last = agent.get_value(obs).flatten()
        advantage = _gae(steps, last)
        rows = {name: torch.cat([each[name] for each in steps]) for name in steps[0]}
        rows |= {"advantage": advantage.flatten()}
        rows |= {"target": rows["advantage"] + rows["value"]}
        for _ in range(settings.epochs):
            for index in torch.randperm(size).chunk(settings.num_minibatches):
                _step(agent, optimizer, {n: e[index] for n, e in rows.items()}, settings.entropy)
        curve.append(((update + 1) * size, float(np.mean(returns or [np.nan]))))
    seconds = time.perf_counter() - started
    envs.close()
    return TrainingResult(seconds, num_updates * size, curve[-1][1], tuple(curve))


def _collect(
    envs: Any, agent: _Agent, obs: Tensor, num_steps: int, returns: deque[float]
) -> tuple[list[dict[str, Tensor]], Tensor]:
    steps = []
    for _ in range(num_steps):
        with torch.no_grad():
            action, log_prob, _, value = agent.get_action_and_value(obs)
        next_obs, reward, terminated, truncated, infos = envs.step(action.numpy())
        done = terminated | truncated
        if done.any():
            returns.extend(infos["episode"]["r"][done].tolist())
        steps.append(
            {
                "obs": obs,
                "action": action,
                "log_prob": log_prob,
                "value": value.flatten(),
                "reward": torch.Tensor(reward),
                "done": torch.Tensor(done),
            }
        )
        obs = torch.Tensor(next_obs)
    return steps, obs


def _gae(steps: list[dict[str, Tensor]], last: Tensor) -> Tensor:
    found, following, gain = [], last, torch.zeros_like(last)
    for step in reversed(steps):
        goes_on = 1.0 - step["done"]
        delta = step["reward"] + _GAMMA * following * goes_on - step["value"]
        gain = delta + _GAMMA * _LAMBDA * goes_on * gain
        following = step["value"]
        found.append(gain)
    return torch.stack(found[::-1])


def _step(
    agent: _Agent, optimizer: torch.optim.Optimizer, rows: dict[str, Tensor], entropy_weight: float
) -> None:
    _, log_prob, entropy, value = agent.get_action_and_value(rows["obs"], rows["action"])
    log_ratio = log_prob - rows["log_prob"]
    ratio = log_ratio.exp()
    with torch.no_grad():
        # computed because the scripts log these
        _ = ((ratio - 1) - log_ratio).mean(), ((ratio - 1).abs() > _CLIP).float().mean().item()
    advantage = rows["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    limited = ratio.clamp(1 - _CLIP, 1 + _CLIP)
    policy_loss = torch.max(-advantage * ratio, -advantage * limited).mean()
    value, before, target = value.flatten(), rows["value"], rows["target"]
    near = before + (value - before).clamp(-_CLIP, _CLIP)
    value_loss = 0.5 * torch.max((value - target) ** 2, (near - target) ** 2).mean()
    loss = policy_loss - entropy_weight * entropy.mean() + _VALUE * value_loss
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), _NORM)
    optimizer.step()


_BOTH: dict[str, Callable[[TrainingTask], TrainingResult]] = {"rollouts": _ours, "cleanrl": _stock}
TRAINERS: dict[str, dict[str, Trainer]] = {name: dict(_BOTH) for name in _SETTINGS}
