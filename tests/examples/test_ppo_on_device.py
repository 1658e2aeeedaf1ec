# SPDX-License-Identifier: Apache-2.0
"""`examples/ppo_on_device.py`, its kernels as loops on the host."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from warm_python import run_script

SCRIPT = Path(__file__).parents[2] / "examples" / "ppo_on_device.py"

pytestmark = pytest.mark.system


def test_it_solves_cart_pole(tmp_path: Path) -> None:
    arguments = ["--device", "cpu-emulation", "--num-envs", "128", "--total-steps", "1500000"]
    done = run_script(SCRIPT, *arguments, "--run-dir", tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "env-steps on cpu" in done.stdout
    # the CPU's threads play it as well
    told = subprocess.run(
        [sys.executable, "-m", "rollouts", "eval", tmp_path, "--json"],
        cwd=SCRIPT.parents[1], capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert json.loads(told.stdout)["groups"][""]["return"]["mean"] > 400


def test_a_missed_target_is_said() -> None:
    arguments = ["--device", "cpu-emulation", "--num-envs", "64", "--total-steps", "4096"]
    done = run_script(SCRIPT, *arguments, timeout=600)
    assert done.returncode == 1
    assert "the target was missed: no 100 episodes had a mean return of 475" in done.stderr


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Taxi-v3"])
def test_other_spaces_learn_too(env_id: str) -> None:
    arguments = ["--device", "cpu-emulation", "--num-envs", "64", "--total-steps", "20000"]
    done = run_script(SCRIPT, "--env-id", env_id, *arguments, timeout=600)
    # a Discrete observation is none of a network's
    assert done.returncode == (0 if env_id == "Pendulum-v1" else 2), done.stderr[-2000:]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_sentence_says_what_would_work() -> None:
    done = run_script(SCRIPT, timeout=600)
    assert done.returncode == 2
    assert "needs an NVIDIA GPU" in done.stderr
    assert "Traceback" not in done.stderr
