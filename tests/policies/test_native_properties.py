# SPDX-License-Identifier: Apache-2.0
"""Random networks and observations: native code answers as torch does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from program_checks import new_weights  # noqa: E402
from random_networks import BLOCKS, RandomNetwork  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from rollouts.policies.native import NativePolicy  # noqa: E402
from rollouts.policies.program import parameters_of  # noqa: E402
from rollouts.policies.trace import as_space, random_rows, tolerance  # noqa: E402

TWO, BOX = spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.float32)
CASES = {
    "obs_size": st.integers(1, 30),
    "blocks": BLOCKS,
    "head": st.integers(0, 4),
    "is_box": st.booleans(),
    "seed": st.integers(0, 2**31),
    "num_rows": st.integers(1, 40),
}


class Acting(nn.Module):
    """(logits, value) or (mean, log_std, value) of a random network."""

    def __init__(self, network: RandomNetwork, *, is_box: bool) -> None:
        super().__init__()
        self.network, self.is_box = network, is_box

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        first, *_, log_std, value = self.network(obs)
        return (first, log_std, value) if self.is_box else (first, value)


def assert_native_is_torchs(policy: NativePolicy, module: nn.Module, rows: Any) -> None:
    """Each output is torch's within 1e-5 of the largest, and what rounding makes of it."""
    program = policy.program
    state = {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}
    exact = program.evaluate(parameters_of(program, state), rows, np.float64)
    with torch.no_grad():
        outputs = module(torch.from_numpy(rows.copy()))
    found = policy.module_outputs(rows)
    assert len(found) == len(outputs)
    for ours, precise, output in zip(found, exact, outputs, strict=True):
        theirs = np.broadcast_to(output.detach().numpy().reshape(-1, ours.shape[1]), ours.shape)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance(theirs, ours, precise))


def check(
    obs_size: int, blocks: list[dict[str, Any]], head: int, is_box: bool, seed: int, num_rows: int
) -> None:
    torch.manual_seed(seed)
    module = Acting(RandomNetwork(obs_size, blocks, [head]), is_box=is_box)
    policy = NativePolicy.from_torch(module, BOX if is_box else TWO, obs_size)
    rows = random_rows(as_space(obs_size), num_rows, np.random.default_rng(seed))
    assert_native_is_torchs(policy, module, rows)
    # and after an update, in place
    new_weights(module, seed)
    assert_native_is_torchs(policy, module, rows)


@settings(max_examples=60)
@given(**CASES)
def test_native_code_answers_as_torch_does(**case: Any) -> None:
    check(**case)


@pytest.mark.slow
@settings(
    max_examples=10_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(**CASES)
def test_native_code_answers_as_torch_does_10_000_times(**case: Any) -> None:
    check(**case)
