# SPDX-License-Identifier: Apache-2.0
"""R2D2's gradient steps in native code, beside a loop over the steps in float64."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rollouts.errors import SpecError
from rollouts.learner.loss_learner import LossLearner
from rollouts.learner.sequence_losses import SequenceDqnLoss, inverse_root, root
from rollouts.recurrent import State

pytestmark = pytest.mark.usefixtures("one_torch_thread")

OBS, ACTIONS, SIZE, START = 3, 4, 10, 2
STEPS, BURN_IN, N, DISCOUNT, SEQUENCES = 9, 3, 2, 0.9, 21


class Values(nn.Module):
    """Values of all steps: an encoder, two layers with memory and dueling heads."""

    def __init__(self, kind: str, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.encoder = nn.Linear(OBS, SIZE)
        self.memory: Any = {"gru": nn.GRU, "lstm": nn.LSTM}[kind](SIZE, SIZE, 2)
        self.advantage, self.value = nn.Linear(SIZE, ACTIONS), nn.Linear(SIZE, 1)

    def forward(self, obs: Tensor, state: State) -> tuple[Tensor, State]:
        layers = tuple(each.transpose(0, 1).contiguous() for each in state)
        features = self.encoder(obs).tanh()
        hidden, after = self.memory(features, layers if len(layers) > 1 else layers[0])
        after = after if isinstance(after, tuple) else (after,)
        advantage = self.advantage(hidden)
        values = self.value(hidden) + advantage - advantage.mean(-1, keepdim=True)
        return values, tuple(each.transpose(0, 1) for each in after)


def make(kind: str = "gru", **changed: Any) -> SequenceDqnLoss:
    settings = {"num_steps": STEPS, "burn_in": BURN_IN, "n": N, "discount": DISCOUNT} | changed
    return SequenceDqnLoss(
        Values(kind, 1),
        Values(kind, 2),
        (OBS,),
        ACTIONS,
        ((2, SIZE),) * (2 if kind == "lstm" else 1),
        **settings,
    )


def batch(loss: SequenceDqnLoss, seed: int, count: int = SEQUENCES) -> Any:
    """Sequences that are whole or end early, begin with an episode or do not."""
    random = np.random.default_rng(seed)
    steps = loss.num_steps
    num_steps = random.integers(1, steps + 1, count)
    num_steps[::2] = steps
    valid = np.arange(steps)[:, None] < num_steps
    is_last = np.arange(steps)[:, None] == num_steps - 1
    first = np.zeros((steps + 1, count), bool)
    first[0] = random.random(count) < 0.4
    arrays = {
        "obs": random.normal(size=(steps + 1, count, OBS)).astype(np.float32),
        "action": START + random.integers(0, ACTIONS, (steps, count)) * valid,
        "reward": (3 * random.normal(size=(steps, count)) * valid).astype(np.float32),
        "terminated": is_last & (random.random(count) < 0.6),
        "valid": valid,
        "first": first,
        "num_steps": num_steps,
        "weight": random.uniform(0.2, 1, count).astype(np.float32),
    }
    shapes = [shape for name, shape in loss.shapes.items() if name.startswith("state_")]
    state = tuple(
        torch.from_numpy(random.normal(size=(count, *shape)).astype(np.float32)) for shape in shapes
    )
    tensors = {name: torch.from_numpy(np.asarray(each)) for name, each in arrays.items()}
    return SimpleNamespace(**tensors, policy_state=state, burn_in=loss.burn_in)


def step_by_step(loss: SequenceDqnLoss, rows: Any) -> tuple[Tensor, Tensor]:
    """The loss, and the size of each difference (B, T) that counts, from networks in float64."""

    def played(network: nn.Module) -> Tensor:
        state = tuple(each.double() for each in rows.policy_state)
        found = []
        for t, obs in enumerate(rows.obs.double()):
            if t == loss.burn_in:
                state = tuple(each.detach() for each in state)
            values, state = network(obs[None], state)
            found.append(values[0])
        return torch.stack(found)

    values = played(loss.network)
    with torch.no_grad():
        following = played(loss.target_network)
    count = rows.reward.shape[1]
    sizes, total = torch.zeros(count, loss.num_steps, dtype=torch.float64), torch.zeros(())
    num_learnt = 0
    for b in range(count):
        steps = int(rows.num_steps[b])
        for t in range(0 if rows.first[0, b] else loss.burn_in, steps):
            end = min(t + loss.n, steps)
            target = sum(
                loss.discount ** (i - t) * rows.reward[i, b].double() for i in range(t, end)
            )
            if not rows.terminated[end - 1, b]:
                best = following[end, b, values[end, b].argmax()]
                rest = inverse_root(best) if loss.rescale else best
                target = target + loss.discount ** (end - t) * rest
            target = root(target) if loss.rescale else target
            off = values[t, b, rows.action[t, b] - START] - target.detach()
            sizes[b, t] = off.abs().detach()
            near = nn.functional.huber_loss(off, torch.zeros_like(off), delta=loss.huber or 1e9)
            total = total + rows.weight[b] * (near if loss.huber else off.square())
            num_learnt += 1
    return total / max(1, num_learnt), sizes


CASES: dict[str, dict[str, Any]] = {
    "gru": {"kind": "gru"},
    "lstm": {"kind": "lstm"},
    "rescaled": {"kind": "gru", "rescale": True},
    "squared": {"kind": "gru", "huber": None},
    "without burn-in": {"kind": "gru", "burn_in": 0},
    "of one step": {"kind": "lstm", "n": 1},
    "over all steps": {"kind": "gru", "n": STEPS},
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_a_loop_in_float64(name: str) -> None:
    """Adam's mean after its first step is the gradient times 1 - beta1."""
    loss = make(**CASES[name])
    rows, exact = batch(loss, 5), copy.deepcopy(loss).double()
    total, sizes = step_by_step(exact, rows)
    names = [f"network.{name}" for name, _ in loss.network.named_parameters()]
    grads = torch.autograd.grad(total, [exact.get_parameter(each) for each in names])
    optimizer = torch.optim.Adam(loss.network.parameters(), betas=(0.5, 0.999))
    parts = loss.sequences(rows, start=START)
    found = LossLearner(loss, optimizer).update(parts)
    assert found.loss == pytest.approx(total.item(), rel=1e-5)
    largest = max(each.abs().max().item() for each in grads)
    for each, expected in zip(names, grads, strict=True):
        ours = optimizer.state[loss.get_parameter(each)]["exp_avg"].double() / 0.5
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5 * largest, msg=each)
    off = found.outputs[:, 1 : 1 + STEPS]
    np.testing.assert_allclose(np.abs(off), sizes, rtol=1e-5, atol=2e-6)
    for eta in (0.0, 0.7, 1.0):
        counts = np.maximum((sizes.numpy() > 0).sum(1), 1)
        expected_priority = eta * sizes.numpy().max(1) + (1 - eta) * sizes.numpy().sum(1) / counts
        np.testing.assert_allclose(
            loss.priorities(parts, off, eta), expected_priority, rtol=1e-5, atol=2e-6
        )


def test_many_steps_end_where_those_of_torch_end() -> None:
    loss = make("gru", rescale=True)
    exact, before = copy.deepcopy(loss).double(), copy.deepcopy(loss.target_network)
    learner = LossLearner(loss, torch.optim.Adam(loss.network.parameters(), lr=1e-3))
    theirs = [*exact.network.parameters()]
    optimizer = torch.optim.Adam(theirs, lr=1e-3)
    for seed in range(10):
        rows = batch(loss, seed, 9)
        learner.update(loss.sequences(rows, start=START), max_grad_norm=0.5)
        optimizer.zero_grad()
        step_by_step(exact, rows)[0].backward()
        nn.utils.clip_grad_norm_(theirs, 0.5)
        optimizer.step()
    for mine, its in zip(loss.network.parameters(), theirs, strict=True):
        torch.testing.assert_close(mine.double(), its, rtol=0, atol=2e-5)
    assert all(map(torch.equal, loss.target_network.parameters(), before.parameters()))


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    ends = []
    for num_threads in (1, 2, 4):
        loss = make()
        learner = LossLearner(loss, torch.optim.Adam(loss.network.parameters()), num_threads)
        for seed in range(2):
            learner.update(loss.sequences(batch(loss, seed, 150), start=START))
        ends.append([each.detach().clone() for each in loss.network.parameters()])
    for end in ends[1:]:
        assert all(map(torch.equal, ends[0], end))


def test_sequences_without_a_step_to_learn_from_change_nothing() -> None:
    loss = make()
    rows = batch(loss, 1)
    rows.num_steps[:] = 1
    rows.valid[1:], rows.first[0] = False, False
    before = copy.deepcopy(loss.network)
    optimizer = torch.optim.SGD(loss.network.parameters(), lr=1.0)
    found = LossLearner(loss, optimizer).update(loss.sequences(rows, start=START))
    assert found.loss == 0 and not found.outputs[:, : 1 + STEPS].any()
    assert all(map(torch.equal, loss.network.parameters(), before.parameters()))


def test_the_paper_s_sequences_of_120_steps_are_read() -> None:
    loss = make(num_steps=120, burn_in=40, n=5)
    LossLearner(loss, torch.optim.Adam(loss.network.parameters()))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"burn_in": STEPS}, "burn_in is 9, expected a whole number from 0 to 8"),
        ({"n": STEPS + 1}, "n is 10, expected a whole number from 1 to 9"),
        ({"num_steps": 0}, "num_steps is 0"),
    ],
)
def test_lengths_that_do_not_fit_are_named(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        make(**changed)


def test_sequences_of_another_length_are_refused() -> None:
    with pytest.raises(SpecError, match="have 7 steps and a burn-in of 2, expected 9 and 3"):
        make().sequences(batch(make(num_steps=7, burn_in=2), 1))


def test_root_and_its_inverse_undo_each_other_in_float32() -> None:
    values = torch.cat([torch.linspace(-300, 300, 601), torch.linspace(-1e-3, 1e-3, 11)])
    expected = values.sign() * ((values.double().abs() + 1).sqrt() - 1) + 1e-3 * values.double()
    torch.testing.assert_close(root(values).double(), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(inverse_root(root(values)), values, rtol=1e-6, atol=0)
