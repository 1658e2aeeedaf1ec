# SPDX-License-Identifier: Apache-2.0
"""Gradients of programs in native code: those of torch's autograd, to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from program_checks import new_weights
from random_networks import BLOCKS, RandomNetwork
from torch import nn

from rollouts import _native
from rollouts.policies.program import Program, parameters_of
from rollouts.policies.trace import trace


def native_gradients(
    program: Program, module: nn.Module, obs: Any, given: list[Any]
) -> dict[str, Any]:
    """Gradients by the parameter's name, as the module holds it."""
    named = dict(module.named_parameters())
    state = {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}
    arrays = parameters_of(program, state)
    gradients = _native.Gradients(
        program.obs_size,
        [(op.kind, op.inputs, op.params, op.numbers, op.size) for op in program.ops],
        [(param.name, array.size) for param, array in zip(program.params, arrays, strict=True)],
        list(program.outputs),
        list(program.state_sizes),
        [param.name in named for param in program.params],
    )
    found = gradients.run(arrays, obs, given)
    sums = {name: np.zeros(each.numel(), np.float64) for name, each in named.items()}
    for param, gradient in zip(program.params, found, strict=True):
        if gradient is None:
            continue
        places = param.start + sum(
            np.arange(n).reshape([-1 if i == axis else 1 for i in range(len(param.shape))]) * stride
            for axis, (n, stride) in enumerate(zip(param.shape, param.strides, strict=True))
        )
        np.add.at(sums[param.name], np.broadcast_to(places, param.shape).ravel(), gradient)
    return {name: each.reshape(named[name].shape) for name, each in sums.items()}


def torch_gradients(module: nn.Module, obs: Any, given: list[Any]) -> dict[str, Any]:
    """The same by autograd, in float64."""
    module = module.double()
    outputs = module(torch.from_numpy(obs).double())
    total = torch.zeros((), dtype=torch.float64)
    for output, weight in zip(outputs, given, strict=True):
        wanted = torch.from_numpy(weight).double()
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
    program = trace(module, size)
    random = np.random.default_rng(seed)
    obs = random.normal(size=(num_rows, size)).astype(np.float32)
    sizes = [program.sizes[i] for i in program.outputs]
    given = [random.normal(size=(num_rows, each)).astype(np.float32) for each in sizes]
    ours = native_gradients(program, module, obs, given)
    theirs = torch_gradients(module, obs, given)
    largest = max([np.abs(each).max() for each in theirs.values()] + [1.0])
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, rtol=0, atol=1e-5 * largest, err_msg=name)


@settings(max_examples=60)
@given(
    obs_size=st.integers(1, 40),
    blocks=BLOCKS,
    heads=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    num_rows=st.integers(1, 150),
    seed=st.integers(0, 1000),
)
def test_random_networks_have_the_gradients_of_autograd(
    obs_size: int, blocks: Any, heads: Any, num_rows: int, seed: int
) -> None:
    torch.manual_seed(seed)
    module = RandomNetwork(obs_size, blocks, heads)
    new_weights(module, seed)
    assert_same_gradients(module, obs_size, num_rows, seed)
