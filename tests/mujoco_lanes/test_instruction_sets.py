# SPDX-License-Identifier: Apache-2.0
"""ROLLOUTS_MUJOCO_LANES chooses the instruction set of the lanes, to test and to measure it."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from processes import environ_with_path

PROGRAM = """
import sys
import numpy as np
import rollouts
from rollouts import _native

seen = []
for env_id in ("HalfCheetah-v5", "Hopper-v5"):
    with rollouts.make_vec(env_id, 11, engine="lanes", num_threads=1) as env:
        env.reset(seed=5)
        actions = np.random.default_rng(0).uniform(-1, 1, (8, *env.action_space.shape))
        for one in actions.astype(np.float32):
            seen.append(env.step(one)[0].copy())
        assert env.stats().num_steps_in_lanes == 8 * 11
np.savez(sys.stdout.buffer, *seen, widths=_native.lanes_widths())
"""


def _run(instruction_set: str) -> subprocess.CompletedProcess[bytes]:
    env = environ_with_path() | {"ROLLOUTS_MUJOCO_LANES": instruction_set}
    return subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, env=env)


def _seen(instruction_set: str) -> dict[str, np.ndarray]:
    done = _run(instruction_set)
    if b"this machine can run" in done.stderr:
        pytest.skip(f"this machine cannot run {instruction_set}")
    assert done.returncode == 0, done.stderr.decode()
    return dict(np.load(io.BytesIO(done.stdout)))


@pytest.fixture(scope="module")
def widest() -> dict[str, np.ndarray]:
    return _seen("")


@pytest.mark.parametrize(
    ("instruction_set", "widths"),
    [("avx512", [8, 4, 2, 1]), ("avx2", [4, 2, 1]), ("baseline", [2, 1])],
)
def test_instruction_sets_step_alike(
    widest: dict[str, np.ndarray], instruction_set: str, widths: list[int]
) -> None:
    found = _seen(instruction_set)
    assert found.pop("widths").tolist() == widths
    for name, values in found.items():
        # fused multiply-adds are in some of them and not in others; eight steps are 40 substeps
        assert np.abs(values - widest[name]).max() < 1e-8 * np.abs(values).max()
        if instruction_set != "baseline":
            np.testing.assert_array_equal(values, widest[name])


def test_an_unknown_instruction_set_is_named() -> None:
    done = _run("sse9")
    assert done.returncode != 0
    said = done.stderr.decode()
    assert "ROLLOUTS_MUJOCO_LANES is 'sse9', and this machine can run: " in said
    assert "baseline" in said
