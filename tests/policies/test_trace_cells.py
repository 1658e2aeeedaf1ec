# SPDX-License-Identifier: Apache-2.0
"""Modules with memory as programs: recurrent layers, and what of them cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from program_checks import new_weights
from torch import Tensor, nn

from rollouts.errors import SpecError
from rollouts.policies.program import Program, parameters_of
from rollouts.policies.trace import tolerance, trace

State = tuple[Tensor, ...]
ROWS = 9


class Remembering(nn.Module):
    """A layer, what its state is at first, how it is called, and two heads."""

    def __init__(self, layer: nn.Module, sizes: list[tuple[int, ...]], call: Any) -> None:
        super().__init__()
        self.layer, self.sizes, self.call = layer, sizes, call
        self.heads = nn.Linear(5, 3)

    def initial_state(self) -> State:
        return tuple(torch.zeros(size) for size in self.sizes)

    def forward(self, obs: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        hidden, state = self.call(self.layer, obs, state)
        both = self.heads(hidden)
        return both[:, :2], both[:, 2], state


def cell(layer: Any, obs: Tensor, state: State) -> tuple[Tensor, State]:
    (hidden,) = new = (layer(obs, state[0]),)
    return hidden, new


def cell_of_two(layer: Any, obs: Tensor, state: State) -> tuple[Tensor, State]:
    new = layer(obs, state)
    return new[0], new


def steps(layer: Any, obs: Tensor, state: State) -> tuple[Tensor, State]:
    """One step of nn.RNN, nn.GRU or nn.LSTM, whose states have layers before rows."""
    given = tuple(each.transpose(0, 1).contiguous() for each in state)
    first = layer.batch_first
    out, new = layer(obs[:, None] if first else obs[None], given if len(given) > 1 else given[0])
    after = new if isinstance(new, tuple) else (new,)
    return out[:, 0] if first else out[0], tuple(each.transpose(0, 1) for each in after)


LAYERS: dict[str, tuple[Any, int, Any]] = {
    "gru_cell": (lambda: nn.GRUCell(6, 5), 0, cell),
    "gru_cell_without_bias": (lambda: nn.GRUCell(6, 5, bias=False), 0, cell),
    "rnn_cell": (lambda: nn.RNNCell(6, 5), 0, cell),
    "rnn_relu_cell": (lambda: nn.RNNCell(6, 5, nonlinearity="relu"), 0, cell),
    "lstm_cell": (lambda: nn.LSTMCell(6, 5), 0, cell_of_two),
    "lstm_cell_without_bias": (lambda: nn.LSTMCell(6, 5, bias=False), 0, cell_of_two),
    "gru": (lambda: nn.GRU(6, 5), 1, steps),
    "gru_of_three": (lambda: nn.GRU(6, 5, 3, batch_first=True), 3, steps),
    "gru_without_bias": (lambda: nn.GRU(6, 5, 2, bias=False), 2, steps),
    "gru_with_dropout": (lambda: nn.GRU(6, 5, 2, dropout=0.5).eval(), 2, steps),
    "lstm": (lambda: nn.LSTM(6, 5, batch_first=True), 1, steps),
    "lstm_of_two": (lambda: nn.LSTM(6, 5, 2), 2, steps),
    "rnn": (lambda: nn.RNN(6, 5, 2), 2, steps),
    "rnn_relu": (lambda: nn.RNN(6, 5, nonlinearity="relu"), 1, steps),
}


def module_of(name: str) -> Remembering:
    torch.manual_seed(0)
    make, layers, call = LAYERS[name]
    size = (layers, 5) if layers else (5,)
    return Remembering(make(), [size] * (2 if "lstm" in name else 1), call)


def assert_same_answers(program: Program, module: Remembering) -> None:
    rng = np.random.default_rng(3)
    obs = rng.normal(size=(ROWS, 6)).astype(np.float32)
    states = [rng.normal(size=(ROWS, *size)).astype(np.float32) for size in module.sizes]
    rows = np.concatenate([obs, *(each.reshape(ROWS, -1) for each in states)], 1)
    params = parameters_of(program, {n: t.numpy() for n, t in module.state_dict().items()})
    found, exact = program.evaluate(params, rows), program.evaluate(params, rows, np.float64)
    with torch.no_grad():
        logits, value, new = module(torch.from_numpy(obs), tuple(map(torch.from_numpy, states)))
    for ours, precise, output in zip(found, exact, (logits, value, *new), strict=True):
        theirs = output.numpy().reshape(ROWS, -1)
        limit = tolerance(theirs, ours, precise)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=limit)


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers_answer_as_torch_does(name: str) -> None:
    module = module_of(name)
    program = trace(module, 6)
    assert program.obs_size == 6
    assert program.state_sizes == tuple(int(np.prod(size)) for size in module.sizes)
    assert len(program.outputs) == 2 + len(module.sizes)
    assert_same_answers(program, module)
    new_weights(module)
    assert_same_answers(program, module)


@pytest.mark.parametrize("name", [each for each, (_, layers, _) in LAYERS.items() if layers])
def test_sequences_of_several_steps_are_run_step_by_step(name: str) -> None:
    """A row has three steps of six features."""

    def several(layer: Any, obs: Tensor, state: State) -> tuple[Tensor, State]:
        given = tuple(each.transpose(0, 1).contiguous() for each in state)
        time = 1 if layer.batch_first else 0
        x = torch.stack([obs, obs.flip(1), obs * 0.5], time)
        out, new = layer(x, given if len(given) > 1 else given[0])
        after = new if isinstance(new, tuple) else (new,)
        return out.sum(time), tuple(each.transpose(0, 1) for each in after)

    module = module_of(name)
    module.call = several
    assert_same_answers(trace(module, 6), module)


def test_a_cell_is_two_layers_and_its_gates() -> None:
    kinds = [op.kind for op in trace(module_of("gru_cell"), 6).ops if op.kind != "slice"]
    gates = ["add", "sigmoid", "mul", "add", "tanh", "sub", "mul", "add"]
    assert kinds == ["linear", "linear", *gates, "linear"]


def test_a_state_may_be_passed_on_or_forgotten() -> None:
    forgetful = Remembering(
        nn.Linear(6, 5), [(5,), ()], lambda layer, obs, s: (layer(obs), (s[0] * 0, s[1]))
    )
    program = trace(forgetful, 6)
    assert program.state_sizes == (5, 1)
    assert_same_answers(program, forgetful)


def unbatched(layer: Any, obs: Tensor, state: State) -> tuple[Tensor, State]:
    out, _ = layer(obs)
    return out, state


def as_steps(layer: Any, obs: Tensor, state: State) -> tuple[Tensor, State]:
    out, _ = layer(obs[None])
    return out[0], state


def packed(layer: Any, obs: Tensor, state: State) -> tuple[Tensor, State]:
    sequence = nn.utils.rnn.pack_sequence([row[None] for row in obs])
    out, _ = layer(sequence)
    return out.data, state


def both_ways(layer: Any, obs: Tensor, state: State) -> tuple[Tensor, State]:
    out, _ = layer(obs[None])
    return out[0, :, :5], state


def projected(layer: Any, obs: Tensor, state: State) -> tuple[Tensor, State]:
    out, _ = layer(obs[None])
    return torch.cat([out[0], out[0, :, :2]], -1), state


REFUSED: dict[str, tuple[nn.Module, Callable[..., Any]]] = {
    "the rows of a batch are the steps of a sequence": (nn.GRU(6, 5), unbatched),
    r"expected \(B, steps, features\)": (nn.GRU(6, 5, batch_first=True), as_steps),
    "it runs both ways": (nn.GRU(6, 5, bidirectional=True), both_ways),
    "it drops out in training mode": (nn.GRU(6, 5, 2, dropout=0.5), both_ways),
    "it projects its state": (nn.LSTM(6, 5, proj_size=3), projected),
    "pad_sequence, which native code does not have": (nn.LSTM(6, 5), packed),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_other_sequences_are_refused_by_layer(sentence: str) -> None:
    layer, call = REFUSED[sentence]
    with pytest.raises(SpecError, match=sentence) as caught:
        trace(Remembering(layer, [(1, 5)], call), 6)
    assert "engine='torch'" in str(caught.value)


def test_a_state_of_another_shape_is_named() -> None:
    module = Remembering(
        nn.Linear(6, 5), [(5,)], lambda layer, obs, s: (layer(obs), (s[0][:, :2],))
    )
    with pytest.raises(SpecError, match=r"expected its new state: .* of shapes \[\(29, 5\)\]"):
        trace(module, 6)


@pytest.mark.parametrize("state", [(), torch.zeros(3), (torch.zeros(3, dtype=torch.int64),)])
def test_states_of_other_kinds_are_refused(state: Any) -> None:
    class Own(nn.Module):
        def initial_state(self) -> Any:
            return state

    with pytest.raises(SpecError, match=r"Own\.initial_state\(\) returned .*tuple of float32"):
        trace(Own(), 6)
