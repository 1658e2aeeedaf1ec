# SPDX-License-Identifier: Apache-2.0
"""The installed MuJoCo, and lanes, step kept states as the MuJoCo did that they were kept of."""

from __future__ import annotations

from pathlib import Path

import pytest

from comparisons.verify_mujoco.golden_states import compare_with_golden, read, release
from comparisons.verify_mujoco.models import subject_of

GOLDEN = read(Path(__file__).parent / "golden.npz")


@pytest.mark.parametrize("env_id", GOLDEN.states)
def test_steps_are_those_that_were_kept(env_id: str) -> None:
    if tuple(map(int, release().split("."))) < tuple(map(int, GOLDEN.release.split("."))):
        pytest.skip(f"states of MuJoCo {GOLDEN.release} are kept, {release()} is installed")
    # a later release that steps otherwise is to be looked at, and the file recorded anew:
    # rollouts verify-mujoco --record tests/mujoco_lanes/golden.npz
    assert compare_with_golden(subject_of(env_id), GOLDEN) is None
