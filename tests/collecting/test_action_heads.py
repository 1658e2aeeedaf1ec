# SPDX-License-Identifier: Apache-2.0
"""Heads of policies against torch's own distributions: densities, entropies, gradients."""

from __future__ import annotations

from math import inf
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal

from rollouts.errors import SpecError
from rollouts.policy import CategoricalHead, GaussianHead, as_tensor, make_action_head

INT64, FLOAT32 = np.dtype(np.int64), np.dtype(np.float32)
ROWS = 7


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=generator(seed))


@pytest.mark.parametrize("start", [0, 3, -2])
@pytest.mark.parametrize("num_actions", [1, 2, 6])
def test_discrete_densities_are_those_of_torch(start: int, num_actions: int) -> None:
    logits = 3 * normal(ROWS, num_actions)
    head = CategoricalHead(start, INT64)
    action = torch.arange(ROWS) % num_actions + start
    log_prob, entropy = head.evaluate((logits,), action)
    expected = Categorical(logits=logits)
    torch.testing.assert_close(log_prob, expected.log_prob(action - start))
    torch.testing.assert_close(entropy, expected.entropy())
    assert log_prob.shape == entropy.shape == (ROWS,)


@pytest.mark.parametrize("start", [0, 3])
def test_a_discrete_sample_comes_with_its_own_density(start: int) -> None:
    logits = 3 * normal(200, 4)
    head = CategoricalHead(start, INT64)
    action, log_prob = head.sample((logits,), generator())
    assert action.shape == log_prob.shape == (200,)
    assert set(action.tolist()) == set(range(start, start + 4))
    torch.testing.assert_close(log_prob, head.evaluate((logits,), action)[0])


def test_actions_of_any_integer_type_are_evaluated() -> None:
    logits = normal(ROWS, 3)
    head = CategoricalHead(0, INT64)
    action = torch.arange(ROWS) % 3
    expected = head.evaluate((logits,), action)[0]
    for dtype in (torch.uint8, torch.int32):
        assert torch.equal(head.evaluate((logits,), action.to(dtype))[0], expected)


def test_what_is_impossible_adds_nothing_to_the_entropy() -> None:
    logits = normal(ROWS, 4)
    logits[:, 1] = -inf
    allowed = logits[:, [0, 2, 3]]
    _, entropy = CategoricalHead(0, INT64).evaluate((logits,), torch.zeros(ROWS))
    torch.testing.assert_close(entropy, Categorical(logits=allowed).entropy())


def test_gradients_of_a_masked_policy_are_numbers() -> None:
    logits = normal(ROWS, 3).requires_grad_()
    masked = torch.where(torch.tensor([False, True, False]), -inf, logits)
    log_prob, entropy = CategoricalHead(0, INT64).evaluate((masked,), torch.zeros(ROWS))
    (log_prob.sum() + entropy.sum()).backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all() and (logits.grad[:, 1] == 0).all()


def test_the_most_likely_action_is_that_of_the_greatest_logit() -> None:
    logits = torch.tensor([[0.0, 5.0, 1.0], [-3.0, -2.0, -1.0]])
    assert CategoricalHead(0, INT64).most_likely((logits,)).tolist() == [1, 2]
    assert CategoricalHead(4, INT64).most_likely((logits,)).tolist() == [5, 6]


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 2)])
@pytest.mark.parametrize("shared", [True, False])
def test_continuous_densities_are_those_of_torch(shape: tuple[int, ...], shared: bool) -> None:
    mean = normal(ROWS, *shape)
    log_std = normal(*shape, seed=2) if shared else normal(ROWS, *shape, seed=2)
    action = normal(ROWS, *shape, seed=3)
    log_prob, entropy = GaussianHead(FLOAT32).evaluate((mean, log_std), action)
    expected = Independent(Normal(mean, log_std.exp().expand_as(mean)), len(shape))
    torch.testing.assert_close(log_prob, expected.log_prob(action))
    torch.testing.assert_close(entropy, expected.entropy())


@pytest.mark.parametrize("shared", [True, False])
def test_a_continuous_sample_comes_with_its_own_density(shared: bool) -> None:
    mean = normal(ROWS, 2)
    log_std = normal(2, seed=2) if shared else normal(ROWS, 2, seed=2)
    head = GaussianHead(FLOAT32)
    action, log_prob = head.sample((mean, log_std), generator())
    assert action.shape == (ROWS, 2) and log_prob.shape == (ROWS,)
    # the density is found from the noise, which the rounded action has not quite
    torch.testing.assert_close(
        log_prob, head.evaluate((mean, log_std), action)[0], rtol=1e-4, atol=1e-4
    )


def test_samples_leave_the_module_s_outputs_as_they_were() -> None:
    mean, log_std = normal(ROWS, 2), normal(ROWS, 2, seed=2)
    kept = mean.clone(), log_std.clone()
    GaussianHead(FLOAT32).sample((mean, log_std), generator())
    assert torch.equal(mean, kept[0]) and torch.equal(log_std, kept[1])
    logits, before = normal(ROWS, 3), normal(ROWS, 3)
    CategoricalHead(0, INT64).sample((logits,), generator())
    assert torch.equal(logits, before)


def test_the_most_likely_continuous_action_is_the_mean() -> None:
    mean = normal(ROWS, 2)
    assert torch.equal(GaussianHead(FLOAT32).most_likely((mean, normal(2))), mean)


@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_the_generator_alone_decides_the_sample(kind: str) -> None:
    head: Any = CategoricalHead(0, INT64) if kind == "discrete" else GaussianHead(FLOAT32)
    params = (normal(50, 4),) if kind == "discrete" else (normal(50, 4), torch.zeros(4))
    torch.manual_seed(1)
    first, _ = head.sample(params, generator(7))
    torch.manual_seed(2)
    assert torch.equal(first, head.sample(params, generator(7))[0])
    assert not torch.equal(first, head.sample(params, generator(8))[0])


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(3), CategoricalHead(0, INT64)),
        (spaces.Discrete(3, start=5), CategoricalHead(5, INT64)),
        (spaces.Box(-1, 1, (2,), np.float32), GaussianHead(FLOAT32)),
        (spaces.Box(-1, 1, (2,), np.float64), GaussianHead(np.dtype(np.float64))),
    ],
)
def test_a_space_has_its_head(space: gymnasium.Space[Any], expected: Any) -> None:
    assert make_action_head(space) == expected


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 9, (2,), np.int64),
        spaces.MultiDiscrete([2, 2], start=[1, 0]),
        spaces.MultiBinary(2),
    ],
)
def test_a_space_without_a_head_is_told_what_to_write(space: gymnasium.Space[Any]) -> None:
    with pytest.raises(SpecError, match="or Box of floats: write a class"):
        make_action_head(space)


def test_tensors_share_the_memory_of_their_arrays(recwarn: pytest.WarningsRecorder) -> None:
    array = np.zeros(3, np.float32)
    as_tensor(array)[1] = 5
    assert array.tolist() == [0, 5, 0]
    array.flags.writeable = False
    tensor = as_tensor(array)
    assert tensor.data_ptr() == array.ctypes.data
    assert len(recwarn) == 0
