# SPDX-License-Identifier: Apache-2.0
"""`examples/recurrent_ppo.py` by its command line, in this process and with Ray workers."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from warm_python import run_in_new_python, run_script

from rollouts.checkpoint import load_checkpoint

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).parents[2] / "examples" / "recurrent_ppo.py"
LIMIT_S = 600


def recurrent_ppo(
    *args: object, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return run_script(SCRIPT, *args, timeout=LIMIT_S, env=env)


# in Ray the same learning takes a minute of CPU time; the path is the next test's
@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_it_learns_what_nobody_can_without_memory(num_workers: int, tmp_path: Path) -> None:
    # the same network with --no-memory came to 56 at most in 150 000 env-steps (two seeds)
    options = ("--num-workers", num_workers, "--num-envs", 8 if num_workers else 16)
    result = recurrent_ppo(*options, "--target-return", 80, "--run-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    _, summary = result.stdout.splitlines()
    match = re.match(r"CartPole-v1: mean return (\d+\.\d) over the last 100 episodes, ", summary)
    assert match and float(match[1]) >= 80
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")


def test_workers_of_ray_take_the_same_path(tmp_path: Path, in_a_cluster: dict[str, str]) -> None:
    options = ("--num-workers", 2, "--num-envs", 8, "--total-steps", 2048, "--run-dir", tmp_path)
    result = recurrent_ppo(*options, env=in_a_cluster)
    assert result.returncode == 1, result.stderr
    assert "CartPole-v1: mean return " in result.stdout and "0 worker restarts" in result.stdout
    progress = load_checkpoint(tmp_path).training["progress"]
    # each update takes the rollouts of both workers
    assert (progress["updates"], progress["env_steps"]) == (4, 2048)


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of two updates by native code."""
    run_dir = tmp_path_factory.mktemp("recurrent") / "run"
    sizes = ("--num-workers", 0, "--num-envs", 16, "--total-steps", 1024)
    recurrent_ppo(*sizes, "--learner-engine", "native", "--run-dir", run_dir)
    return run_dir


def test_a_resumed_run_goes_on_where_the_first_stopped(short_run: Path, tmp_path: Path) -> None:
    shutil.copytree(short_run, tmp_path, dirs_exist_ok=True)
    options = ("--num-workers", 0, "--num-envs", 16, "--run-dir", tmp_path)
    before = load_checkpoint(tmp_path).training
    result = recurrent_ppo(*options, "--total-steps", 2048, "--resume", tmp_path)
    after = load_checkpoint(tmp_path).training
    assert result.returncode == 1, result.stderr
    assert [state["progress"]["updates"] for state in (before, after)] == [2, 4]
    adam = [state["learner"]["optimizer"]["state"][0]["step"] for state in (before, after)]
    assert adam[1] == 2 * adam[0] > 0


def test_native_gradient_steps_are_those_of_torch(short_run: Path, tmp_path: Path) -> None:
    where = ("--run-dir", tmp_path, "--learner-engine", "torch")
    recurrent_ppo("--num-workers", 0, "--num-envs", 16, "--total-steps", 1024, *where)
    one, other = load_checkpoint(short_run), load_checkpoint(tmp_path)
    for name, weight in one.training["learner"]["model"].items():
        torch.testing.assert_close(
            weight, other.training["learner"]["model"][name], rtol=0, atol=1e-4, msg=name
        )
    assert one.env_steps == other.env_steps == 1024


def test_without_memory_nothing_is_learnt_about_the_past(tmp_path: Path) -> None:
    def cell_after(total_steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        options = ("--no-memory", "--num-workers", 0, "--total-steps", total_steps)
        assert recurrent_ppo(*options, "--run-dir", tmp_path).returncode == 1
        model = load_checkpoint(tmp_path).training["learner"]["model"]
        return model["cell.weight_ih"], model["cell.weight_hh"]

    inputs, memory = zip(cell_after(256), cell_after(512), strict=True)
    # the weights of the state only ever meet zeros, so no gradient reaches them
    assert torch.equal(*memory) and not torch.equal(*inputs)


def test_continuous_actions_are_refused() -> None:
    options = ("--env-id", "Pendulum-v1", "--num-workers", 0)
    result = run_in_new_python(SCRIPT, *options, timeout=LIMIT_S)
    assert result.returncode == 1 and "needs Discrete actions" in result.stderr
    assert "Traceback" not in result.stderr
