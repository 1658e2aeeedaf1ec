# SPDX-License-Identifier: Apache-2.0
"""The examples for Stable-Baselines3 and CleanRL run, and they learn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra sb3")

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[3] / "examples" / "integrations"


def run(name: str, *args: str, limit_s: float = 600.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *args],
        capture_output=True,
        text=True,
        timeout=limit_s,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("sb3_ppo.py", ["--total-timesteps", "20000", "--target-return", "60"]),
        ("sb3_dqn.py", ["--total-timesteps", "3000", "--target-return", "5"]),
        ("cleanrl_ppo.py", ["--total-timesteps", "20000", "--target-return", "60"]),
        (
            "cleanrl_ppo.py",
            [
                *("--env-id", "InvertedPendulum-v5", "--ent-coef", "0"),
                *("--total-timesteps", "40000", "--target-return", "30"),
            ],
        ),
    ],
)
def test_a_short_run_ends_well_above_random(name: str, args: list[str]) -> None:
    done = run(name, *args)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sb3_ppo.py", "sb3_dqn.py", "cleanrl_ppo.py"])
def test_a_whole_run_solves_cart_pole(name: str) -> None:
    done = run(name, "--target-return", "450", limit_s=1800.0)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
