# SPDX-License-Identifier: Apache-2.0
"""Gradients of programs in native code: those of torch's autograd, to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st
from program_checks import new_weights
from random_networks import BLOCKS, RandomNetwork
from torch import nn

from rollouts import _native
from rollouts.policies.program import KINDS, Op, Param, Program, parameters_of
from rollouts.policies.trace import trace


def gradients_of_params(
    program: Program, arrays: list[Any], trained: list[bool], obs: Any, given: list[Any]
) -> list[Any]:
    """Native gradients of `program.params`; None for what is not trained."""
    gradients = _native.Gradients(
        program.obs_size,
        *program.described(),
        list(program.outputs),
        list(program.state_sizes),
        trained,
    )
    found: list[Any] = gradients.run(arrays, obs, given)
    return found


def native_gradients(
    program: Program, module: nn.Module, obs: Any, given: list[Any]
) -> dict[str, Any]:
    """Gradients by the parameter's name, as the module holds it."""
    named = dict(module.named_parameters())
    state = {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}
    arrays = parameters_of(program, state)
    trained = [param.name in named for param in program.params]
    found = gradients_of_params(program, arrays, trained, obs, given)
    sums = {name: np.zeros(each.numel(), np.float64) for name, each in named.items()}
    for param, gradient in zip(program.params, found, strict=True):
        if gradient is None:
            continue
        np.add.at(sums[param.name], param.places(), gradient)
    return {name: each.reshape(named[name].shape) for name, each in sums.items()}


def torch_gradients(
    module: nn.Module, obs: Any, given: list[Any], dtype: torch.dtype = torch.float64
) -> dict[str, Any]:
    """The same by autograd."""
    module = module.to(dtype)
    outputs = module(torch.from_numpy(obs).to(dtype))
    total = torch.zeros((), dtype=dtype)
    for output, weight in zip(outputs, given, strict=True):
        wanted = torch.from_numpy(weight).to(dtype)
        total = total + (output.reshape(-1, wanted.shape[1]).expand(wanted.shape) * wanted).sum()
    names = [name for name, _ in module.named_parameters()]
    found = torch.autograd.grad(total, list(module.parameters()), allow_unused=True)
    shapes = [each.shape for each in module.parameters()]
    module.float()
    return {
        name: np.zeros(shape) if each is None else each.numpy()
        for name, each, shape in zip(names, found, shapes, strict=True)
    }


def assert_same_gradients(module: nn.Module, size: int, num_rows: int, seed: int = 1) -> None:
    """Compares with autograd in float64: 1e-5 of the largest gradient may be between them.

    Where float32 cannot do better, as behind a tanh that is nearly 1, autograd's own float32 is far
    away too: eight times its distance is added.
    """
    program = trace(module, size)
    random = np.random.default_rng(seed)
    obs = random.normal(size=(num_rows, size)).astype(np.float32)
    sizes = [program.sizes[i] for i in program.outputs]
    given = [random.normal(size=(num_rows, each)).astype(np.float32) for each in sizes]
    ours = native_gradients(program, module, obs, given)
    rounded = torch_gradients(module, obs, given, torch.float32)
    theirs = torch_gradients(module, obs, given)
    largest = max([np.abs(each).max() for each in theirs.values()] + [1.0])
    rounding = max(np.abs(rounded[name] - theirs[name]).max() for name in theirs)
    limit = 1e-5 * largest + 8 * rounding
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, rtol=0, atol=limit, err_msg=name)


RANDOM_NETWORKS = {
    "obs_size": st.integers(1, 40),
    "blocks": BLOCKS,
    "heads": st.lists(st.integers(0, 5), min_size=1, max_size=3),
    "num_rows": st.integers(1, 150),
    "seed": st.integers(0, 1000),
}


def check_random_network(obs_size: int, blocks: Any, heads: Any, num_rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    # the slope of a LayerNorm of two or three features is a difference that rounding may fill
    blocks = [block | {"is_normal": block["is_normal"] and block["size"] > 3} for block in blocks]
    module = RandomNetwork(obs_size, blocks, heads)
    new_weights(module, seed)
    assert_same_gradients(module, obs_size, num_rows, seed)


@settings(max_examples=60)
@given(**RANDOM_NETWORKS)
def test_random_networks_have_the_gradients_of_autograd(**network: Any) -> None:
    check_random_network(**network)


@pytest.mark.slow
@settings(max_examples=10_000)
@given(**RANDOM_NETWORKS)
def test_ten_thousand_random_networks_have_the_gradients_of_autograd(**network: Any) -> None:
    check_random_network(**network)


class Embedded(nn.Module):
    """Rows of tables that two numbers of the observation choose, one table read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms, self.items = nn.Embedding(7, 5), nn.Embedding(3, 4)
        self.body = nn.Linear(5 + 4 + 5, 6)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        numbers = obs.long()
        first, second = self.rooms(numbers[:, 0]), self.rooms(numbers[:, 2])
        parts = [first, self.items(numbers[:, 1]), second]
        return self.body(torch.cat(parts, -1)).tanh(), first * second


@pytest.mark.parametrize("num_rows", [1, 16, 100])
def test_tables_have_the_gradients_of_autograd(num_rows: int) -> None:
    torch.manual_seed(num_rows)
    random = np.random.default_rng(num_rows)
    # row 6 of `rooms` is never chosen, so its gradient is 0
    obs = random.integers(0, [6, 3, 6], size=(num_rows, 3)).astype(np.float32)
    module = Embedded()
    given = [random.normal(size=(num_rows, n)).astype(np.float32) for n in (6, 5)]
    ours = native_gradients(trace(module, MultiDiscrete([7, 3, 7])), module, obs, given)
    theirs = torch_gradients(module, obs, given)
    assert not ours["rooms.weight"][6].any() and ours["rooms.weight"][:6].any()
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, rtol=0, atol=2e-5, err_msg=name)


class TanhReaders(nn.Module):
    """A tanh that one layer reads, one that two layers read, and one that is also an output."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(5, size)] + [nn.Linear(size, size)] * 2)
        self.second, self.third = nn.Linear(size, 6), nn.Linear(6, size)
        self.last = nn.Linear(size, 2)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = obs
        for layer in self.layers:
            hidden = layer(hidden).tanh()
        output = self.third(self.second(hidden).tanh()).tanh()
        return output, self.last(output), self.last(hidden)


@pytest.mark.parametrize("num_rows", [1, 16, 100])
@pytest.mark.parametrize("size", [16, 30, 64])
def test_a_tanh_gets_the_gradients_of_all_its_readers(size: int, num_rows: int) -> None:
    torch.manual_seed(size)
    assert_same_gradients(TanhReaders(size), 5, num_rows)


def param(name: str, *shape: int) -> Param:
    strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    return Param(name, shape, shape, 0, strides)


SIZE = 5
# kind -> numbers, of kinds that have some; the others have none
NUMBERS: dict[str, tuple[float, ...]] = {
    "layer_norm": (1e-5,),
    "literal": (0.5, -1.0, 2.0, 0.25, 1.5),
    "slice": (2.0,),
    "clamp": (-0.4, 0.6),
    "scale": (-1.5, 0.3),
    "elu": (0.7,),
    "leaky_relu": (0.2,),
}
NUM_INPUTS = {"constant": 0, "literal": 0, "where": 3, "concat": 3}
NUM_INPUTS |= dict.fromkeys(("add", "sub", "mul", "div", "minimum", "maximum"), 2)
NUM_INPUTS |= dict.fromkeys(("greater", "greater_equal", "equal"), 2)
PARAMS = {
    "linear": (param("matrix", SIZE, SIZE), param("bias", SIZE)),
    "layer_norm": (param("gamma", SIZE), param("beta", SIZE)),
    "embedding": (param("table", 4, SIZE),),
    "constant": (param("constant", SIZE),),
}


def program_with(kind: str, input_size: int) -> Program:
    """An operation on layers of the observation, the layers' products added to what it gives.

    Logarithms and roots get what is positive; a table is read at the observation's first number.
    """
    positive = kind in ("log", "sqrt")
    ops, params = [], []
    for i in range(3):
        size = input_size if i == 1 else SIZE
        params += [param(f"weight{i}", size, SIZE), param(f"bias{i}", size)]
        ops.append(Op("linear", (0,), (2 * i, 2 * i + 1), (), size))
    ops.append(Op("exp", (1,), (), (), SIZE))
    inputs: tuple[int, ...] = (4 if positive else 1, 2, 3)[: NUM_INPUTS.get(kind, 1)]
    if kind == "embedding":
        ops.append(Op("slice", (0,), (), (0.0,), 1))
        inputs = (len(ops),)
    own = PARAMS.get(kind, ())
    size = {"slice": 2, "concat": 2 * SIZE + input_size}.get(kind, SIZE)
    numbers = NUMBERS.get(kind, ())
    ops.append(Op(kind, inputs, tuple(len(params) + i for i in range(len(own))), numbers, size))
    ops.append(Op("add", (1, 3), (), (), SIZE))
    outputs = (len(ops) - 1, len(ops))
    return Program(SIZE, tuple(ops), (*params, *own), outputs)


def slopes(program: Program, arrays: list[Any], obs: Any, given: list[Any]) -> list[Any]:
    """Central differences of the outputs' products with `given`, computed in float64."""

    def total(changed: list[Any]) -> float:
        outputs = program.evaluate(changed, obs, np.float64)
        return float(sum((out * w).sum() for out, w in zip(outputs, given, strict=True)))

    step = 1e-6
    found = []
    for i, array in enumerate(arrays):
        slope = np.zeros(array.size)
        for place in range(array.size):
            ends = []
            for sign in (1, -1):
                moved = array.copy()
                moved.flat[place] += sign * step
                ends.append(total([*arrays[:i], moved, *arrays[i + 1 :]]))
            slope[place] = (ends[0] - ends[1]) / (2 * step)
        found.append(slope)
    return found


# the second of several inputs may have one feature
CELLS = [(kind, SIZE) for kind in sorted(KINDS)]
CELLS += [(kind, 1) for kind in sorted(KINDS) if NUM_INPUTS.get(kind, 1) > 1]


@pytest.mark.parametrize(("kind", "input_size"), CELLS)
def test_each_operation_has_the_slopes_of_finite_differences(kind: str, input_size: int) -> None:
    program = program_with(kind, input_size)
    random = np.random.default_rng(len(kind))
    exact = [random.normal(size=each.shape).astype(np.float32) for each in program.params]
    if kind == "div":
        exact[3] += 4.0  # away from 0
    obs = random.normal(size=(40, SIZE)).astype(np.float32)
    if kind == "embedding":
        obs[:, 0] = random.integers(0, 4, size=40)
    given = [random.normal(size=(40, program.sizes[i])).astype(np.float32) for i in program.outputs]
    trained = [True] * len(exact)
    ours = gradients_of_params(program, exact, trained, obs, given)
    if kind == "detach":
        given[0] *= 0  # nothing comes back from this output
    theirs = slopes(program, [each.astype(np.float64) for each in exact], obs, given)
    largest = max(np.abs(each).max() for each in theirs)
    for each, found, expected in zip(program.params, ours, theirs, strict=True):
        np.testing.assert_allclose(
            found, expected, rtol=1e-4, atol=2e-5 * largest, err_msg=each.name
        )


class Compared(nn.Module):
    """Values chosen by layers that only comparisons read, whose slopes are infinite at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.judge, self.values = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        keys, values = self.judge(obs).relu().sqrt(), self.values(obs)
        chosen = torch.where(keys > keys.flip(-1), values, values * 2.0)
        return chosen, torch.where(keys[:, :1] == 0.0, values[:, :1], chosen[:, :1])


@pytest.mark.parametrize("num_rows", [1, 16, 100])
def test_what_only_comparisons_read_has_no_gradient(num_rows: int) -> None:
    torch.manual_seed(3)
    assert_same_gradients(Compared(), 5, num_rows)
