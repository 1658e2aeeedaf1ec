# SPDX-License-Identifier: Apache-2.0
"""Gradients of networks with memory in native code: those of autograd through random sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rollouts import _native
from rollouts.errors import SpecError
from rollouts.policies.program import Program, parameters_of
from rollouts.policies.trace import trace
from rollouts.recurrent import reset_where

State = tuple[Tensor, ...]
OBS = 5
CELLS = {"gru": nn.GRUCell, "lstm": nn.LSTMCell, "rnn": nn.RNNCell}


class Remembering(nn.Module):
    """An encoder, a cell of a kind or several, and two heads; one of them may read a state."""

    initial: Tensor

    def __init__(self, kinds: list[str], size: int, *, reads_state: bool, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.encoder = nn.Sequential(nn.Linear(OBS, size), nn.Tanh())
        self.cells = nn.ModuleList(CELLS[kind](size, size) for kind in kinds)
        self.first, self.second = nn.Linear(size, 3), nn.Linear(size + reads_state, 1)
        self.register_buffer("initial", torch.randn(size))
        self.reads_state = reads_state

    def initial_state(self) -> State:
        count = sum(2 if isinstance(each, nn.LSTMCell) else 1 for each in self.cells)
        return (*[self.initial * 0.5] * count, self.initial[:1])

    def forward(self, obs: Tensor, state: State) -> tuple[Any, ...]:
        *before, counter = state
        x, after = self.encoder(obs), []
        for cell in self.cells:
            if isinstance(cell, nn.LSTMCell):
                new = cell(x, (before.pop(0), before.pop(0)))
            else:
                new = (cell(x, before.pop(0)),)
            x = x + new[0]
            after += new
        seen = torch.cat([x, counter], -1) if self.reads_state else x
        # a state that is only passed on and grows
        return self.first(x), self.second(seen), (*after, counter * 0.9 + obs[:, :1])


def sequences(
    module: Remembering, steps: int, count: int, seed: int, resets: float = 0.2
) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    states = [tuple(each.shape) for each in module.initial_state()]
    sizes = (3, 1, *(size for (size,) in states))
    return {
        "obs": random.normal(size=(steps, count, OBS)).astype(np.float32),
        "states": random.normal(size=(count, sum(sizes[2:]))).astype(np.float32),
        "ended": random.random((steps, count)) < resets,
        "given": [random.normal(size=(steps, count, n)).astype(np.float32) for n in sizes],
    }


def total_of(module: nn.Module, how: dict[str, Any], dtype: torch.dtype, burn_in: int) -> Tensor:
    """The sum of what is given times what the module returns, by a loop over the steps."""
    initial = tuple(each.to(dtype) for each in module.initial_state())  # type: ignore[operator]
    obs, states = (torch.from_numpy(how[name]).to(dtype) for name in ("obs", "states"))
    state: State = states.split([len(each) for each in initial], 1)
    total = torch.zeros((), dtype=dtype)
    for t in range(len(obs)):
        if t == burn_in:
            state = tuple(each.detach() for each in state)
        *outputs, state = module(obs[t], state)
        for output, weights in zip([*outputs, *state], how["given"], strict=True):
            if t >= burn_in:
                total = total + (output * torch.from_numpy(weights[t]).to(dtype)).sum()
        state = reset_where(torch.from_numpy(how["ended"][t]), initial, state)
    return total


def by_autograd(module: nn.Module, how: dict[str, Any], dtype: torch.dtype, burn_in: int) -> Any:
    module = module.to(dtype)
    total = total_of(module, how, dtype, burn_in)
    found = torch.autograd.grad(total, list(module.parameters()), allow_unused=True)
    pairs = zip(module.named_parameters(), found, strict=True)
    sums = {n: np.zeros(p.shape) if g is None else g.double().numpy() for (n, p), g in pairs}
    module.float()
    return sums


def in_native_code(
    program: Program, module: Remembering, how: dict[str, Any], burn_in: int
) -> dict[str, Any]:
    named = dict(module.named_parameters())
    state = {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}
    gradients = _native.Gradients(
        program.obs_size,
        *program.described(),
        list(program.outputs),
        list(program.state_sizes),
        [param.name in named for param in program.params],
    )
    initial = np.concatenate([each.numpy() for each in module.initial_state()])
    found = gradients.run_sequences(
        parameters_of(program, state),
        how["obs"],
        how["states"],
        initial,
        how["ended"],
        how["given"],
        burn_in,
    )
    sums = {name: np.zeros(each.numel()) for name, each in named.items()}
    for param, gradient in zip(program.params, found, strict=True):
        if gradient is not None:
            np.add.at(sums[param.name], param.places(), gradient)
    return {name: each.reshape(named[name].shape) for name, each in sums.items()}


def assert_same(module: Remembering, how: dict[str, Any], burn_in: int = 0) -> None:
    """1e-5 of the largest gradient may be between both, and what rounding does to autograd's."""
    ours = in_native_code(trace(module, OBS), module, how, burn_in)
    rounded = by_autograd(module, how, torch.float32, burn_in)
    theirs = by_autograd(module, how, torch.float64, burn_in)
    largest = max([np.abs(each).max() for each in theirs.values()] + [1.0])
    rounding = max(np.abs(rounded[name] - theirs[name]).max() for name in theirs)
    for name, expected in theirs.items():
        limit = 1e-5 * largest + 8 * rounding
        np.testing.assert_allclose(ours[name], expected, rtol=0, atol=limit, err_msg=name)


RANDOM_SEQUENCES = {
    "kinds": st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=2),
    "size": st.integers(1, 40),
    "reads_state": st.booleans(),
    "steps": st.integers(1, 12),
    "count": st.integers(1, 80),
    "resets": st.sampled_from([0.0, 0.2, 1.0]),
    "burn_in": st.integers(0, 4),
    "seed": st.integers(0, 1000),
}


def check_random_sequences(
    kinds: list[str], size: int, reads_state: bool, steps: int, count: int, **how: Any
) -> None:
    module = Remembering(kinds, size, reads_state=reads_state, seed=how["seed"])
    given = sequences(module, steps, count, how["seed"], how["resets"])
    assert_same(module, given, min(how["burn_in"], steps - 1))


@settings(max_examples=50, deadline=None)
@given(**RANDOM_SEQUENCES)
def test_random_sequences_have_the_gradients_of_autograd(**how: Any) -> None:
    check_random_sequences(**how)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(**RANDOM_SEQUENCES)
def test_thousands_of_sequences_have_the_gradients_of_autograd(**how: Any) -> None:
    check_random_sequences(**how)


def test_sequences_that_do_not_fit_a_chunk_have_the_gradients_of_autograd() -> None:
    """So many steps that a thread keeps fewer groups of columns, and more sequences than these."""
    module = Remembering(["lstm"], 32, reads_state=False, seed=3)
    assert_same(module, sequences(module, 150, 50, 3))


@pytest.mark.parametrize("kind", sorted(CELLS))
def test_a_cell_has_the_gradients_of_finite_differences(kind: str) -> None:
    """Differences of the same sum in float64, along one direction for each parameter."""
    module = Remembering([kind], 6, reads_state=True, seed=1)
    how = sequences(module, 5, 3, 1)
    ours = in_native_code(trace(module, OBS), module, how, 0)
    module.double()
    random = np.random.default_rng(1)
    step = 1e-6
    for name, param in module.named_parameters():
        direction = torch.from_numpy(random.normal(size=param.shape))
        sides = []
        for sign in (1, -1):
            with torch.no_grad():
                param += sign * step * direction
                sides.append(total_of(module, how, torch.float64, 0).item())
                param -= sign * step * direction
        slope = (sides[0] - sides[1]) / (2 * step)
        size = np.abs(ours[name] * direction.numpy()).sum()
        assert (ours[name] * direction.numpy()).sum() == pytest.approx(slope, abs=1e-5 * size)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("obs", (4, 3, 6)), ("states", (2, 7)), ("states", (3, 6)), ("ended", (4, 2))],
)
def test_sequences_of_other_shapes_are_refused(name: str, shape: tuple[int, ...]) -> None:
    module = Remembering(["gru"], 6, reads_state=True, seed=1)
    how = sequences(module, 4, 3, 1)
    how[name] = np.zeros(shape, how[name].dtype)
    with pytest.raises(SpecError, match=r"gradients are \(B, size\) or \(T, B, size\)"):
        in_native_code(trace(module, OBS), module, how, 0)
