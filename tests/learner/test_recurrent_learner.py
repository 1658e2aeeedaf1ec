# SPDX-License-Identifier: Apache-2.0
"""`NativeLearner` of modules with memory: PPO through time, beside torch's over the same steps."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from forked import run_forked_each
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.learner.native_learner import NativeLearner, PpoLoss
from rollouts.policies.native import NativePolicy
from rollouts.recurrent import State, reset_where

pytestmark = pytest.mark.usefixtures("one_torch_thread")

OBS = 5
SPACES = {
    "categorical": spaces.Discrete(4),
    "multi_categorical": spaces.MultiDiscrete([3, 2]),
    "gaussian": spaces.Box(-np.inf, np.inf, (2,)),
}
ADAM = {"lr": 3e-4, "eps": 1e-5}


class Agent(nn.Module):
    """An encoder, a GRU or an LSTM, and two heads."""

    def __init__(self, head: str, cell: str = "gru", size: int = 16) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.size, self.is_box = size, head == "gaussian"
        self.num_logits = {"categorical": 4, "multi_categorical": 5, "gaussian": 2}[head]
        self.encoder = nn.Sequential(nn.Linear(OBS, size), nn.Tanh())
        self.cell: Any = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}[cell](size, size)
        self.actor, self.critic = nn.Linear(size, self.num_logits), nn.Linear(size, 1)
        self.log_std = nn.Parameter(torch.randn(2) * 0.3) if self.is_box else None

    def initial_state(self) -> State:
        first = self.actor.weight.new_full((self.size,), 0.25)
        return (first, first * 0) if isinstance(self.cell, nn.LSTMCell) else (first,)

    def forward(self, obs: Tensor, state: State) -> tuple[Any, ...]:
        lstm = isinstance(self.cell, nn.LSTMCell)
        after = self.cell(self.encoder(obs), state if lstm else state[0])
        after = after if lstm else (after,)
        deviations = () if self.log_std is None else (self.log_std,)
        return self.actor(after[0]), *deviations, self.critic(after[0])[:, 0], after


def densities(
    space: Any, outputs: list[Tensor], action: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Log-density and entropy, with zero for the terms of actions that cannot be drawn."""
    if len(outputs) == 2:
        normal = torch.distributions.Normal(outputs[0], outputs[1].exp())
        return normal.log_prob(action).sum(-1), normal.entropy().sum(-1)
    logits = outputs[0] if mask is None else outputs[0].masked_fill(~mask, -torch.inf)
    parts = logits.split(list(getattr(space, "nvec", [logits.shape[1]])), 1)
    action = action.reshape(len(logits), -1)
    log_prob = entropy = torch.zeros(len(logits), dtype=logits.dtype)
    for place, part in enumerate(parts):
        logs = part.log_softmax(1)
        log_prob = log_prob + logs.gather(1, action[:, place : place + 1])[:, 0]
        finite = torch.where(logs.isfinite(), logs, torch.zeros_like(logs))
        entropy = entropy - (logs.exp() * finite).sum(1)
    return log_prob, entropy


def play(agent: Agent, how: dict[str, Any], burn_in: int = 0, columns: Any = slice(None)) -> Any:
    """Log-density, entropy and value of each row (T, B), by a loop over the steps."""
    dtype = agent.critic.weight.dtype
    rows, space = how["rows"], how["space"]
    state = tuple(torch.from_numpy(each[columns]).to(dtype) for each in how["state"])
    found = []
    for t in range(len(rows["obs"])):
        if t == burn_in:
            state = tuple(each.detach() for each in state)
        obs = torch.from_numpy(rows["obs"][t, columns]).to(dtype)
        *outputs, value, state = agent(obs, state)
        mask = rows.get("action_mask")
        found.append(
            (
                *densities(
                    space,
                    outputs,
                    torch.from_numpy(rows["action"][t, columns]),
                    None if mask is None else torch.from_numpy(mask[t, columns]),
                ),
                value,
            )
        )
        ended = torch.from_numpy(rows["ended"][t, columns])
        state = reset_where(ended, agent.initial_state(), state)
    return [torch.stack(each) for each in zip(*found, strict=True)]


def loss_in_torch(
    agent: Agent, how: dict[str, Any], loss: PpoLoss, burn_in: int = 0, columns: Any = slice(None)
) -> Tensor:
    """PPO's loss of the rows that count."""
    dtype, rows = agent.critic.weight.dtype, how["rows"]
    log_prob, entropy, value = play(agent, how, burn_in, columns)
    counts = np.ones(rows["ended"].shape, bool) & rows.get("counts", True)
    counts[:burn_in] = False
    kept = torch.from_numpy(counts[:, columns])

    def of(name: str) -> Tensor:
        return torch.from_numpy(rows[name][:, columns]).to(dtype)[kept]

    advantage = of("advantage")
    if loss.normalize_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (log_prob[kept] - of("log_prob")).exp()
    bounded = ratio.clamp(1 - loss.clip_range, 1 + loss.clip_range)
    policy_loss = -torch.min(ratio * advantage, bounded * advantage).mean()
    value_loss = (value[kept] - of("target")).square().mean()
    bonus = entropy[kept].mean()
    return policy_loss + loss.value_weight * value_loss - loss.entropy_weight * bonus


def rollout(agent: Agent, head: str, steps: int, count: int, seed: int, **how: Any) -> Any:
    """Rows of sequences, whose ratios are away from the limits of 0.2."""
    random, space = np.random.default_rng(seed), SPACES[head]
    shape = (steps, count)
    numbers = {name: random.normal(size=shape).astype(np.float32) for name in ("advantage",)}
    if isinstance(space, spaces.Box):
        action = random.normal(size=(*shape, 2)).astype(np.float32)
    else:
        nvec = getattr(space, "nvec", [4])
        action = random.integers(nvec, size=(*shape, len(nvec)))
    rows: dict[str, Any] = {
        "obs": random.normal(size=(*shape, OBS)).astype(np.float32),
        "action": action,
        "ended": random.random(shape) < 0.2,
        **numbers,
    }
    if how.get("masks"):
        mask = random.random((*shape, agent.num_logits)) < 0.5
        firsts = np.cumsum([0, *getattr(space, "nvec", [4])[:-1]])
        np.put_along_axis(mask, action + firsts, True, 2)
        rows["action_mask"] = mask
    if how.get("counts"):
        rows["counts"] = random.random(shape) < 0.7
        rows["counts"][-1, 0] = True
    sizes = [tuple(each.shape) for each in agent.initial_state()]
    state = tuple(random.normal(size=(count, *each)).astype(np.float32) for each in sizes)
    found = {"rows": rows, "state": state, "space": space}
    with torch.no_grad():
        log_prob, _, value = play(copy.deepcopy(agent).double(), found)
    moved = random.choice([-0.5, -0.1, 0.1, 0.5], size=shape) + random.uniform(-0.02, 0.02, shape)
    rows["log_prob"] = (log_prob.numpy() - moved).astype(np.float32)
    rows["target"] = (value.numpy() + random.normal(size=shape)).astype(np.float32)
    if how.get("counts"):
        # what does not count may be anything
        for name in ("log_prob", "target", "advantage"):
            rows[name][~rows["counts"]] = np.nan
    return found


def learner_of(agent: Agent, head: str, num_threads: int = 1, **adam: Any) -> Any:
    optimizer = torch.optim.Adam(agent.parameters(), **{**ADAM, **adam})
    policy = NativePolicy.from_torch(agent, SPACES[head], OBS)
    return NativeLearner(policy, optimizer, num_threads), optimizer


@settings(max_examples=20, deadline=None)
@given(
    head=st.sampled_from(sorted(SPACES)),
    cell=st.sampled_from(["gru", "lstm"]),
    steps=st.integers(1, 10),
    count=st.integers(2, 40),
    burn_in=st.integers(0, 3),
    counts=st.booleans(),
    masks=st.booleans(),
    normalizes=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_gradients_through_time_are_those_of_autograd_in_float64(
    head: str, cell: str, steps: int, count: int, burn_in: int, normalizes: bool, **how: Any
) -> None:
    """Adam's mean after its first step is the gradient times 1 - beta1."""
    agent = Agent(head, cell)
    how["masks"] = how["masks"] and head != "gaussian"
    found = rollout(agent, head, steps, count, **how)
    burn_in = min(burn_in, steps - 1)
    loss = PpoLoss(normalize_advantage=normalizes, entropy_weight=0.03)
    exact = copy.deepcopy(agent).double()
    total = loss_in_torch(exact, found, loss, burn_in)
    expected = torch.autograd.grad(total, list(exact.parameters()))
    learner, optimizer = learner_of(agent, head, betas=(0.5, 0.999))
    learner.update(
        found["rows"],
        np.arange(count),
        minibatch=count,
        loss=loss,
        state=found["state"],
        burn_in=burn_in,
    )
    largest = max(each.abs().max().item() for each in expected)
    for (name, each), wanted in zip(agent.named_parameters(), expected, strict=True):
        ours = optimizer.state[each]["exp_avg"].double() / 0.5
        torch.testing.assert_close(ours, wanted, rtol=0, atol=2e-5 * largest, msg=name)


# an LSTM's gradients are compared above; make test-all walks its way as well
@pytest.mark.parametrize("cell", ["gru", pytest.param("lstm", marks=pytest.mark.slow)])
def test_many_steps_end_where_those_of_torch_end(cell: str) -> None:
    agent = Agent("categorical", cell)
    found = rollout(agent, "categorical", 8, 24, 1)
    plain = copy.deepcopy(agent).double()
    loss = PpoLoss(clip_range=100.0, entropy_weight=0.01)
    learner, _ = learner_of(agent, "categorical")
    optimizer = torch.optim.Adam(plain.parameters(), **ADAM)
    random = np.random.default_rng(1)
    for _ in range(20):
        order = random.permutation(24)
        learner.update(
            found["rows"], order, minibatch=10, loss=loss, max_grad_norm=0.5, state=found["state"]
        )
        for first in range(0, 24, 10):
            optimizer.zero_grad()
            loss_in_torch(plain, found, loss, columns=order[first : first + 10]).backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
            optimizer.step()
    for mine, its in zip(agent.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.double(), its, rtol=0, atol=2e-5)


@pytest.mark.parametrize("count", [5, 40, 200])
def test_the_number_of_threads_does_not_change_a_bit(count: int) -> None:
    ends = []
    for num_threads in (1, 2, 4):
        agent = Agent("gaussian", "lstm")
        found = rollout(agent, "gaussian", 9, count, 3, counts=True)
        learner, _ = learner_of(agent, "gaussian", num_threads)
        for _ in range(3):
            learner.update(
                found["rows"],
                np.arange(count),
                minibatch=count,
                loss=PpoLoss(),
                state=found["state"],
                burn_in=2,
            )
        ends.append(torch.cat([each.detach().ravel() for each in agent.parameters()]))
    assert torch.equal(ends[0], ends[1]) and torch.equal(ends[0], ends[2])


def digest() -> str:
    """A digest of weights after some updates, of rows that torch has no part in."""
    torch.set_num_threads(1)
    found = hashlib.sha256()
    for head in sorted(SPACES):
        agent = Agent(head, "lstm", 19)
        # torch draws alone: its sums depend on the machine
        with torch.no_grad():
            for each in agent.parameters():
                each.copy_(torch.randn(each.shape) * 0.2)
        random = np.random.default_rng(2)
        how = rollout(agent, head, 6, 33, 2, counts=True, masks=head != "gaussian")
        how["rows"]["log_prob"] = random.normal(size=(6, 33)).astype(np.float32)
        how["rows"]["target"] = random.normal(size=(6, 33)).astype(np.float32)
        learner, _ = learner_of(agent, head)
        for _ in range(2):
            learner.update(
                how["rows"], np.arange(33), minibatch=17, loss=PpoLoss(), state=how["state"]
            )
        for each in agent.parameters():
            found.update(each.detach().numpy().tobytes())
    return found.hexdigest()


def test_every_instruction_set_makes_the_same_steps() -> None:
    environs = [{"ROLLOUTS_POLICY_KERNELS": name} for name in _native.policy_kernels()]
    found = set()
    for ended in run_forked_each(digest, environs):
        assert ended.exitcode == 0, ended.stderr
        found.add(ended.returned)
    assert len(found) == 1


def update(learner: Any, how: dict[str, Any], **options: Any) -> Any:
    count = how["rows"]["obs"].shape[1]
    given = {"minibatch": count, "loss": PpoLoss(), "state": how["state"], **options}
    return learner.update(how["rows"], np.arange(count), **given)


def small(head: str = "categorical") -> tuple[Agent, Any, Any]:
    agent = Agent(head)
    return agent, rollout(agent, head, 6, 8, 1), learner_of(agent, head)[0]


def test_a_column_does_not_see_the_others() -> None:
    """Sequences that are learnt from alone give what they give among others, one after another."""
    ends = []
    for columns in ([3, 5], list(range(8))):
        agent, how, learner = small()
        how["rows"] = {name: each[:, columns] for name, each in how["rows"].items()}
        how["state"] = tuple(each[columns] for each in how["state"])
        order = np.array([columns.index(3), columns.index(5)])
        learner.update(how["rows"], order, minibatch=1, loss=PpoLoss(), state=how["state"])
        ends.append([each.detach().clone() for each in agent.parameters()])
    assert all(map(torch.equal, *ends))


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    agent, how, learner = small()
    before = [each.detach().clone() for each in agent.parameters()]
    how["rows"]["advantage"][3, 2] = np.nan
    with pytest.raises(SpecError, match="minibatch 0 gives a policy loss that is nan"):
        update(learner, how)
    assert all(map(torch.equal, before, agent.parameters()))


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("obs", lambda x: x[0], r"expected \(T, B, \*obs_shape\) of a module with memory"),
        ("log_prob", lambda x: x[:5], "all of 6 x 8"),
        ("ended", lambda x: x[:, :7], "all of 6 x 8"),
        ("action", lambda x: x[:, :7], r"action has shape \(6, 7, 1\), expected \(6, 8\)"),
        ("action", lambda x: x + 4, "not of Discrete"),
    ],
)
def test_rows_that_do_not_fit_are_refused(name: str, change: Any, match: str) -> None:
    _, how, learner = small()
    how["rows"][name] = change(how["rows"][name])
    with pytest.raises(SpecError, match=match):
        update(learner, how)


def test_states_and_burn_in_that_do_not_fit_are_refused() -> None:
    _, how, learner = small()
    with pytest.raises(SpecError, match=r"state has arrays of shapes \[\], expected \[\(8, 16\)\]"):
        update(learner, how, state=())
    with pytest.raises(SpecError, match=r"expected \[\(8, 16\)\]: is it policy_state"):
        update(learner, how, state=(how["state"][0][:7],))
    with pytest.raises(SpecError, match="burn_in is 6, expected"):
        update(learner, how, burn_in=6)
    with pytest.raises(SpecError, match="order names rows 0 to 8"):
        learner.update(how["rows"], np.arange(9), minibatch=3, loss=PpoLoss(), state=how["state"])
    del how["rows"]["ended"]
    with pytest.raises(SpecError, match=r"rows are .*, expected .*'ended'"):
        update(learner, how)


def test_a_module_without_memory_takes_no_states() -> None:
    module = nn.Sequential(nn.Linear(OBS, 5))

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = module

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            found = self.layers(obs)
            return found[:, :4], found[:, 4]

    plain = Plain()
    policy = NativePolicy.from_torch(plain, SPACES["categorical"])
    learner = NativeLearner(policy, torch.optim.Adam(plain.parameters()))
    zeros = np.zeros(3, np.float32)
    rows = {name: zeros for name in ("log_prob", "advantage", "target")}
    rows |= {"obs": np.zeros((3, OBS), np.float32), "action": np.zeros(3, np.int64)}
    with pytest.raises(SpecError, match="the module has no memory: leave state and burn_in out"):
        learner.update(rows, np.arange(3), minibatch=3, loss=PpoLoss(), state=(zeros,))
    with pytest.raises(SpecError, match="the module has no memory"):
        learner.update(rows, np.arange(3), minibatch=3, loss=PpoLoss(), burn_in=1)


class Learnt(Agent):
    """An agent whose first state is a parameter."""

    def __init__(self) -> None:
        super().__init__("categorical")
        self.first = nn.Parameter(torch.zeros(self.size))

    def initial_state(self) -> State:
        return (self.first,)


def test_a_first_state_that_is_learnt_is_refused() -> None:
    with pytest.raises(SpecError, match=r"Learnt\.initial_state\(\) requires a gradient"):
        learner_of(Learnt(), "categorical")


class Cut(Agent):
    """An agent whose gradient does not go through time."""

    def forward(self, obs: Tensor, state: State) -> tuple[Any, ...]:
        return super().forward(obs, tuple(each.detach() for each in state))


def test_no_gradient_goes_through_a_state_that_forward_detaches() -> None:
    agent, loss = Cut("categorical"), PpoLoss(normalize_advantage=False)
    found = rollout(agent, "categorical", 6, 20, 3)
    exact = copy.deepcopy(agent).double()
    expected = torch.autograd.grad(loss_in_torch(exact, found, loss), list(exact.parameters()))
    learner, optimizer = learner_of(agent, "categorical", betas=(0.5, 0.999))
    learner.update(found["rows"], np.arange(20), minibatch=20, loss=loss, state=found["state"])
    largest = max(each.abs().max().item() for each in expected)
    for each, wanted in zip(agent.parameters(), expected, strict=True):
        ours = optimizer.state[each]["exp_avg"].double() / 0.5
        torch.testing.assert_close(ours, wanted, rtol=0, atol=2e-5 * largest)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_steps_that_lead_to_none_that_counts_may_hold_anything(cell: str) -> None:
    """Others that do not count go on into the states of later ones."""
    ends = []
    for is_spoilt in (False, True):
        agent = Agent("categorical", cell)
        found = rollout(agent, "categorical", 7, 5, 2)
        rows, state = found["rows"], found["state"]
        counts = rows["counts"] = np.ones((7, 5), bool)
        # the end of one sequence, all of another, and what comes before an end
        counts[4:, 1] = counts[:, 2] = counts[2:4, 3] = False
        rows["ended"][3, 3] = True
        nowhere = ~counts
        counts[1, 4] = False
        rows["ended"][1, 4] = False
        if is_spoilt:
            rows["obs"][nowhere] = np.nan
            rows["action"][~counts] = -1
            for each in state:
                each[2] = np.nan
        learner, _ = learner_of(agent, "categorical")
        learner.update(rows, np.arange(5), minibatch=5, loss=PpoLoss(), state=state)
        ends.append([*agent.parameters()])
    assert all(map(torch.equal, *ends))


def test_a_row_that_leads_to_one_that_counts_is_read() -> None:
    agent = Agent("categorical")
    found = rollout(agent, "categorical", 7, 5, 2)
    found["rows"]["counts"] = np.ones((7, 5), bool)
    found["rows"]["counts"][1, 4] = found["rows"]["ended"][1, 4] = False
    found["rows"]["obs"][1, 4] = np.nan
    learner, _ = learner_of(agent, "categorical")
    with pytest.raises(SpecError, match="nan or infinite"):
        learner.update(
            found["rows"], np.arange(5), minibatch=5, loss=PpoLoss(), state=found["state"]
        )
