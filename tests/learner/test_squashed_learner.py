# SPDX-License-Identifier: Apache-2.0
"""`NativeLearner` of a squashed Gaussian, beside torch's distributions in double."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform

from rollouts.learner.native_learner import (
    CloningLoss,
    NativeLearner,
    PolicyGradientLoss,
    PpoLoss,
)
from rollouts.policies.native import Head, NativePolicy
from rollouts.policy import SquashedGaussianHead

pytestmark = pytest.mark.usefixtures("one_torch_thread")

UNEVEN = gymnasium.spaces.Box(np.array([-3, 0.1], np.float32), np.array([1, 0.7], np.float32))
ENDLESS = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
OBS, ROWS = 5, 70


class Agent(nn.Module):
    """Mean and log_std of two actions, and a value."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.trunk = nn.Sequential(nn.Linear(OBS, 16), nn.Tanh())
        self.mean, self.log_std, self.value = nn.Linear(16, 2), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.trunk(obs)
        return self.mean(features), self.log_std(features) - 0.5, self.value(features)[:, 0]


def evaluate(module: nn.Module, space: Any, obs: Tensor, action: Tensor) -> tuple[Tensor, ...]:
    """Log-density, the Gaussian's entropy, and the value, in double."""
    mean, log_std, value = module(obs)
    gaussian: Any = Independent(Normal(mean, log_std.exp()), 1)
    steps: list[Any] = [TanhTransform()]
    if np.isfinite(space.low).all():
        low, high = torch.tensor(space.low).double(), torch.tensor(space.high).double()
        steps.append(AffineTransform((low + high) / 2, (high - low) / 2, event_dim=1))
    squashed: Any = TransformedDistribution(gaussian, steps)
    return squashed.log_prob(action), gaussian.entropy(), value


def drawn(space: Any, seed: int = 1) -> tuple[Agent, dict[str, Any]]:
    """An agent, and rows of actions within the bounds."""
    module, random = Agent(), np.random.default_rng(seed)
    unit = np.tanh(random.normal(size=(ROWS, 2)))
    if np.isfinite(space.low).all():
        unit = (space.low + space.high) / 2 + unit * (space.high - space.low) / 2
    rows = {
        "obs": random.normal(size=(ROWS, OBS)).astype(np.float32),
        "action": unit.astype(np.float32),
        "advantage": random.normal(size=ROWS).astype(np.float32),
        "target": random.normal(size=ROWS).astype(np.float32),
    }
    with torch.no_grad():
        exact = copy.deepcopy(module).double()
        log_prob, *_ = evaluate(exact, space, *doubles(rows, "obs", "action"))
    rows["log_prob"] = (log_prob.numpy() - random.choice([-0.4, -0.1, 0.1, 0.4], ROWS)).astype(
        np.float32
    )
    return module, rows


def doubles(rows: dict[str, Any], *names: str) -> list[Tensor]:
    return [torch.from_numpy(rows[name]).double() for name in names]


def learner_of(module: nn.Module, space: Any) -> NativeLearner:
    policy = NativePolicy.from_torch(module, space, head=Head("tanh_gaussian"))
    return NativeLearner(policy, torch.optim.SGD(module.parameters(), lr=0.1))


def loss_of(loss: Any, rows: dict[str, Any], module: nn.Module, space: Any) -> tuple[Any, Any]:
    """The policy's loss, and the whole one."""
    log_prob, entropy, value = evaluate(module, space, *doubles(rows, "obs", "action"))
    if isinstance(loss, CloningLoss):
        policy, value_loss = -log_prob.mean(), torch.zeros(())
    else:
        advantage, target, old = doubles(rows, "advantage", "target", "log_prob")
        value_loss = loss.value_weight * (value - target).square().mean()
        if isinstance(loss, PpoLoss):
            ratio = (log_prob - old).exp()
            bounded = ratio.clamp(1 - loss.clip_range, 1 + loss.clip_range)
            policy = -torch.min(ratio * advantage, bounded * advantage).mean()
        else:
            policy = -(advantage * log_prob).mean()
    return policy, policy + value_loss - loss.entropy_weight * entropy.mean()


@pytest.mark.parametrize("space", [UNEVEN, ENDLESS], ids=["bounds", "no bounds"])
@pytest.mark.parametrize(
    "loss",
    [
        PpoLoss(normalize_advantage=False, entropy_weight=0.02),
        PolicyGradientLoss(entropy_weight=0.02),
        CloningLoss(entropy_weight=0.02),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_a_step_is_that_of_autograd(loss: Any, space: Any) -> None:
    module, rows = drawn(space)
    exact = copy.deepcopy(module).double()
    policy_loss, total = loss_of(loss, rows, exact, space)
    expected = torch.autograd.grad(total, list(exact.parameters()), allow_unused=True)
    before = copy.deepcopy(module)
    if isinstance(loss, CloningLoss):
        rows = {name: rows[name] for name in ("obs", "action")}
    found = learner_of(module, space).update(rows, np.arange(ROWS), minibatch=ROWS, loss=loss)
    np.testing.assert_allclose(found.policy_loss, [policy_loss.item()], rtol=1e-5)
    largest = max(each.abs().max().item() for each in expected if each is not None)
    for now, was, gradient in zip(module.parameters(), before.parameters(), expected, strict=True):
        step = torch.zeros_like(was).double() if gradient is None else 0.1 * gradient
        torch.testing.assert_close(
            was.double() - now.double(), step, rtol=0, atol=2e-5 * 0.1 * largest
        )


@pytest.mark.parametrize("space", [UNEVEN, ENDLESS], ids=["bounds", "no bounds"])
def test_actions_that_it_drew_have_the_density_that_they_were_drawn_with(space: Any) -> None:
    module = Agent()
    policy = NativePolicy.from_torch(module, space, OBS, head=Head("tanh_gaussian"), seed=4)
    obs = np.random.default_rng(3).normal(size=(500, OBS)).astype(np.float32)
    drawn_ones = policy.act(obs)
    found = learner_of(module, space).evaluate({"obs": obs, "action": drawn_ones.action})
    np.testing.assert_allclose(found.log_prob, drawn_ones.log_prob, atol=2e-3)


def test_actions_at_a_bound_count_as_torchs_head_has_them() -> None:
    module, rows = drawn(UNEVEN)
    rows["action"][::3] = UNEVEN.low
    rows["action"][1::3] = UNEVEN.high
    found = learner_of(module, UNEVEN).evaluate({name: rows[name] for name in ("obs", "action")})
    with torch.no_grad():
        mean, log_std, _ = module(torch.from_numpy(rows["obs"]))
        expected, entropy = SquashedGaussianHead.of(UNEVEN).evaluate(
            (mean, log_std), torch.from_numpy(rows["action"])
        )
    np.testing.assert_allclose(found.log_prob, expected, rtol=1e-4)
    np.testing.assert_allclose(found.entropy, entropy, rtol=1e-5)


def test_the_divergence_is_that_of_the_gaussians() -> None:
    module, rows = drawn(UNEVEN)
    with torch.no_grad():
        mean, log_std, _ = module(torch.from_numpy(rows["obs"]))
    was = Normal(mean + 0.3, (log_std + 0.1).exp())
    rows["inputs"] = torch.cat([mean + 0.3, log_std + 0.1], 1).numpy()
    expected = torch.distributions.kl_divergence(was, Normal(mean, log_std.exp())).sum(1).mean()
    loss = PpoLoss(kl_weight=0.5)
    found = learner_of(module, UNEVEN).update(rows, np.arange(ROWS), minibatch=ROWS, loss=loss)
    np.testing.assert_allclose(found.kl, [expected.item()], rtol=1e-4)
