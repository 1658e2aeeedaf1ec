# SPDX-License-Identifier: Apache-2.0
"""`TorchPolicy`: its densities against torch.distributions, its samples, its weights."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, Normal

from rollouts.errors import SpecError
from rollouts.policy import TorchPolicy, make_action_head

Array = NDArray[Any]

DISCRETE = gymnasium.spaces.Discrete(3)
BOX = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)


class DiscreteModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(4, 3), nn.Linear(4, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(obs), self.critic(obs)


class BoxModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)
        self.log_std = nn.Parameter(torch.tensor([-0.5, 0.25]))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.actor(obs), self.log_std, self.critic(obs)[:, 0]


class FixedLogits(nn.Module):
    def __init__(self, probs: list[float]) -> None:
        super().__init__()
        self.logits = torch.tensor(probs).log()

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits.expand(len(obs), -1), torch.zeros(len(obs))


@pytest.fixture
def obs() -> Array:
    return np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)


def discrete_policy(**options: Any) -> TorchPolicy:
    torch.manual_seed(0)
    return TorchPolicy(DiscreteModule(), DISCRETE, **options)


def reference_log_prob(density: Any, action: Array) -> Array:
    log_prob: Array = density.log_prob(torch.from_numpy(action)).detach().numpy()
    return log_prob


def test_discrete_log_prob_and_value_are_those_of_the_module(obs: Array) -> None:
    policy = discrete_policy()
    out = policy.act(obs)
    logits, value = policy.module(torch.from_numpy(obs))
    expected = reference_log_prob(Categorical(logits=logits), out.action)
    assert out.action.dtype == np.int64 and out.action.shape == (16,)
    np.testing.assert_allclose(out.log_prob, expected, rtol=1e-6)
    np.testing.assert_array_equal(out.value, value.detach()[:, 0])
    np.testing.assert_array_equal(policy.value(obs), out.value)


def test_box_log_prob_is_that_of_the_sample(obs: Array) -> None:
    policy = TorchPolicy(BoxModule(), BOX)
    out = policy.act(obs)
    mean, log_std, _ = policy.module(torch.from_numpy(obs))
    density = Independent(Normal(mean, log_std.exp()), 1)
    assert out.action.dtype == np.float32 and out.action.shape == (16, 2)
    # a few float32 roundings: (action - mean) / std is not exactly the noise it was made of
    expected = reference_log_prob(density, out.action)
    np.testing.assert_allclose(out.log_prob, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", [DISCRETE, BOX], ids=["discrete", "box"])
def test_the_learner_evaluates_what_the_worker_sampled(
    space: gymnasium.Space[Any], obs: Array
) -> None:
    policy = TorchPolicy(DiscreteModule() if space is DISCRETE else BoxModule(), space)
    out = policy.act(obs)
    *params, _ = policy.module(torch.from_numpy(obs))
    log_prob, entropy = policy.head.evaluate(params, torch.from_numpy(out.action))
    density: Any = Categorical(logits=params[0])
    if space is BOX:
        density = Independent(Normal(params[0], params[1].exp()), 1)
    np.testing.assert_allclose(log_prob.detach(), out.log_prob, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy, density.entropy())
    assert log_prob.requires_grad and entropy.requires_grad


def test_actions_are_drawn_with_the_probabilities_of_the_logits() -> None:
    probs, draws = [0.7, 0.05, 0.25], 100_000
    policy = TorchPolicy(FixedLogits(probs), DISCRETE, seed=1)
    action = policy.act(np.zeros((draws, 4), np.float32)).action
    # five standard deviations of a frequency over 100 000 draws
    tolerance = 5 * np.sqrt(0.25 / draws)
    np.testing.assert_allclose(np.bincount(action) / draws, probs, atol=tolerance)


def test_an_action_of_probability_zero_is_never_drawn() -> None:
    policy = TorchPolicy(FixedLogits([0.5, 0.0, 0.5]), DISCRETE)
    out = policy.act(np.zeros((10_000, 4), np.float32))
    assert set(out.action.tolist()) == {0, 2}
    assert np.isfinite(out.log_prob).all()


def test_gaussian_samples_have_the_mean_and_deviation_of_the_module() -> None:
    module, draws = BoxModule(), 100_000
    nn.init.zeros_(module.actor.weight)
    action = TorchPolicy(module, BOX).act(np.zeros((draws, 4), np.float32)).action
    # five standard errors; the largest deviation is e^0.25 = 1.28
    bias, log_std = module.actor.bias.detach(), module.log_std.detach()
    np.testing.assert_allclose(action.mean(0), bias, atol=5 * 1.28 / np.sqrt(draws))
    np.testing.assert_allclose(action.std(0), log_std.exp(), rtol=5 / np.sqrt(2 * draws))


def test_a_discrete_space_that_starts_elsewhere_is_shifted(obs: Array) -> None:
    torch.manual_seed(0)
    space = gymnasium.spaces.Discrete(3, start=5)
    shifted = TorchPolicy(DiscreteModule(), space).act(obs)
    plain = discrete_policy().act(obs)
    np.testing.assert_array_equal(shifted.action, plain.action + 5)
    np.testing.assert_array_equal(shifted.log_prob, plain.log_prob)
    logits = torch.randn(16, 3)
    log_prob, _ = make_action_head(space).evaluate([logits], torch.from_numpy(shifted.action))
    expected, _ = make_action_head(DISCRETE).evaluate([logits], torch.from_numpy(plain.action))
    torch.testing.assert_close(log_prob, expected)


def test_the_same_seed_draws_the_same_actions_whatever_else_draws(obs: Array) -> None:
    first = [discrete_policy(seed=(3, 1)).act(obs).action for _ in range(2)]
    policy = discrete_policy(seed=(3, 1))
    torch.rand(10)
    np.random.default_rng().random(10)
    for action in (*first, policy.act(obs).action):
        np.testing.assert_array_equal(action, first[0])


def test_workers_with_different_seeds_draw_different_actions(obs: Array) -> None:
    many = np.repeat(obs, 10, axis=0)
    draws = [discrete_policy(seed=(3, worker)).act(many).action for worker in range(3)]
    assert len({draw.tobytes() for draw in draws}) == 3


def test_weights_are_a_snapshot_that_training_does_not_change() -> None:
    policy = discrete_policy()
    weights = policy.weights()
    before = weights["actor.weight"].copy()
    with torch.no_grad():
        policy.module.actor.weight.add_(1)  # type: ignore[union-attr, operator]
    np.testing.assert_array_equal(weights["actor.weight"], before)


def test_loading_weights_makes_two_policies_equal(obs: Array) -> None:
    source, target = discrete_policy(seed=4), TorchPolicy(DiscreteModule(), DISCRETE, seed=4)
    assert (source.value(obs) != target.value(obs)).any()
    target.load_weights(source.weights(), version=17)
    assert target.policy_version == 17
    np.testing.assert_array_equal(source.act(obs).action, target.act(obs).action)


def test_weights_of_another_module_are_refused() -> None:
    with pytest.raises(SpecError, match="log_std"):
        discrete_policy().load_weights(TorchPolicy(BoxModule(), BOX).weights(), version=1)


def test_read_only_arrays_are_read_without_warning_or_change(obs: Array) -> None:
    policy = discrete_policy()
    weights = policy.weights()
    for array in (obs, *weights.values()):
        array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.load_weights(weights, version=1)
        policy.act(obs)
        policy.value(obs[::2])


def test_uint8_observations_reach_the_module_as_they_are() -> None:
    class Pixels(nn.Module):
        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            assert obs.dtype == torch.uint8
            total = obs.float().flatten(1).sum(1)
            return total[:, None].expand(-1, 3), total

    obs = np.arange(2 * 4 * 3 * 3, dtype=np.uint8).reshape(2, 4, 3, 3)
    value = TorchPolicy(Pixels(), DISCRETE).act(obs).value
    np.testing.assert_array_equal(value, obs.sum((1, 2, 3)))


def test_results_stay_as_they_are_when_the_policy_acts_again(obs: Array) -> None:
    policy = discrete_policy()
    out = policy.act(obs)
    action, value = out.action.copy(), out.value.copy()
    policy.act(-obs)
    np.testing.assert_array_equal(out.action, action)
    np.testing.assert_array_equal(out.value, value)


def test_other_action_spaces_are_refused_with_advice() -> None:
    with pytest.raises(SpecError, match="MultiDiscrete from 0 on or Box of floats"):
        make_action_head(gymnasium.spaces.MultiBinary(2))
