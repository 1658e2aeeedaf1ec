# SPDX-License-Identifier: Apache-2.0
"""`NativeLearner`: PPO's gradient steps, beside the same ones in torch, in float64 and float32."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from ppo_reference import ActorCritic, acted_rows, as_tensors, gradients, torch_step
from processes import environ_with_path
from torch import nn

from rollouts import _native
from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.policies.native import NativePolicy

SPACES = {
    "categorical": spaces.Discrete(4),
    "multi_categorical": spaces.MultiDiscrete([3, 2, 5]),
    "gaussian": spaces.Box(-np.inf, np.inf, (3,)),
}


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Small products are fastest on one thread, whatever else the machine does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def learner_of(module: nn.Module, space: Any, num_threads: int = 1, **adam: Any) -> Any:
    optimizer = torch.optim.Adam(module.parameters(), **{"lr": 3e-4, "eps": 1e-5, **adam})
    policy = NativePolicy.from_torch(module, space)
    return NativeLearner(policy, optimizer, num_threads), optimizer


def largest_difference(module: nn.Module, other: nn.Module) -> float:
    pairs = zip(module.parameters(), other.parameters(), strict=True)
    return max((a.double() - b.double()).abs().max().item() for a, b in pairs)


@settings(max_examples=60, deadline=None)
@given(
    head=st.sampled_from(sorted(SPACES)),
    num_rows=st.integers(2, 150),
    hidden=st.integers(1, 40),
    shares=st.booleans(),
    normal=st.booleans(),
    normalizes=st.booleans(),
    value_clip=st.sampled_from([None, 0.1]),
    value_loss=st.sampled_from(["clipped", "worse"]),
    entropy_weight=st.sampled_from([0.0, 0.03]),
    seed=st.integers(0, 1000),
)
def test_gradients_are_those_of_autograd_in_float64(
    head: str,
    num_rows: int,
    hidden: int,
    shares: bool,
    normal: bool,
    seed: int,
    **how: Any,
) -> None:
    """Adam's mean after its first step is the gradient times 1 - beta1."""
    torch.manual_seed(seed)
    how = {"normalize_advantage": how.pop("normalizes"), **how}
    how["value_clip_range"] = how.pop("value_clip")
    loss = PpoLoss(clip_range=0.2, **how)
    module = ActorCritic(SPACES[head], hidden, shares=shares, normal=normal)
    rows = acted_rows(module, num_rows, seed)
    expected = gradients(copy.deepcopy(module).double(), as_tensors(rows, torch.float64), loss)
    learner, optimizer = learner_of(module, SPACES[head], betas=(0.5, 0.999))
    learner.update(rows, np.arange(num_rows), minibatch=num_rows, loss=loss)
    largest = max(each.abs().max().item() for each in expected.values())
    for name, each in module.named_parameters():
        if each not in optimizer.state:
            assert not expected[name].any(), name
            continue
        found = optimizer.state[each]["exp_avg"].double() / 0.5
        # a row whose ratio is within rounding of the limit counts on one side alone; `acted_rows`
        # has none
        torch.testing.assert_close(found, expected[name], rtol=0, atol=1e-5 * largest, msg=name)


@pytest.mark.parametrize("head", ["categorical", "gaussian"])
def test_a_thousand_steps_end_where_those_of_torch_end(head: str) -> None:
    """No limit of the ratio: there the loss is continuous. See the next test for limits."""
    torch.manual_seed(1)
    module = ActorCritic(SPACES[head], 64)
    rows = acted_rows(module, 1024, 1)
    loss = PpoLoss(clip_range=100.0, entropy_weight=0.01)
    plain, exact = copy.deepcopy(module), copy.deepcopy(module).double()
    learner, _ = learner_of(module, SPACES[head])
    adam = {"lr": 3e-4, "eps": 1e-5}
    others = [
        (each, torch.optim.Adam(each.parameters(), **adam), as_tensors(rows, dtype))
        for each, dtype in ((plain, torch.float32), (exact, torch.float64))
    ]
    random = np.random.default_rng(1)
    for _ in range(63):
        order = random.permutation(1024)
        learner.update(rows, order, minibatch=64, loss=loss, max_grad_norm=0.5)
        for first in range(0, 1024, 64):
            for each, optimizer, tensors in others:
                torch_step(each, optimizer, tensors, order[first : first + 64], loss, 0.5)
    assert largest_difference(module, plain) < 1e-5
    # as near to the exact weights as torch's float32, give or take
    assert largest_difference(module, exact) < 2 * largest_difference(plain, exact) + 1e-6


@pytest.mark.parametrize("head", sorted(SPACES))
def test_each_of_many_steps_with_limits_is_that_of_float64(head: str) -> None:
    """Beyond a limit of the ratio a row's gradient is 0: a ratio within rounding of it counts for
    the one and not for the other, in torch's float32 as here. Such minibatches are left out."""
    torch.manual_seed(2)
    module = ActorCritic(SPACES[head], 32)
    rows = acted_rows(module, 512, 2)
    loss = PpoLoss(clip_range=0.2, value_clip_range=0.2, value_loss="clipped", entropy_weight=0.01)
    exact = copy.deepcopy(module).double()
    adam = {"lr": 1e-3, "eps": 1e-5}
    exact_optimizer = torch.optim.Adam(exact.parameters(), **adam)
    learner, optimizer = learner_of(module, SPACES[head], **adam)
    tensors = as_tensors(rows, torch.float64)
    random = np.random.default_rng(2)
    num_compared = 0
    for _ in range(25):
        order = random.permutation(512)
        for first in range(0, 512, 32):
            batch = order[first : first + 32]
            # the exact step begins where native code's begins
            exact.load_state_dict(module.state_dict())
            if first:
                exact_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            learner.update(rows, batch, minibatch=32, loss=loss, max_grad_norm=0.5)
            nearest = torch_step(exact, exact_optimizer, tensors, batch, loss, 0.5)
            if nearest < 1e-5:
                continue
            num_compared += 1
            # Adam divides by the gradient's own size, so a gradient near 0 may go either way
            assert largest_difference(module, exact) < 2e-5
    assert num_compared > 350


@pytest.mark.parametrize("num_rows", [64, 300, 2048])
def test_the_number_of_threads_does_not_change_a_bit(num_rows: int) -> None:
    found = []
    for num_threads in (1, 2, 4):
        torch.manual_seed(3)
        module = ActorCritic(SPACES["gaussian"], 40, normal=True)
        rows = acted_rows(module, 2048, 3)
        learner, _ = learner_of(module, SPACES["gaussian"], num_threads)
        order = np.random.default_rng(3).permutation(2048)
        for _ in range(3):
            learner.update(rows, order, minibatch=num_rows, loss=PpoLoss(entropy_weight=0.01))
        found.append(torch.cat([each.detach().ravel() for each in module.parameters()]))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


DIGEST = """
import hashlib
import numpy as np, torch
from ppo_reference import ActorCritic, acted_rows
from test_native_learner import SPACES, learner_of
from rollouts.learner.native_learner import PpoLoss
torch.set_num_threads(1)
digest = hashlib.sha256()
for head, space in SPACES.items():
    for hidden in (5, 40):
        # torch draws alone: its sums depend on the machine
        torch.manual_seed(3)
        module = ActorCritic(space, hidden, normal=True)
        rows = acted_rows(None, 300, 3, space=space)
        learner, _ = learner_of(module, space)
        loss = PpoLoss(entropy_weight=0.01, value_clip_range=0.1)
        found = learner.update(rows, np.arange(300), minibatch=77, loss=loss, max_grad_norm=0.5)
        for each in module.parameters():
            digest.update(each.detach().numpy().tobytes())
        digest.update(found.approx_kl.tobytes() + found.grad_norm.tobytes())
print(digest.hexdigest())
"""


def test_every_instruction_set_makes_the_same_steps() -> None:
    found = set()
    for name in _native.policy_kernels():
        environ = environ_with_path() | {"ROLLOUTS_POLICY_KERNELS": name}
        said = subprocess.run(
            [sys.executable, "-c", DIGEST],
            capture_output=True,
            text=True,
            env=environ,
            check=True,
        )
        found.add(said.stdout)
    assert len(found) == 1
