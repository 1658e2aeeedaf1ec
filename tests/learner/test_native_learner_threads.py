# SPDX-License-Identifier: Apache-2.0
"""`NativeLearner`'s native part: its threads, forks, limits, and the sizes of what it is given."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ppo_reference import ActorCritic, acted_rows, as_tensors, gradients, torch_step

from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.policies.native import NativePolicy

SPACES = {
    "categorical": spaces.Discrete(4),
    "multi_categorical": spaces.MultiDiscrete([3, 2, 5]),
    "gaussian": spaces.Box(-np.inf, np.inf, (3,)),
}


@pytest.mark.parametrize("value_loss", ["clipped", "worse"])
def test_a_value_limit_below_zero_is_one_as_in_torch(value_loss: str) -> None:
    """torch.clamp gives the upper limit where it is below the lower one."""
    torch.manual_seed(6)
    module = ActorCritic(SPACES["categorical"], 16)
    rows = acted_rows(module, 100, 6)
    loss = PpoLoss(value_clip_range=-0.1, value_loss=value_loss)
    expected = gradients(copy.deepcopy(module).double(), as_tensors(rows, torch.float64), loss)
    optimizer = torch.optim.Adam(module.parameters(), betas=(0.5, 0.999))
    learner = NativeLearner(NativePolicy.from_torch(module, SPACES["categorical"]), optimizer)
    learner.update(rows, np.arange(100), minibatch=100, loss=loss)
    largest = max(each.abs().max().item() for each in expected.values())
    for name, each in module.named_parameters():
        found = optimizer.state[each]["exp_avg"].double() / 0.5
        torch.testing.assert_close(found, expected[name], rtol=0, atol=1e-5 * largest, msg=name)


def test_a_norm_below_zero_is_a_limit_as_in_torch() -> None:
    torch.manual_seed(6)
    module = ActorCritic(SPACES["categorical"], 16)
    rows, loss = acted_rows(module, 100, 6), PpoLoss()
    exact = copy.deepcopy(module).double()
    torch_step(
        exact,
        torch.optim.Adam(exact.parameters(), eps=1.0),
        as_tensors(rows, torch.float64),
        np.arange(100),
        loss,
        -0.5,
    )
    optimizer = torch.optim.Adam(module.parameters(), eps=1.0)
    learner = NativeLearner(NativePolicy.from_torch(module, SPACES["categorical"]), optimizer)
    before = [each.detach().clone() for each in module.parameters()]
    learner.update(rows, np.arange(100), minibatch=100, loss=loss, max_grad_norm=-0.5)
    for each, was, wanted in zip(module.parameters(), before, exact.parameters(), strict=True):
        torch.testing.assert_close((each - was).double(), wanted - was, rtol=0, atol=1e-7)


def test_a_divergence_below_zero_ends_the_update_at_once() -> None:
    torch.manual_seed(6)
    module = ActorCritic(SPACES["categorical"], 16)
    rows = acted_rows(module, 100, 6)
    optimizer = torch.optim.Adam(module.parameters())
    learner = NativeLearner(NativePolicy.from_torch(module, SPACES["categorical"]), optimizer)
    found = learner.update(rows, np.arange(100), minibatch=20, loss=PpoLoss(target_kl=-1.0))
    assert found.num_steps == 0 and len(found.approx_kl) == 1
