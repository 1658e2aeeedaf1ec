# SPDX-License-Identifier: Apache-2.0
"""Comparisons of programs with the torch modules they were made of."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from rollouts.policies.program import Program, parameters_of
from rollouts.policies.trace import as_space, random_rows, tolerance


def new_weights(module: nn.Module, seed: int = 1) -> None:
    """Other numbers in all parameters and buffers of floats; variances stay positive."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                numbers = torch.randn(tensor.shape, generator=generator) * 0.5
                tensor.copy_(numbers.abs() if "var" in name or "const" in name else numbers)


def assert_same_answers(
    program: Program, module: nn.Module, space: gymnasium.Space[Any] | int, *, num_rows: int = 5
) -> None:
    """The program's outputs are the module's within `tolerance`."""
    rows = random_rows(as_space(space), num_rows, np.random.default_rng(7))
    state = {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}
    params = parameters_of(program, state)
    own, exact = program.evaluate(params, rows), program.evaluate(params, rows, np.float64)
    with torch.no_grad():
        outputs = module(torch.from_numpy(rows.copy()))
    assert len(own) == len(outputs)
    for ours, precise, output in zip(own, exact, outputs, strict=True):
        assert ours.dtype == np.float32
        theirs = output.detach().numpy().reshape(-1, ours.shape[1])
        theirs = np.broadcast_to(theirs, ours.shape)
        limit = tolerance(theirs, ours, precise)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=limit)
