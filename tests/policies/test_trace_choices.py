# SPDX-License-Identifier: Apache-2.0
"""Modules that mask actions: comparisons, truth values and what is chosen by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from program_checks import assert_same_answers, new_weights
from torch import Tensor, nn

from rollouts.errors import SpecError
from rollouts.policies.native import NativePolicy
from rollouts.policies.program import Op, Program
from rollouts.policies.trace import difference, tolerance, trace

ACTIONS = 4
# features, and then a one for each action that is allowed
SPACE = spaces.Box(0, 1, (3 + ACTIONS,), np.float32)
LOWEST = float(torch.finfo(torch.float32).min)


class Masked(nn.Module):
    """Logits that a function of the mask changes, and a value."""

    def __init__(self, change: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.actor, self.critic, self.change = nn.Linear(3, ACTIONS), nn.Linear(3, 1), change

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        seen, mask = obs[:, :3], obs[:, 3:]
        return self.change(self.actor(seen), mask), self.critic(seen)


def written(logits: Tensor, mask: Tensor) -> Tensor:
    logits[mask < 0.5] = -1e8
    return logits


def filled_in_place(logits: Tensor, mask: Tensor) -> Tensor:
    return logits.masked_fill_(~mask.bool(), -1e8)


MASKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "where": lambda x, m: torch.where(m > 0, x, -1e8),
    "where tensor": lambda x, m: torch.where(m.bool(), x, torch.tensor(-1e8)),
    "where method": lambda x, m: x.where(m != 0, torch.full_like(x, -1e8)),
    "where infinity": lambda x, m: torch.where(m.to(torch.bool), x, -torch.inf),
    "masked_fill": lambda x, m: x.masked_fill(m == 0, LOWEST),
    "masked_fill infinity": lambda x, m: x.masked_fill(m < 0.5, -torch.inf),
    "masked_fill_": filled_in_place,
    "setitem": written,
    "of two": lambda x, m: x.masked_fill((m <= 0) | ((m >= 0.3) & ~(m.gt(0.6))), -1e9),
    "logical": lambda x, m: x.masked_fill(
        torch.logical_not(torch.logical_or(m.ge(1), torch.logical_and(m > 0, x > 0))), -1e9
    ),
    "sum": lambda x, m: x + torch.clamp(torch.log(m), min=LOWEST),
    "product": lambda x, m: x * (m > 0) - 1e8 * (1 - (m > 0).float()),
    "registers": lambda x, m: torch.where(x > m, x, m) + torch.where(x.le(m), 0.0, x),
    "one for all": lambda x, m: torch.where(m[:, :1].lt(x), x, m.sum(-1, keepdim=True)),
    "ends": lambda x, m: torch.cat([x[:, :2] > 0, m[:, 2:].bool()], 1).float() * x,
    "not equal": lambda x, m: x * (m.ne(0)) + x * (m != 1).double().float(),
}


@pytest.mark.parametrize("name", MASKS)
def test_masked_logits_are_torchs(name: str) -> None:
    module = Masked(MASKS[name])
    program = trace(module, SPACE)
    assert_same_answers(program, module, SPACE, num_rows=40)
    new_weights(module)
    assert_same_answers(program, module, SPACE, num_rows=40)


@pytest.mark.parametrize("name", MASKS)
def test_native_code_computes_what_torch_does(name: str) -> None:
    module = Masked(MASKS[name])
    native = NativePolicy.from_torch(module, spaces.Discrete(ACTIONS), SPACE)
    obs = np.random.default_rng(1).random((50, 7)).astype(np.float32)
    obs[:, 3:] = np.round(obs[:, 3:])
    with torch.no_grad():
        logits, value = module(torch.from_numpy(obs.copy()))
    found = native.module_outputs(obs)
    np.testing.assert_allclose(found[0], logits.numpy(), atol=1e-5, rtol=1e-6)
    np.testing.assert_allclose(found[1], value.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", ["where", "where infinity", "masked_fill", "sum"])
def test_an_action_that_is_not_allowed_is_never_drawn(name: str) -> None:
    module = Masked(MASKS[name])
    native = NativePolicy.from_torch(module, spaces.Discrete(ACTIONS), SPACE)
    rng = np.random.default_rng(2)
    obs = rng.random((5000, 7)).astype(np.float32)
    obs[:, 3:] = rng.permuted(np.tile([1, 1, 0, 0], (5000, 1)), axis=1)
    keys = np.zeros((3, 5000), np.uint32)
    keys[0] = np.arange(5000)
    action, log_prob, entropy, *_ = native.refresh().act(obs, keys)
    assert (obs[np.arange(5000), 3 + action] == 1).all()
    assert {*action.tolist()} == {0, 1, 2, 3}
    with torch.no_grad():
        logits, _ = module(torch.from_numpy(obs.copy()))
    exact = torch.distributions.Categorical(logits=logits)
    np.testing.assert_allclose(log_prob, exact.log_prob(torch.from_numpy(action)), atol=1e-5)
    allowed = torch.from_numpy(obs[:, 3:]) > 0
    entropies = -(exact.probs * exact.logits.masked_fill(~allowed, 0)).sum(-1)
    np.testing.assert_allclose(entropy, entropies, atol=1e-5)


def test_what_masks_does_not_hide_a_difference() -> None:
    """A tolerance of the largest number would be one of millions."""
    calls: list[int] = []

    def changing(logits: Tensor, mask: Tensor) -> Tensor:
        calls.append(1)
        return torch.where(mask > 0.5, logits + len(calls), -1e9)

    with pytest.raises(SpecError, match=r"output 0 of the module differs by [01]\.\d+ from"):
        trace(Masked(changing), SPACE)


def test_the_same_infinities_do_not_differ() -> None:
    theirs = np.array([[-np.inf, 1.0, -1e9]], np.float32)
    ours = np.array([[-np.inf, 1.5, -1e9]], np.float32)
    assert difference(theirs, ours).tolist() == [[0, 0.5, 0]]
    assert tolerance(theirs, ours, ours) == 1e-5
    assert np.isinf(difference(theirs, np.zeros_like(ours))[0, 0])


def test_a_choice_is_a_comparison_and_one_operation() -> None:
    program: Program = trace(Masked(MASKS["where"]), SPACE)
    kinds = [op.kind for op in program.ops if op.kind not in ("slice", "literal", "linear")]
    assert kinds == ["greater", "where"]
    (chosen,) = (op for op in program.ops if op.kind == "where")
    assert isinstance(chosen, Op) and chosen.size == ACTIONS


def test_whole_numbers_are_compared() -> None:
    class Tile(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critic = nn.Linear(1, 1)

        def forward(self, obs: Tensor) -> tuple[Any, ...]:
            column = obs[:, None]
            logits = torch.cat([(column == 3).float(), (column > 5).float()], 1)
            return logits, self.critic(column.float())

    module = Tile()
    assert_same_answers(trace(module, spaces.Discrete(9)), module, spaces.Discrete(9), num_rows=40)
