# SPDX-License-Identifier: Apache-2.0
"""PPO from rollouts that stay on a device, for policies with and without memory."""

from __future__ import annotations

import argparse
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import torch
from ppo import Agent
from recurrent_ppo import Agent as RecurrentAgent
from recurrent_ppo import agent_options
from torch import Tensor, nn

import rollouts
from common.data_parallel import Processes
from rollouts import RolloutBatch

ARRAYS = ("obs", "action", "log_prob")
RETURNS = ("advantage", "target")


class Learner:
    """A policy and its optimiser: of one agent, of the agents of a group, or of several groups."""

    def __init__(
        self,
        obs_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        device: torch.device,
        args: argparse.Namespace,
        processes: Processes,
    ) -> None:
        self.args, self.obs_space, self.action_space = args, obs_space, action_space
        self.policy = self.make_policy(device)
        self.model = self.policy.module
        # gradients are the mean over all processes
        self.wrapped = processes.wrap(self.model)
        self.compute_loss = torch.compile(self.loss) if args.compile else self.loss
        self.generator = torch.Generator(device).manual_seed(args.seed)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=args.learning_rate, eps=1e-5, fused=True
        )

    def make_policy(self, device: torch.device | str) -> rollouts.TorchPolicy:
        """The policy with new weights."""
        agent = Agent(self.obs_space, self.action_space, self.args.hidden)
        return rollouts.TorchPolicy(agent, self.action_space, seed=self.args.seed, device=device)

    def update(self, found: Sequence[RolloutBatch[Tensor]], learning_rate: float) -> None:
        """Takes the gradient steps of one PPO update (Schulman et al. 2017)."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        data = self.prepare(found)
        for _ in range(self.args.num_epochs):
            for loss in self.losses(data):
                self.optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
                self.optimizer.step()

    def prepare(self, found: Sequence[RolloutBatch[Tensor]]) -> Any:
        """The steps that an update learns from, flattened to one axis."""
        there = torch.cat([active(one).flatten() for one in found])
        # the steps in which the agent was still there; with one agent all steps
        index = torch.arange(len(there), device=there.device)[there]
        if self.args.max_rows is not None:
            index = index[self.permutation(len(index))[: self.args.max_rows]]
        columns = zip(*(arrays(one) for one in found), strict=True)
        return [torch.cat([one.flatten(0, 1) for one in column])[index] for column in columns]

    def losses(self, data: Any) -> Iterator[Tensor]:
        """The losses of the minibatches of one pass."""
        # every process has the same number of minibatches
        for index in self.permutation(len(data[0])).tensor_split(self.args.num_minibatches):
            obs, *rest = (one[index] for one in data)
            with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.args.bf16):
                *params, value = (one.float() for one in self.wrapped(obs))
            yield self.compute_loss(params, value, *rest)

    def permutation(self, count: int) -> Tensor:
        """The numbers below `count` in random order."""
        return torch.randperm(count, generator=self.generator, device=self.generator.device)

    def loss(
        self,
        params: Sequence[Tensor],
        value: Tensor,
        action: Tensor,
        old_log_prob: Tensor,
        advantage: Tensor,
        target: Tensor,
    ) -> Tensor:
        """The clipped objective on one minibatch."""
        args = self.args
        log_prob, entropy = self.policy.head.evaluate(params, action)
        ratio = (log_prob - old_log_prob).exp()
        if args.normalize_advantage:
            advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
        policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = args.value_coef * (value - target).square().mean()
        return policy_loss + value_loss - args.entropy_coef * entropy.mean()


class RecurrentLearner(Learner):
    """Minibatches for recurrent policies: some of the rows, with all of their steps in order."""

    model: RecurrentAgent

    def make_policy(self, device: torch.device | str) -> rollouts.TorchPolicy:
        """The policy with new weights."""
        agent = RecurrentAgent(self.action_space, **agent_options(self.args))
        return rollouts.RecurrentTorchPolicy(
            agent, self.action_space, seed=self.args.seed, device=device
        )

    def prepare(self, found: Sequence[RolloutBatch[Tensor]]) -> Any:
        """The states before the first step, and the steps (T, B, ...) with ends and active rows."""
        state = [torch.cat(parts) for parts in zip(*(x.policy_state for x in found), strict=True)]
        of_each = [(x.terminated | x.truncated, active(x), *arrays(x)) for x in found]
        return state, [torch.cat(column, 1) for column in zip(*of_each, strict=True)]

    def losses(self, data: Any) -> Iterator[Tensor]:
        """The losses of the minibatches of one pass."""
        state, steps = data
        order = self.permutation(len(state[0]))
        for rows in order.split(max(1, -(-len(order) // self.args.num_minibatches))):
            ended, there, obs, *rest = (one[:, rows] for one in steps)
            logits, value = self.model.sequence(obs, tuple(one[rows] for one in state), ended)
            yield self.loss([logits[there]], value[there], *(one[there] for one in rest))


def arrays(rollout: RolloutBatch[Tensor]) -> list[Tensor]:
    """(T, B, ...): the arrays of a rollout that the loss reads."""
    return [getattr(rollout, name) for name in ARRAYS] + [rollout.extras[n] for n in RETURNS]


def active(rollout: RolloutBatch[Tensor]) -> Tensor:
    """(T, B) bool: the agents that took part in each step."""
    found = rollout.extras.get("active")
    return torch.ones_like(rollout.terminated) if found is None else found


class Episodes:
    """Returns of the last episodes of one group, in all processes."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        # for each rollout: number of the episodes of agents that ended in it, sum of their returns
        self._ended: deque[Tensor] = deque()

    def count(self, rollout: RolloutBatch[Tensor]) -> None:
        """Counts the episodes that ended in a rollout; does not wait for the device."""
        ended = (rollout.terminated | rollout.truncated) & active(rollout)
        returns = torch.where(ended, rollout.episode_return, 0.0)
        sums = torch.stack([ended.sum().double(), returns.sum()])
        self._ended.append(self.processes.add_up(sums))

    def mean_return(self, num_rollouts: int, num_episodes: int = 100) -> float:
        """Mean return of the last episodes; NaN before there are enough. Waits for the device.

        Args:
          num_rollouts: Least number of rollouts that count together: agents that leave early end
            their episodes in other rollouts than agents that stay.
        """
        sums = torch.stack([*self._ended]).cpu()
        counted, total = sums.sum(0).tolist()
        # the oldest rollouts are dropped as soon as the others are enough
        for count, returns in sums.tolist():
            if counted - count < num_episodes or len(self._ended) <= num_rollouts:
                break
            counted, total = counted - count, total - returns
            self._ended.popleft()
        enough = counted >= num_episodes and len(self._ended) >= num_rollouts
        return total / counted if enough else math.nan
