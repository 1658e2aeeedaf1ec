# SPDX-License-Identifier: Apache-2.0
"""Steps of recurrent layers: cells, and nn.RNN, nn.GRU and nn.LSTM over one step or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rollouts.policies.tracing import arithmetic as ops
from rollouts.policies.tracing.call import FunctionCall
from rollouts.policies.tracing.registers import Tags, Unreadable, without_rows

State = tuple[Tags, ...]
# (weight_ih, weight_hh, bias_ih, bias_hh), or only the first two
Weights = Sequence[Any]
# maps the input (B, features) to the new state (B, size), whose first part is the output
Step = Callable[[FunctionCall, Tags, State, Weights], State]

_CALL_OF_SEQUENCE = 9  # arguments, as torch.nn gives them


def _gates(call: FunctionCall, x: Tags, h: Tags, weights: Weights) -> tuple[Tags, Tags]:
    """The two linear layers of a cell: of the input and of the state."""
    tags = [None if each is None else call.memory.read(each) for each in weights]
    w_ih, w_hh, b_ih, b_hh = [*tags, None, None][:4]
    assert w_ih is not None and w_hh is not None
    return ops.linear(call.registers, x, w_ih, b_ih), ops.linear(call.registers, h, w_hh, b_hh)


def _rnn(kind: str) -> Step:
    def step(call: FunctionCall, x: Tags, state: State, weights: Weights) -> State:
        return (call.unary(kind, call.binary("add", *_gates(call, x, state[0], weights))),)

    return step


def _gru(call: FunctionCall, x: Tags, state: State, weights: Weights) -> State:
    """h' = n + z (h - n), n = tanh(i_n + r h_n); r and z are sigmoids of sums."""
    (h,) = state
    of_x, of_h = _gates(call, x, h, weights)
    size = h.shape[-1]
    both = call.binary("add", of_x[..., : 2 * size], of_h[..., : 2 * size])
    gates = call.unary("sigmoid", both)
    reset, keep = gates[..., :size], gates[..., size:]
    recalled = call.binary("mul", reset, of_h[..., 2 * size :])
    new = call.unary("tanh", call.binary("add", of_x[..., 2 * size :], recalled))
    return (call.binary("add", new, call.binary("mul", keep, call.binary("sub", h, new))),)


def _lstm(call: FunctionCall, x: Tags, state: State, weights: Weights) -> State:
    """c' = f c + i g, h' = o tanh(c'); gates are in the order i, f, g, o."""
    h, c = state
    size = c.shape[-1]
    if h.shape[-1] != size:
        raise Unreadable("it projects its state (proj_size)")
    gates = call.binary("add", *_gates(call, x, h, weights))
    ends = call.unary("sigmoid", gates[..., : 2 * size])
    added = call.unary("tanh", gates[..., 2 * size : 3 * size])
    shown = call.unary("sigmoid", gates[..., 3 * size :])
    kept = call.binary("mul", ends[..., size:], c)
    memory = call.binary("add", kept, call.binary("mul", ends[..., :size], added))
    return call.binary("mul", shown, call.unary("tanh", memory)), memory


def _state_of(call: FunctionCall, value: Any) -> State:
    many = isinstance(value, list | tuple)
    return tuple(call.memory.read(each) for each in (value if many else (value,)))


def _cell(step: Step) -> Callable[[FunctionCall], Tags | State]:
    def compute(call: FunctionCall) -> Tags | State:
        names = ("w_ih", "w_hh", "b_ih", "b_hh")
        weights = [call.value(2 + i, name) for i, name in enumerate(names)]
        state = step(call, call.first, _state_of(call, call.value(1, "hx")), weights)
        return state if len(state) > 1 else state[0]

    return compute


def _sequence(step: Step) -> Callable[[FunctionCall], State]:
    """Steps through all layers; returns the outputs and the last states (layers, B, size)."""

    def compute(call: FunctionCall) -> State:
        x, states, weights, num_weights, batch_first = _read_sequence(call)
        time = 1 if batch_first else 0
        rows, last = list(np.moveaxis(x, time, 0)), []
        for layer in range(len(weights) // num_weights):
            own = weights[num_weights * layer : num_weights * (layer + 1)]
            state = tuple(each[layer] for each in states)
            for place, row in enumerate(rows):
                state = step(call, row, state, own)
                rows[place] = state[0]
            last.append(state)
        return (np.stack(rows, time), *map(np.stack, zip(*last, strict=True)))

    return compute


def _read_sequence(call: FunctionCall) -> tuple[Tags, State, Weights, int, bool]:
    """Input, states, weights, number of weights per layer, and whether rows come first.

    Raises:
      Unreadable: The rows of a batch are its steps, or its layers have unsupported settings.
    """
    args = call.args
    if len(args) != _CALL_OF_SEQUENCE or not isinstance(args[2], list | tuple):
        raise Unreadable("it reads packed sequences")
    _, hx, weights, has_biases, num_layers, dropout, training, both_ways, batch_first = args
    x, num_weights = call.first, 4 if has_biases else 2
    if both_ways:
        raise Unreadable("it runs both ways (bidirectional)")
    if dropout and training and num_layers > 1:
        raise Unreadable("it drops out in training mode, call module.eval() first")
    if len(weights) != num_layers * num_weights:
        raise Unreadable("it projects its state (proj_size)")
    if x.ndim != 3 or without_rows(x)[0] == (1 if batch_first else 0):
        expected = "(B, steps, features)" if batch_first else "(steps, B, features)"
        raise Unreadable(f"the rows of a batch are the steps of a sequence, expected {expected}")
    return x, _state_of(call, hx), weights, num_weights, batch_first


CELLS: dict[str, Callable[[FunctionCall], Tags | State]] = {
    "rnn_tanh_cell": _cell(_rnn("tanh")),
    "rnn_relu_cell": _cell(_rnn("relu")),
    "gru_cell": _cell(_gru),
    "lstm_cell": _cell(_lstm),
    "rnn_tanh": _sequence(_rnn("tanh")),
    "rnn_relu": _sequence(_rnn("relu")),
    "gru": _sequence(_gru),
    "lstm": _sequence(_lstm),
}
