# SPDX-License-Identifier: Apache-2.0
"""Gradient descent with momentum beside torch's, and which parameters a step leaves."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ppo_reference import ActorCritic, acted_rows, as_tensors, torch_step

from rollouts import NativePolicy
from rollouts.learner.native_learner import CloningLoss, NativeLearner, PpoLoss

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SPACE = spaces.Discrete(4)
LOSS = PpoLoss(clip_range=100.0)


def largest_difference(module: ActorCritic, other: ActorCritic) -> float:
    pairs = zip(module.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    ],
)
def test_a_run_by_sgd_changes_sides_in_the_middle(how: dict[str, Any]) -> None:
    torch.manual_seed(3)
    module = ActorCritic(SPACE, 16)
    rows, order = acted_rows(module, 60, 3), np.arange(60)
    tensors = as_tensors(rows, torch.float32)
    other = copy.deepcopy(module)
    optimizer, plain = (torch.optim.SGD(m.parameters(), lr=0.1, **how) for m in (module, other))
    learner = NativeLearner(NativePolicy.from_torch(module, SPACE), optimizer)
    for side in ("native", "torch", "native"):
        for _ in range(5):
            if side == "native":
                learner.update(rows, order, minibatch=60, loss=LOSS, max_grad_norm=0.5)
            else:
                torch_step(module, optimizer, tensors, order, LOSS, 0.5)
            torch_step(other, plain, tensors, order, LOSS, 0.5)
        assert largest_difference(module, other) < 1e-6
        ours, theirs = optimizer.state_dict(), plain.state_dict()
        assert ours["param_groups"] == theirs["param_groups"]
        assert ours["state"].keys() == theirs["state"].keys()
        for place, state in theirs["state"].items():
            for name, each in state.items():
                torch.testing.assert_close(ours["state"][place][name], each, rtol=0, atol=1e-5)


def test_cloning_with_weight_decay_leaves_the_critic() -> None:
    """As in torch, where what a loss does not reach has no gradient at all."""
    torch.manual_seed(5)
    module = ActorCritic(SPACE, 8)
    before, other = copy.deepcopy(module), copy.deepcopy(module)
    rows = acted_rows(module, 40, 5)
    optimizer, plain = (
        torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.1) for m in (module, other)
    )
    learner = NativeLearner(NativePolicy.from_torch(module, SPACE), optimizer)
    tensors = as_tensors(rows, torch.float32)
    shown = {name: rows[name] for name in ("obs", "action")}
    for _ in range(5):
        learner.update(shown, np.arange(40), minibatch=40, loss=CloningLoss())
        plain.zero_grad()
        log_prob, _, _ = other.evaluate(tensors["obs"], tensors["action"])
        (-log_prob.mean()).backward()
        plain.step()
    assert largest_difference(module, other) < 1e-5
    for layers in ("critic", "critic_layers"):
        pairs = zip(
            getattr(module, layers).parameters(), getattr(before, layers).parameters(), strict=True
        )
        assert all(torch.equal(now, then) for now, then in pairs)
    assert optimizer.state_dict()["state"].keys() == plain.state_dict()["state"].keys()
    # and the value is trained as before where a loss reaches it
    learner.update(rows, np.arange(40), minibatch=40, loss=LOSS)
    assert not torch.equal(module.critic.weight, before.critic.weight)
