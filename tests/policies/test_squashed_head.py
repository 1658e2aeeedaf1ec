# SPDX-License-Identifier: Apache-2.0
"""Squashed Gaussians with the bounds of an action space: torch's head, and native code's."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform

import rollouts
from rollouts.collecting.policy_engine import native_of
from rollouts.errors import SpecError
from rollouts.policies.native import Head, NativePolicy
from rollouts.policy import SquashedGaussianHead, TorchPolicy

UNEVEN = gymnasium.spaces.Box(np.float32([-3, 0.1, -2]), np.float32([1, 0.7, 2]))
UNIT = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
ROWS = 20_000


class Gaussian(nn.Module):
    """Mean and log_std of one layer each, and a value."""

    def __init__(self, inputs: int, size: int, spread: float = 0.5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mean, self.value = nn.Linear(inputs, size), nn.Linear(inputs, 1)
        self.log_std = nn.Linear(inputs, size)
        for layer in (self.mean, self.log_std):
            nn.init.normal_(layer.weight, std=spread)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        obs = obs.float()
        return self.mean(obs), self.log_std(obs).clamp(-5, 2), self.value(obs)


def exact(params: Any, low: Any, high: Any) -> TransformedDistribution:
    """The distribution as torch has it, in double."""
    mean, log_std = (each.double() for each in params)
    low, high = torch.as_tensor(low).double(), torch.as_tensor(high).double()
    scaled = AffineTransform((low + high) / 2, (high - low) / 2, event_dim=1)
    gaussian = Independent(Normal(mean, log_std.exp()), 1)
    return TransformedDistribution(gaussian, [TanhTransform(), scaled])


def inner(action: torch.Tensor, head: SquashedGaussianHead) -> torch.Tensor:
    """Marks rows where the inverse of tanh, which the reference takes, keeps its digits."""
    return head.unit(action).abs().amax(-1) < 0.99


def observed(num_rows: int = ROWS, size: int = 4) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(num_rows, size)).astype(np.float32)


def test_torchs_head_has_the_density_of_torchs_distribution() -> None:
    head, module = SquashedGaussianHead.of(UNEVEN), Gaussian(4, 3)
    with torch.no_grad():
        *params, _ = module(torch.from_numpy(observed()))
        action, log_prob = head.sample(params, torch.Generator().manual_seed(1))
        again, entropy = head.evaluate(params, action)
    assert ((action >= head.low) & (action <= head.high)).all()
    rows = inner(action, head)
    assert rows.float().mean() > 0.2
    expected = exact(params, UNEVEN.low, UNEVEN.high).log_prob(action.double())[rows].float()
    # a float32 action near a bound says where the sample was to 1e-5 of it
    torch.testing.assert_close(log_prob[rows], expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(again[rows], expected, rtol=1e-3, atol=1e-3)
    assert again.isfinite().all()
    torch.testing.assert_close(
        entropy, Independent(Normal(params[0], params[1].exp()), 1).entropy()
    )
    torch.testing.assert_close(head.most_likely(params), head.scaled(params[0].tanh()))


def test_native_actions_are_scaled_and_their_density_with_them() -> None:
    module, obs = Gaussian(4, 3), observed(500)
    given: dict[str, Any] = {"head": Head("tanh_gaussian"), "seed": 3}
    unit = NativePolicy.from_torch(module, UNIT, 4, **given).act(obs)
    scaled = NativePolicy.from_torch(module, UNEVEN, 4, **given).act(obs)
    half, middle = (UNEVEN.high - UNEVEN.low) / 2, (UNEVEN.high + UNEVEN.low) / 2
    np.testing.assert_allclose(scaled.action, middle + half * unit.action, rtol=0, atol=3e-7)
    expected = unit.log_prob - np.log(half.astype(np.float64)).sum()
    np.testing.assert_allclose(scaled.log_prob, expected, rtol=2e-6, atol=2e-6)
    # without bounds of the space they are those of the tanh
    free = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    np.testing.assert_array_equal(
        NativePolicy.from_torch(module, free, 4, **given).act(obs).action, unit.action
    )


def test_native_actions_never_leave_the_bounds() -> None:
    odd = gymnasium.spaces.Box(np.float32([-0.1, 0.3]), np.float32([0.7, 1 / 3]))
    policy = NativePolicy.from_torch(Gaussian(4, 2, spread=9), odd, 4, head=Head("tanh_gaussian"))
    action = policy.act(observed()).action
    assert (action >= odd.low).all() and (action <= odd.high).all()
    # to the last bit but one
    np.testing.assert_allclose(action.min(0), odd.low, rtol=2e-7)
    np.testing.assert_allclose(action.max(0), odd.high, rtol=2e-7)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "InvertedPendulum-v5"])
def test_rollouts_of_a_torch_policy_with_that_head(env_id: str) -> None:
    """Native code gives torch's densities, and the same bits for any number of threads."""
    batches = []
    for num_threads in (1, 2, 4):
        with rollouts.make_vec(
            env_id, 70, seed=3, num_threads=num_threads, autoreset_mode="same_step"
        ) as env:
            space: Any = env.single_action_space
            policy = TorchPolicy(Gaussian(env.single_observation_space.shape[0], 1), space, seed=5)  # type: ignore[index]
            policy.head = head = SquashedGaussianHead.of(space)
            collector = rollouts.Collector(env, policy, 20, engine="native")
            batches.append(collector.collect())
    first = batches[0]
    for batch in batches[1:]:
        for name in ("obs", "action", "log_prob", "value", "reward"):
            np.testing.assert_array_equal(getattr(batch, name), getattr(first, name), name)
    assert (np.abs(first.action) <= space.high).all()
    assert np.abs(first.action).max() > 0.9 * space.high.max()
    with torch.no_grad():
        *params, value = policy.module(torch.from_numpy(first.obs.copy()).flatten(0, 1))
    action = torch.from_numpy(first.action.copy()).flatten(0, 1)
    np.testing.assert_allclose(first.value.ravel(), value[:, 0], rtol=1e-5, atol=1e-5)
    rows = inner(action, head)
    expected = exact(params, space.low, space.high).log_prob(action.double())[rows]
    found = torch.from_numpy(first.log_prob.ravel().copy())[rows]
    # as above
    torch.testing.assert_close(found, expected.float(), rtol=1e-3, atol=1e-3)


def test_both_engines_draw_from_the_same_distribution() -> None:
    module, obs = Gaussian(4, 3), np.repeat(observed(1), ROWS, 0)
    policy = TorchPolicy(module, UNEVEN, seed=5)
    policy.head = SquashedGaussianHead.of(UNEVEN)
    space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    native, torchs = native_of(policy, space).act(obs).action, policy.act(obs).action
    shares = np.linspace(0.05, 0.95, 10)
    for d in range(3):
        # with 20 000 of each, a difference of shares of 0.02 is four standard errors
        below = [(native[:, d] < limit).mean() for limit in np.quantile(torchs[:, d], shares)]
        np.testing.assert_allclose(below, shares, atol=0.02)


def test_spaces_that_cannot_be_squashed_to_are_refused() -> None:
    for space in (gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(0, 9, (2,), np.int32)):
        with pytest.raises(SpecError, match="expected a Box of floats"):
            SquashedGaussianHead.of(space)
    for high in (np.inf, -1.0):
        space = gymnasium.spaces.Box(-1.0, high, (2,), np.float32)
        with pytest.raises(SpecError, match="expected finite bounds, low below high"):
            SquashedGaussianHead.of(space)
    flat = gymnasium.spaces.Box(-1.0, -1.0, (3,), np.float32)
    with pytest.raises(SpecError, match="expected low below high for each number"):
        NativePolicy.from_torch(Gaussian(4, 3), flat, 4, head=Head("tanh_gaussian"))
    fewer = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    with pytest.raises(SpecError, match=r"bounds have shape \(2, 2\), expected \(2, 3\)"):
        NativePolicy.from_torch(Gaussian(4, 3), fewer, 4, head=Head("tanh_gaussian"))


def test_a_head_of_other_bounds_stays_with_torch() -> None:
    policy = TorchPolicy(Gaussian(4, 3), UNIT)
    policy.head = SquashedGaussianHead.of(UNEVEN)
    with pytest.raises(SpecError, match=r"squashes actions to \[-3.*expected the bounds of Box"):
        native_of(policy, gymnasium.spaces.Box(-1, 1, (4,), np.float32))
