# SPDX-License-Identifier: Apache-2.0
"""Gradient steps of PPO through time, for `rollouts bench learner`: layers, an LSTM, two heads.

A minibatch has sequences of 16 steps. torch computes all rows at once, except in the cell.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from rollouts.bench.learner_off_policy import Sizes
from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.policies.native import NativePolicy
from rollouts.support.extras import needs

with needs("torch", "rollouts bench learner"):
    import torch
    from torch import Tensor, nn

    from rollouts.recurrent import State, unroll

NUM_STEPS = 16
_MAX_NORM = 0.5
# maps outputs, action, log_prob, advantage and target to PPO's loss
TorchLoss = Callable[..., Tensor]


class Agent(nn.Module):
    """Layers, an LSTM as wide as the last of them, a policy and a value."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        pairs = itertools.pairwise((sizes.obs_size, *sizes.layers))
        parts = [part for pair in pairs for part in (nn.Linear(*pair), nn.Tanh())]
        self.layers, self.size = nn.Sequential(*parts), sizes.layers[-1]
        self.cell = nn.LSTMCell(self.size, self.size)
        self.actor, self.critic = nn.Linear(self.size, sizes.num_actions), nn.Linear(self.size, 1)

    def initial_state(self) -> State:
        """Zeros."""
        zeros = self.actor.weight.new_zeros(self.size)
        return zeros, zeros

    def forward(self, obs: Tensor, state: State) -> tuple[Any, ...]:
        """Maps obs (B, D) and state to (logits, value, state)."""
        hidden, state = self.step(self.layers(obs), state)
        return *self.heads(hidden), state

    def step(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        """One step of the cell."""
        after = self.cell(features, state)
        return after[0], after

    def heads(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and value."""
        return self.actor(hidden), self.critic(hidden)[..., 0]

    def sequence(self, obs: Tensor, state: State, ended: Tensor) -> tuple[Tensor, Tensor]:
        """Maps obs (T, B, D) to logits and value of all rows, T * B."""
        features = self.layers(obs)
        initial = self.initial_state()
        hidden, _ = unroll(self.step, features, state, ended=ended, initial_state=initial)
        return self.heads(hidden.flatten(0, 1))


def make_rows(sizes: Sizes, count: int, seed: int) -> dict[str, Any]:
    """Rows (T, count) of sequences."""
    random, shape = np.random.default_rng(seed), (NUM_STEPS, count)
    return {
        "obs": random.normal(size=(*shape, sizes.obs_size)).astype(np.float32),
        "action": random.integers(sizes.num_actions, size=shape),
        "log_prob": np.full(shape, -np.log(sizes.num_actions), np.float32),
        "advantage": random.normal(size=shape).astype(np.float32),
        "target": random.normal(size=shape).astype(np.float32),
        "ended": random.random(shape) < 0.05,
    }


def make_agent(sizes: Sizes, seed: int) -> tuple[Agent, torch.optim.Optimizer]:
    """Makes an agent and its optimiser."""
    torch.manual_seed(seed)
    agent = Agent(sizes)
    return agent, torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5, fused=True)


def contestant(
    engine: str,
    sizes: Sizes,
    num_threads: int,
    seed: int,
    most_s: float,
    losses: tuple[PpoLoss, TorchLoss],
) -> Callable[[], int]:
    """A function that makes some steps and returns how many.

    Args:
      engine: "native" or "torch".
      sizes: Sizes of the network and of a minibatch, whose rows are sequences.
      num_threads: Threads of the engine.
      seed: Seed of weights and rows.
      most_s: Seconds after which torch ends a repeat early.
      losses: The loss for native code, and the loss for torch.
    """
    agent, optimizer = make_agent(sizes, seed)
    count = sizes.rows * min(50, max(3, 500 // sizes.rows))
    rows = make_rows(sizes, count, seed)
    zeros = np.zeros((count, agent.size), np.float32)
    if engine == "torch":
        return _torch(agent, optimizer, rows, sizes.rows, num_threads, most_s, losses[1])
    policy = NativePolicy.from_torch(agent, spaces.Discrete(sizes.num_actions), sizes.obs_size)
    learner = NativeLearner(policy, optimizer, num_threads)

    def run() -> int:
        return learner.update(
            rows,
            np.arange(count),
            minibatch=sizes.rows,
            loss=losses[0],
            max_grad_norm=_MAX_NORM,
            state=(zeros, zeros),
        ).num_steps

    return run


def _torch(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    rows: dict[str, Any],
    minibatch: int,
    num_threads: int,
    most_s: float,
    loss_of: TorchLoss,
) -> Callable[[], int]:
    obs, action, log_prob, advantage, target, ended = map(torch.from_numpy, rows.values())

    def run() -> int:
        torch.set_num_threads(num_threads)
        begin = time.perf_counter()
        for made, index in enumerate(torch.split(torch.arange(obs.shape[1]), minibatch)):
            # two threads of torch are slow on a machine where other processes compute, too
            if made and time.perf_counter() - begin > most_s:
                return made
            zeros = torch.zeros(len(index), agent.size)
            outputs = agent.sequence(obs[:, index], (zeros, zeros), ended[:, index])
            given = (each[:, index].flatten() for each in (action, log_prob, advantage, target))
            loss = loss_of(outputs, *given)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(agent.parameters(), _MAX_NORM)
            optimizer.step()
        return made + 1

    return run
