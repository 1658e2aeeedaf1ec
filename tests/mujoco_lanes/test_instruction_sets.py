# SPDX-License-Identifier: Apache-2.0
"""ROLLOUTS_MUJOCO_LANES chooses the instruction set of the lanes, to test and to measure it."""

from __future__ import annotations

import numpy as np
import pytest
from forked import Ended, run_forked

import rollouts
from rollouts import _native


def shown() -> tuple[list[np.ndarray], list[int]]:
    """Observations of some steps, and the widths of lanes."""
    seen = []
    for env_id in ("HalfCheetah-v5", "Hopper-v5"):
        with rollouts.make_vec(env_id, 11, engine="lanes", num_threads=1) as env:
            env.reset(seed=5)
            actions = np.random.default_rng(0).uniform(-1, 1, (8, *env.action_space.shape))
            for one in actions.astype(np.float32):
                seen.append(env.step(one)[0].copy())
            assert env.stats().num_steps_in_lanes == 8 * 11
    return seen, _native.lanes_widths()


def _run(instruction_set: str) -> Ended:
    return run_forked(shown, environ={"ROLLOUTS_MUJOCO_LANES": instruction_set})


def _seen(instruction_set: str) -> tuple[list[np.ndarray], list[int]]:
    ended = _run(instruction_set)
    if "this machine can run" in ended.stderr:
        pytest.skip(f"this machine cannot run {instruction_set}")
    assert ended.exitcode == 0, ended.stderr
    found: tuple[list[np.ndarray], list[int]] = ended.returned
    return found


@pytest.fixture(scope="module")
def widest() -> list[np.ndarray]:
    return _seen("")[0]


@pytest.mark.parametrize(
    ("instruction_set", "widths"),
    [("avx512", [8, 4, 2, 1]), ("avx2", [4, 2, 1]), ("baseline", [2, 1])],
)
def test_instruction_sets_step_alike(
    widest: list[np.ndarray], instruction_set: str, widths: list[int]
) -> None:
    found, its_widths = _seen(instruction_set)
    assert its_widths == widths
    for values, wanted in zip(found, widest, strict=True):
        # fused multiply-adds are in some of them and not in others; eight steps are 40 substeps
        assert np.abs(values - wanted).max() < 1e-8 * np.abs(values).max()
        if instruction_set != "baseline":
            np.testing.assert_array_equal(values, wanted)


def test_an_unknown_instruction_set_is_named() -> None:
    ended = _run("sse9")
    assert ended.exitcode != 0
    assert "ROLLOUTS_MUJOCO_LANES is 'sse9', and this machine can run: " in ended.stderr
    assert "baseline" in ended.stderr
