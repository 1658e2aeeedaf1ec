# SPDX-License-Identifier: Apache-2.0
"""`NativeLearner`'s losses beside PPO's plain one: masks, Huber's, policy gradients, cloning."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rollouts import returns
from rollouts.errors import SpecError
from rollouts.learner.native_learner import (
    CloningLoss,
    NativeLearner,
    PolicyGradientLoss,
    PpoLoss,
)
from rollouts.policies.native import NativePolicy
from rollouts.returns_torch import vtrace

pytestmark = pytest.mark.usefixtures("one_torch_thread")

OBS = 5
SPACES = {
    "categorical": spaces.Discrete(6),
    "multi_categorical": spaces.MultiDiscrete([3, 2, 4]),
    "gaussian": spaces.Box(-np.inf, np.inf, (3,)),
}


class Agent(nn.Module):
    """Two networks, for actions of a space; the value may be left out."""

    def __init__(self, head: str, *, has_value: bool = True) -> None:
        super().__init__()
        torch.manual_seed(11)
        size = {"categorical": 6, "multi_categorical": 9, "gaussian": 3}[head]
        self.actor = nn.Sequential(nn.Linear(OBS, 12), nn.Tanh(), nn.Linear(12, size))
        self.critic = nn.Sequential(nn.Linear(OBS, 12), nn.Tanh(), nn.Linear(12, 1))
        self.log_std = nn.Parameter(torch.randn(size) * 0.3) if head == "gaussian" else None
        self.has_value = has_value

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        first = self.actor(obs)
        second = () if self.log_std is None else (self.log_std.expand_as(first),)
        return first, *second, *((self.critic(obs)[:, 0],) if self.has_value else ())


def densities(space: Any, outputs: Any, rows: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Log-density and entropy of actions by torch's distributions, part by part."""
    action = torch.from_numpy(rows["action"])
    if isinstance(space, spaces.Box):
        normal: Any = torch.distributions.Normal(outputs[0], outputs[1].exp())
        return normal.log_prob(action).sum(1), normal.entropy().sum(1)
    logits = outputs[0]
    if "action_mask" in rows:
        # far below, and yet a number: the entropy of torch is nan of infinities
        lowest = torch.finfo(logits.dtype).min / 4
        logits = logits.masked_fill(~torch.from_numpy(rows["action_mask"]), lowest)
    parts = logits.split(list(getattr(space, "nvec", [6])), 1)
    action = action.reshape(len(logits), -1)
    chosen: list[Any] = [torch.distributions.Categorical(logits=part) for part in parts]
    logs = [each.log_prob(action[:, place]) for place, each in enumerate(chosen)]
    entropies = [each.entropy() for each in chosen]
    return torch.stack(logs).sum(0), torch.stack(entropies).sum(0)


def rows_of(head: str, count: int, seed: int, *, masks: bool = False) -> dict[str, Any]:
    random, space = np.random.default_rng(seed), SPACES[head]
    rows: dict[str, Any] = {
        "obs": random.normal(size=(count, OBS)).astype(np.float32),
        "log_prob": random.normal(-3, 1, size=count).astype(np.float32),
        "advantage": random.normal(size=count).astype(np.float32),
        # errors of every size, none at the limit of 1
        "target": (3 * random.normal(size=count)).astype(np.float32),
    }
    if isinstance(space, spaces.Box):
        return {**rows, "action": random.normal(size=(count, 3)).astype(np.float32)}
    nvec = getattr(space, "nvec", [6])
    rows["action"] = random.integers(nvec, size=(count, len(nvec)))
    if masks:
        mask = random.random((count, sum(nvec))) < 0.4
        firsts = np.cumsum([0, *nvec[:-1]])
        np.put_along_axis(mask, rows["action"] + firsts, True, 1)
        rows["action_mask"] = mask
    return rows


def learner_of(agent: Agent, head: str) -> tuple[NativeLearner, torch.optim.Adam]:
    optimizer = torch.optim.Adam(agent.parameters(), betas=(0.5, 0.999))
    return NativeLearner(NativePolicy.from_torch(agent, SPACES[head], OBS), optimizer), optimizer


def assert_gradients(agent: Agent, optimizer: Any, exact: Agent, total: Tensor) -> None:
    """Adam's mean after its first step is the gradient times 1 - beta1."""
    found = torch.autograd.grad(total, list(exact.parameters()), allow_unused=True)
    largest = max(each.abs().max().item() for each in found if each is not None)
    for (name, each), wanted in zip(agent.named_parameters(), found, strict=True):
        if wanted is None:
            continue
        ours = optimizer.state[each]["exp_avg"].double() / 0.5
        torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-5 * largest, msg=name)


@settings(max_examples=40, deadline=None)
@given(
    head=st.sampled_from(sorted(SPACES)),
    count=st.integers(2, 100),
    masks=st.booleans(),
    huber=st.sampled_from([None, 1.0]),
    is_plain=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_gradients_are_those_of_autograd_in_float64(
    head: str, count: int, masks: bool, huber: float | None, is_plain: bool, seed: int
) -> None:
    agent = Agent(head)
    rows = rows_of(head, count, seed, masks=masks and head != "gaussian")
    exact = copy.deepcopy(agent).double()
    *outputs, value = exact(torch.from_numpy(rows["obs"]).double())
    log_prob, entropy = densities(SPACES[head], outputs, rows)
    given = {name: torch.from_numpy(rows[name]).double() for name in rows if name != "action"}
    if is_plain:
        gain = given["advantage"] * log_prob
        loss: Any = PolicyGradientLoss(entropy_weight=0.02)
        huber = None
    else:
        # no limit of the ratio: others compare it
        loss = PpoLoss(
            clip_range=100.0, normalize_advantage=False, entropy_weight=0.02, value_huber=huber
        )
        gain = (log_prob - given["log_prob"]).exp() * given["advantage"]
    error = value - given["target"]
    square = error.square()
    if huber is not None:
        square = 2 * nn.functional.huber_loss(value, given["target"], reduction="none", delta=huber)
    total = (-gain + 0.5 * square - 0.02 * entropy).mean()
    learner, optimizer = learner_of(agent, head)
    found = learner.update(rows, np.arange(count), minibatch=count, loss=loss)
    assert found.policy_loss[0] == pytest.approx(-gain.mean().item(), rel=1e-4, abs=1e-5)
    assert found.value_loss[0] == pytest.approx(square.mean().item(), rel=1e-4)
    assert_gradients(agent, optimizer, exact, total)


@pytest.mark.parametrize("has_value", [True, False])
@pytest.mark.parametrize("head", sorted(SPACES))
def test_cloning_is_minus_the_log_density_of_the_actions(head: str, has_value: bool) -> None:
    agent = Agent(head, has_value=has_value)
    rows = rows_of(head, 70, 1)
    exact = copy.deepcopy(agent).double()
    outputs = exact(torch.from_numpy(rows["obs"]).double())
    outputs = outputs[:-1] if has_value else outputs
    log_prob, entropy = densities(SPACES[head], outputs, rows)
    learner, optimizer = learner_of(agent, head)
    critic = [each.detach().clone() for each in agent.critic.parameters()]
    found = learner.update(
        {name: rows[name] for name in ("obs", "action")},
        np.arange(70),
        minibatch=70,
        loss=CloningLoss(entropy_weight=0.01),
    )
    assert found.policy_loss[0] == pytest.approx(-log_prob.mean().item(), rel=1e-5)
    assert_gradients(agent, optimizer, exact, (-log_prob - 0.01 * entropy).mean())
    assert all(map(torch.equal, critic, agent.critic.parameters()))


def test_a_loss_of_a_value_needs_one() -> None:
    learner, _ = learner_of(Agent("categorical", has_value=False), "categorical")
    rows = rows_of("categorical", 10, 1)
    for loss in (PpoLoss(), PolicyGradientLoss()):
        with pytest.raises(SpecError, match="the module gives no value, which this loss trains"):
            learner.update(rows, np.arange(10), minibatch=10, loss=loss)


@pytest.mark.parametrize("count", [1, 16, 500])
@pytest.mark.parametrize("head", sorted(SPACES))
def test_rows_are_evaluated_by_the_weights_of_now(head: str, count: int) -> None:
    agent = Agent(head)
    learner, optimizer = learner_of(agent, head)
    rows = rows_of(head, count, 2, masks=head != "gaussian")
    with torch.no_grad():
        for each in agent.parameters():
            each.mul_(1.5)
        *outputs, value = agent(torch.from_numpy(rows["obs"]))
        log_prob, entropy = densities(SPACES[head], outputs, rows)
    found = learner.evaluate(
        {name: rows[name] for name in rows.keys() & {"obs", "action", "action_mask"}}
    )
    np.testing.assert_allclose(found.log_prob, log_prob.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.entropy, entropy.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.value, value.numpy(), rtol=1e-4, atol=1e-5)
    assert not optimizer.state


def test_a_step_of_v_trace_is_that_of_torch() -> None:
    """Targets by the weights before the step, as IMPALA's learner has them."""
    agent, (steps, envs) = Agent("categorical"), (7, 9)
    random = np.random.default_rng(5)
    rows = rows_of("categorical", steps * envs, 5)
    exact = copy.deepcopy(agent).double()
    shape = (steps, envs)
    ends = {
        "terminated": random.random(shape) < 0.1,
        "truncated": random.random(shape) < 0.1,
    }
    numbers = {
        "reward": random.normal(size=shape).astype(np.float32),
        "bootstrap_value": random.normal(size=shape).astype(np.float32),
        "last_value": random.normal(size=envs).astype(np.float32),
        "behaviour_log_prob": rows["log_prob"].reshape(shape),
    }
    *outputs, value = exact(torch.from_numpy(rows["obs"]).double())
    log_prob, _ = densities(SPACES["categorical"], outputs, rows)
    advantage, target = vtrace(
        value=value.view(shape),
        target_log_prob=log_prob.view(shape),
        gamma=0.97,
        **{name: torch.from_numpy(each).double() for name, each in numbers.items()},
        **{name: torch.from_numpy(each) for name, each in ends.items()},
    )
    error = (value - target.detach().flatten()).square()
    total = (-advantage.detach().flatten() * log_prob + 0.5 * error).mean()

    learner, optimizer = learner_of(agent, "categorical")
    now = learner.evaluate(rows)
    own_advantage, own_target = returns.vtrace(
        value=now.value.reshape(shape),
        target_log_prob=now.log_prob.reshape(shape),
        gamma=0.97,
        **numbers,
        **ends,
    )
    rows |= {"advantage": own_advantage.ravel(), "target": own_target.ravel()}
    count = steps * envs
    learner.update(rows, np.arange(count), minibatch=count, loss=PolicyGradientLoss())
    assert_gradients(agent, optimizer, exact, total)


def test_rows_of_agents_that_left_do_not_count() -> None:
    """Nor do they in the mean and the deviation that advantages are normalised by."""
    ends = []
    for with_others in (True, False):
        agent = Agent("multi_categorical")
        rows = rows_of("multi_categorical", 60, 3)
        there = np.arange(60) % 3 != 1
        if with_others:
            rows["counts"] = there
            for name in ("advantage", "target", "log_prob"):
                rows[name][~there] = np.nan
        else:
            rows = {name: each[there] for name, each in rows.items()}
        learner, optimizer = learner_of(agent, "multi_categorical")
        count = len(rows["obs"])
        learner.update(rows, np.arange(count), minibatch=count, loss=PpoLoss())
        ends.append([optimizer.state[each]["exp_avg"] for each in agent.parameters()])
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("head", "mask", "match"),
    [
        ("categorical", np.zeros((10, 6), bool), "does not allow the action of row 0"),
        ("categorical", np.ones((10, 5), bool), "'action_mask': 5"),
        ("gaussian", np.ones((10, 3), bool), "cannot be masked: leave action_mask out"),
    ],
)
def test_masks_that_do_not_fit_are_refused(head: str, mask: Any, match: str) -> None:
    learner, _ = learner_of(Agent(head), head)
    rows = {**rows_of(head, 10, 1), "action_mask": mask}
    with pytest.raises(SpecError, match=match):
        learner.update(rows, np.arange(10), minibatch=10, loss=PpoLoss())


@pytest.mark.parametrize("head", sorted(SPACES))
def test_rows_that_do_not_count_may_hold_anything(head: str) -> None:
    ends = []
    for is_spoilt in (False, True):
        agent = Agent(head)
        rows = rows_of(head, 60, 3, masks=head != "gaussian")
        counts = rows["counts"] = np.arange(60) % 3 != 0
        if is_spoilt:
            for name in ("obs", "advantage", "target", "log_prob"):
                rows[name][~counts] = np.nan
            rows["action"][~counts] = np.nan if head == "gaussian" else -1
            if "action_mask" in rows:
                rows["action_mask"][~counts] = False
        learner, _ = learner_of(agent, head)
        kept = {name: each.copy() for name, each in rows.items()}
        learner.update(rows, np.arange(60), minibatch=20, loss=PpoLoss(entropy_weight=0.1))
        np.testing.assert_equal(rows, kept)
        ends.append([*agent.parameters()])
    assert all(map(torch.equal, *ends))


@pytest.mark.parametrize("not_allowed", [0.7, -np.inf, np.nan])
def test_the_divergence_is_of_allowed_actions_alone(not_allowed: float) -> None:
    agent = Agent("multi_categorical")
    rows = rows_of("multi_categorical", 20, 4, masks=True)
    mask = torch.from_numpy(rows["action_mask"])
    random = np.random.default_rng(4)
    rows["inputs"] = random.normal(size=mask.shape).astype(np.float32)
    both = [agent(torch.from_numpy(rows["obs"]))[0].detach(), torch.from_numpy(rows["inputs"])]
    lowest = torch.finfo(torch.float32).min / 4
    now, before = (
        [
            torch.distributions.Categorical(logits=part)
            for part in logits.masked_fill(~mask, lowest).split([3, 2, 4], 1)
        ]
        for logits in both
    )
    pairs = zip(before, now, strict=True)
    expected = sum(torch.distributions.kl_divergence(one, two).mean().item() for one, two in pairs)
    rows["inputs"][~rows["action_mask"]] = not_allowed
    learner, _ = learner_of(agent, "multi_categorical")
    found = learner.update(rows, np.arange(20), minibatch=20, loss=PpoLoss(kl_weight=0.2))
    assert found.kl[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"order": np.arange(10) < 5}, r"order is bool of shape \(10,\), expected the numbers"),
        ({"order": np.arange(10.0)}, "order is float64"),
        ({"order": np.arange(10).reshape(2, 5)}, r"order is int64 of shape \(2, 5\)"),
        ({"minibatch": 0}, "minibatch is 0, expected a whole number of at least 1"),
        ({"minibatch": 2.5}, "minibatch is 2.5, expected a whole number of at least 1"),
        ({"loss": PpoLoss}, "expected an object of one of PpoLoss, PolicyGradientLoss"),
        ({"action": np.full(10, 0.5)}, "expected whole numbers"),
        ({"counts": np.full(10, 0.5)}, "counts has numbers beside 0 and 1"),
        ({"counts": np.full(10, np.nan)}, "counts has numbers beside 0 and 1"),
    ],
)
def test_what_would_be_cut_off_is_refused(change: dict[str, Any], match: str) -> None:
    learner, optimizer = learner_of(Agent("categorical"), "categorical")
    rows = rows_of("categorical", 10, 1)
    given: dict[str, Any] = {"order": np.arange(10), "minibatch": 5, "loss": PpoLoss()} | change
    rows |= {name: given.pop(name) for name in ("action", "counts") if name in given}
    with pytest.raises(SpecError, match=match):
        learner.update(rows, **given)
    assert not optimizer.state


def test_no_rows_are_evaluated_and_an_order_may_be_a_list() -> None:
    learner, _ = learner_of(Agent("categorical"), "categorical")
    rows = rows_of("categorical", 10, 1)
    none = {name: rows[name][:0] for name in ("obs", "action")}
    assert learner.evaluate(none).log_prob.shape == (0,)
    order: Any = [3, 1, 2]
    assert learner.update(rows, order, minibatch=2, loss=PpoLoss()).num_steps == 2
