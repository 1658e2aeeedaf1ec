# SPDX-License-Identifier: Apache-2.0
"""Heads of MultiDiscrete spaces, torch's and native code's, against torch's distributions."""

from __future__ import annotations

import hashlib
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from forked import run_forked
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical

import rollouts
from rollouts import _native
from rollouts.collecting.policy_engine import native_of
from rollouts.errors import SpecError
from rollouts.policies.native import Head, NativePolicy
from rollouts.policy import MultiCategoricalHead, TorchPolicy, make_action_head

NVEC = (4, 1, 3)
SPACE = spaces.MultiDiscrete(NVEC)


class Agent(nn.Module):
    """Logits of all elements and a value."""

    def __init__(self, outputs: int = sum(NVEC)) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.actor, self.critic = nn.Linear(5, outputs), nn.Linear(5, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(obs), self.critic(obs)


def observations(rows: int) -> Any:
    return np.random.default_rng(1).normal(size=(rows, 5)).astype(np.float32) * 3


def keys_of(rows: int) -> Any:
    keys = np.zeros((3, rows), np.uint32)
    keys[0], keys[2] = np.arange(rows) % 1000, np.arange(rows) // 1000
    return keys


def of_each(logits: Tensor) -> list[Categorical]:
    return [Categorical(logits=part) for part in logits.split(NVEC, -1)]


def densities(logits: Tensor, action: Any) -> tuple[Tensor, Tensor]:
    """Log-density and entropy by torch's own distributions."""
    parts = of_each(logits)
    log_prob = sum(p.log_prob(torch.as_tensor(action[:, i])) for i, p in enumerate(parts))
    return torch.as_tensor(log_prob), torch.as_tensor(sum(p.entropy() for p in parts))


def assert_drawn(action: Any, logits: Tensor) -> None:
    """Each element has its probabilities, and so have pairs: elements are independent."""
    first, _, last = (part.probs.numpy()[0] for part in of_each(logits))
    assert (action[:, 1] == 0).all()
    expected = np.outer(first, last).ravel() * len(action)
    counts = np.bincount(action[:, 0] * 3 + action[:, 2], minlength=12)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 31.3  # eleven degrees of freedom: exceeded once in a thousand seeds


def test_native_densities_and_entropies_are_torchs() -> None:
    module, obs = Agent(), observations(50)
    native = NativePolicy.from_torch(module, SPACE)
    action, log_prob, entropy, logits, _ = native.refresh().act(obs, keys_of(50))
    assert action.shape == (50, 3) and action.dtype == np.int64
    expected = densities(torch.from_numpy(logits), action)
    np.testing.assert_allclose(log_prob, expected[0].numpy(), atol=5e-6)
    np.testing.assert_allclose(entropy, expected[1].numpy(), atol=5e-6)
    with torch.no_grad():
        np.testing.assert_allclose(logits, module(torch.from_numpy(obs))[0].numpy(), atol=1e-5)


def test_native_samples_have_their_probabilities() -> None:
    native = NativePolicy.from_torch(Agent(), SPACE, seed=5)
    action, _, _, logits, _ = native.refresh().act(np.zeros((200_000, 5), "f4"), keys_of(200_000))
    assert_drawn(action, torch.from_numpy(logits[:1]))


def test_the_first_element_is_drawn_as_a_discrete_action_is() -> None:
    """Each element has noise of its own, which neither the others nor their number change."""
    module, obs = Agent(), np.zeros((500, 5), np.float32)
    with torch.no_grad():
        module.actor.bias.copy_(torch.tensor([0.1, 0.2, -0.3, 0.4] * 2))
    both = NativePolicy.from_torch(module, spaces.MultiDiscrete([4, 4]), seed=3)
    first, second = both.refresh().act(obs, keys_of(500))[0].T
    assert (first != second).any()

    class Half(nn.Module):
        def forward(self, obs: Tensor) -> tuple[Tensor]:
            return (module.actor(obs)[:, :4],)

    half = Half()
    half.actor = module.actor
    alone = NativePolicy.from_torch(half, spaces.Discrete(4), 5, seed=3)
    np.testing.assert_array_equal(alone.refresh().act(obs, keys_of(500))[0], first)


def test_deterministic_heads_take_the_likeliest_of_each_element() -> None:
    native = NativePolicy.from_torch(Agent(), SPACE, head=Head("multi_categorical", True))
    obs = observations(40)
    action, log_prob, _, logits, _ = native.refresh().act(obs, keys_of(40))
    expected = [part.probs.argmax(-1).numpy() for part in of_each(torch.from_numpy(logits))]
    np.testing.assert_array_equal(action, np.stack(expected, 1))
    np.testing.assert_allclose(
        log_prob, densities(torch.from_numpy(logits), action)[0].numpy(), atol=5e-6
    )


def test_an_action_has_the_shape_and_dtype_of_its_space() -> None:
    space = spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), dtype=np.int32)
    module, obs = Agent(14), observations(7)
    for policy in (NativePolicy.from_torch(module, space), TorchPolicy(module, space)):
        output = policy.act(obs)
        assert output.action.shape == (7, 2, 2) and output.action.dtype == np.int32
        assert (output.action < space.nvec).all() and output.log_prob.shape == (7,)


def test_torchs_head_has_densities_entropies_and_gradients() -> None:
    head = make_action_head(SPACE)
    assert isinstance(head, MultiCategoricalHead)
    logits = torch.randn(50, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)
    action, log_prob = head.sample((logits,), torch.Generator().manual_seed(2))
    found = head.evaluate((logits,), action)
    expected = densities(logits, action)
    torch.testing.assert_close(log_prob, expected[0])
    torch.testing.assert_close(found, expected)
    found[0].sum().backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()
    best = torch.stack([part.probs.argmax(-1) for part in of_each(logits)], 1)
    assert torch.equal(head.most_likely((logits,)), best)


def test_torchs_samples_have_their_probabilities() -> None:
    logits = torch.tensor([[0.3, -1.2, 2.0, -1.0, 5.0, 0.1, 0.2, -0.7]])
    head = make_action_head(SPACE)
    rows = logits.expand(200_000, 8)
    action, _ = head.sample((rows,), torch.Generator().manual_seed(3))
    assert_drawn(action.numpy(), logits)


def test_the_engine_reads_such_policies() -> None:
    policy = TorchPolicy(Agent(), SPACE, seed=4)
    native = native_of(policy, spaces.Box(-1, 1, (5,), np.float32))
    assert native.head == Head("multi_categorical") and native.made_of[0] is policy.module


def test_environments_of_other_actions_are_refused() -> None:
    with rollouts.make_vec("CartPole-v1", 2, autoreset_mode="same_step") as env:
        module = Agent()
        module.actor, module.critic = nn.Linear(4, 8), nn.Linear(4, 1)
        collect = rollouts.Collector(env, NativePolicy.from_torch(module, SPACE), 3)
        with pytest.raises(SpecError, match="3 numbers of a MultiDiscrete action, and the env"):
            collect.collect()


@pytest.mark.parametrize("space", [spaces.Discrete(8), spaces.MultiDiscrete([4, 4], start=[1, 0])])
def test_spaces_that_do_not_fit_are_refused(space: gymnasium.Space[Any]) -> None:
    with pytest.raises(SpecError, match="expected MultiDiscrete from 0 on for a multi_categorical"):
        NativePolicy.from_torch(Agent(), space, head=Head("multi_categorical"))


def test_logits_of_another_number_are_refused() -> None:
    with pytest.raises(SpecError, match="gives 8 logits, expected 9: one for each action of the 2"):
        NativePolicy.from_torch(Agent(), spaces.MultiDiscrete([4, 5]))
    with pytest.raises(SpecError, match=r"returned 8 logits, expected 9.*\(4, 5\)"):
        TorchPolicy(Agent(), spaces.MultiDiscrete([4, 5])).act(observations(2))


def digest_of_actions() -> str:
    digest = hashlib.sha256()
    computes = NativePolicy.from_torch(Agent(), SPACE).refresh()
    for array in computes.act(observations(300), keys_of(300)):
        digest.update(array.tobytes())
    return digest.hexdigest()


def test_every_instruction_set_draws_the_same() -> None:
    found = set()
    for name in _native.policy_kernels():
        ended = run_forked(digest_of_actions, environ={"ROLLOUTS_POLICY_KERNELS": name})
        assert ended.exitcode == 0, ended.stderr
        found.add(ended.returned)
    assert len(found) == 1
