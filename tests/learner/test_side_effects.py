# SPDX-License-Identifier: Apache-2.0
"""Modules that their own forward changes are refused, as native steps would not change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rollouts.errors import SpecError
from rollouts.learner.loss_learner import LossLearner
from rollouts.learner.native_learner import NativeLearner
from rollouts.learner.row_losses import DqnLoss
from rollouts.policies.native import NativePolicy

SIZE = 3


def assign(layer: Any) -> None:
    layer.count = layer.count + 1


def write(layer: Any) -> None:
    with torch.no_grad():
        layer.count += 1


def count(layer: Any) -> None:
    layer.calls += 1


def add(layer: Any) -> None:
    setattr(layer, f"call{len(vars(layer))}", 1.0)


CHANGES: dict[str, Callable[[Any], None]] = {
    "count": assign,
    "calls": count,
    "call": add,
}


class Changing(nn.Module):
    """Values of two actions, which do not depend on what forward changes."""

    def __init__(self, change: Callable[[Any], None]) -> None:
        super().__init__()
        self.layer = nn.Linear(SIZE, 2)
        self.register_buffer("count", torch.full((), torch.nan))
        self.calls, self.change = 0, change

    def forward(self, obs: Tensor) -> Tensor:
        self.change(self)
        return self.layer(obs)


class Twice(nn.Module):
    """Logits and a value."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first, self.value = first, nn.Linear(SIZE, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(obs), self.value(obs)[:, 0]


def state_of(network: nn.Module) -> tuple[Any, ...]:
    places = {name: value for name, value in vars(network).items() if name[0] != "_"}
    return places, dict(network._buffers), network.count.item()


@pytest.mark.parametrize(("name", "change"), CHANGES.items(), ids=CHANGES)
def test_a_network_that_forward_changes_is_refused_and_is_what_it_was(
    name: str, change: Callable[[Any], None]
) -> None:
    network = Changing(change)
    network.count.fill_(2.0)
    before = state_of(network)
    loss = DqnLoss(network, Changing(lambda layer: None), (SIZE,), 2)
    optimizer = torch.optim.Adam(network.parameters())
    with pytest.raises(SpecError, match=f"forward changes .*{name}"):
        LossLearner(loss, optimizer)
    assert state_of(network) == before


def test_a_buffer_that_forward_writes_to_has_its_numbers_again() -> None:
    network = Changing(write)
    network.count.fill_(2.0)
    buffer = network.count
    loss = DqnLoss(network, Changing(lambda layer: None), (SIZE,), 2)
    with pytest.raises(SpecError):
        LossLearner(loss, torch.optim.Adam(network.parameters()))
    assert network.count is buffer and buffer.item() == 2.0


@pytest.mark.parametrize(("name", "change"), CHANGES.items(), ids=CHANGES)
def test_a_policy_that_forward_changes_is_refused(name: str, change: Callable[[Any], None]) -> None:
    module = Twice(Changing(change))
    policy = NativePolicy.from_torch(module, spaces.Discrete(2))
    before = state_of(module.first)
    with pytest.raises(SpecError, match=f"forward changes .*{name}"):
        NativeLearner(policy, torch.optim.Adam(module.parameters()))
    places, buffers, _ = state_of(module.first)
    # a NaN is not equal to itself
    assert places == before[0] and buffers["count"] is before[1]["count"]


def test_what_forward_makes_once_is_no_change() -> None:
    def make(layer: Any) -> None:
        if not hasattr(layer, "made"):
            layer.made = torch.ones(2)

    network = Changing(make)
    loss = DqnLoss(network, Changing(make), (SIZE,), 2)
    LossLearner(loss, torch.optim.Adam(network.parameters()))
    assert hasattr(network, "made")
