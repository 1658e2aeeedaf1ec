# SPDX-License-Identifier: Apache-2.0
"""Random networks and observations: programs answer as torch does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from program_checks import assert_same_answers, new_weights  # noqa: E402
from random_networks import BLOCKS, RandomNetwork  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from rollouts.policies.program import KINDS, parameters_of  # noqa: E402
from rollouts.policies.trace import trace  # noqa: E402


@settings(max_examples=60)
@given(
    obs_size=st.integers(1, 30),
    blocks=BLOCKS,
    heads=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    seed=st.integers(0, 2**31),
    num_rows=st.integers(1, 40),
)
def test_programs_answer_as_torch_does(
    obs_size: int, blocks: list[dict[str, Any]], heads: list[int], seed: int, num_rows: int
) -> None:
    torch.manual_seed(seed)
    module = RandomNetwork(obs_size, blocks, heads)
    program = trace(module, obs_size)
    assert {op.kind for op in program.ops} <= KINDS
    assert_same_answers(program, module, obs_size, num_rows=num_rows)
    # single assignment: an operation reads what is written before it, and all that is, is read
    read = {register for op in program.ops for register in op.inputs} | {*program.outputs}
    assert all(max(op.inputs, default=0) <= place for place, op in enumerate(program.ops))
    assert read >= {*range(1, len(program.ops) + 1)}
    new_weights(module, seed)
    assert_same_answers(program, module, obs_size, num_rows=num_rows)


@settings(max_examples=40)
@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), data=st.data())
def test_parameters_are_views_of_the_state_dict(shape: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.permutations(range(len(shape))))
    cuts = [data.draw(st.integers(0, size - 1)) for size in shape]

    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.array = nn.Parameter(torch.randn(shape))

        def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
            part = self.array[tuple(slice(cut, None) for cut in cuts)]
            return obs, part.permute(*axes).reshape(-1)

    module = Constant()
    program = trace(module, 2)
    state = {"array": np.arange(np.prod(shape), dtype=np.float64).reshape(shape)}
    _, own = program.evaluate(parameters_of(program, state), np.zeros((3, 2), np.float32))
    part = state["array"][tuple(slice(cut, None) for cut in cuts)].transpose(axes).reshape(-1)
    assert np.array_equal(own, np.broadcast_to(part.astype(np.float32), own.shape))
