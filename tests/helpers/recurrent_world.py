# SPDX-License-Identifier: Apache-2.0
"""A policy with memory for CartPole, importable in Ray's processes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from rollouts.batch import RolloutBatch
from rollouts.recurrent import RecurrentTorchPolicy, State, unroll
from rollouts.workers import PolicySpec


class Lstm(nn.Module):
    """CartPole's observations, an LSTM cell, two heads; episodes begin with a state of halves."""

    def __init__(self, seed: int = 3) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.cell, self.heads = nn.LSTMCell(4, 8), nn.Linear(8, 3)

    def initial_state(self) -> State:
        return torch.full((8,), 0.5), torch.zeros(8)

    def forward(self, obs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        hidden, memory = self.cell(obs, state)
        out = self.heads(hidden)
        return out[:, :2], out[:, 2], (hidden, memory)


class FixedNoisePolicy(RecurrentTorchPolicy):
    """Samples the same noise wherever it is made."""

    def seed(self, seed: int | Sequence[int]) -> None:
        super().seed(0)


def make_lstm_policy(spec: PolicySpec) -> RecurrentTorchPolicy:
    torch.set_num_threads(1)
    return FixedNoisePolicy(Lstm(), spec.single_action_space)


@torch.no_grad()
def assert_unrolls(batch: RolloutBatch) -> None:
    """Checks that the states that the policy had lead to the values that it found."""
    module = Lstm()
    initial = module.initial_state()
    _, value, state = unroll(
        module,
        torch.tensor(batch.obs),
        tuple(torch.tensor(each) for each in batch.policy_state),
        ended=torch.tensor(batch.terminated | batch.truncated),
        initial_state=initial,
    )
    # the same network on batches of another size
    np.testing.assert_allclose(value.numpy(), batch.value, rtol=1e-4, atol=1e-5)
    *_, last_value, _ = module(torch.tensor(batch.last_obs), state)
    np.testing.assert_allclose(last_value.numpy(), batch.last_value, rtol=1e-4, atol=1e-5)


def is_initial(batch: RolloutBatch) -> np.ndarray:
    """Tells (B,) which columns open with the state of an episode's beginning."""
    hidden, memory = batch.policy_state
    return (hidden == 0.5).all(axis=1) & (memory == 0).all(axis=1)
