# SPDX-License-Identifier: Apache-2.0
"""`examples/impala.py` by its command line, in this process and with Ray workers."""

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

SCRIPT = Path(__file__).parents[2] / "examples" / "impala.py"
LIMIT_S = 600


def impala(*args: object, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run_script(SCRIPT, *args, timeout=LIMIT_S, env=env)


def test_it_learns_in_process_from_data_that_is_never_old(tmp_path: Path) -> None:
    result = impala("--num-workers", 0, "--target-return", 60, "--run-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    lags, summary = result.stdout.splitlines()
    assert lags == (
        "env-steps by policy lag, in versions: 0: 100 %; greatest 0; 0 env-steps discarded"
    )
    match = re.match(r"CartPole-v1: mean return (\d+\.\d) over the last 100 episodes, ", summary)
    assert match and float(match[1]) >= 60
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_it_learns_from_free_running_ray_workers_whose_data_is_old(
    tmp_path: Path, in_a_cluster: dict[str, str]
) -> None:
    result = impala("--target-return", 60, "--run-dir", tmp_path, env=in_a_cluster)
    assert result.returncode == 0, result.stderr
    lags, summary = result.stdout.splitlines()
    assert "0 worker restarts" in summary
    pattern = (
        r"env-steps by policy lag, in versions: .*; greatest (\d+); [\d,]+ env-steps discarded"
    )
    greatest = re.fullmatch(pattern, lags)
    assert greatest and 0 < int(greatest[1]) <= 8


def test_continuous_actions_take_the_same_path(tmp_path: Path) -> None:
    options = ("--env-id", "Pendulum-v1", "--num-workers", 0, "--total-steps", 8192)
    result = impala(*options, "--run-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Pendulum-v1: mean return -" in result.stdout


@pytest.fixture(scope="module")
def missed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of two updates by native code, too short for its target."""
    run_dir = tmp_path_factory.mktemp("impala") / "run"
    options = ("--num-workers", 0, "--total-steps", 1024, "--learner-engine", "native")
    result = run_in_new_python(SCRIPT, *options, "--run-dir", run_dir, timeout=LIMIT_S)
    assert result.returncode == 1, result.stderr
    (run_dir / "stdout").write_text(result.stdout)
    (run_dir / "stderr").write_text(result.stderr)
    return run_dir


def test_a_resumed_run_goes_on_where_the_first_stopped(missed_run: Path, tmp_path: Path) -> None:
    shutil.copytree(missed_run, tmp_path, dirs_exist_ok=True)
    options = ("--num-workers", 0, "--target-return", 1000, "--run-dir", tmp_path)
    before = load_checkpoint(tmp_path).training
    result = impala(*options, "--total-steps", 2048, "--resume", tmp_path)
    after = load_checkpoint(tmp_path).training
    assert result.returncode == 1, result.stderr
    assert [state["progress"]["updates"] for state in (before, after)] == [2, 4]
    # one gradient step per update; Adam counts those of the first run too
    assert after["learner"]["optimizer"]["state"][0]["step"] == 4


def test_a_native_gradient_step_is_that_of_torch(missed_run: Path, tmp_path: Path) -> None:
    where = ("--run-dir", tmp_path, "--learner-engine", "torch")
    impala("--num-workers", 0, "--total-steps", 1024, *where)
    one, other = load_checkpoint(missed_run), load_checkpoint(tmp_path)
    for name, weight in one.training["learner"]["model"].items():
        torch.testing.assert_close(
            weight, other.training["learner"]["model"][name], rtol=0, atol=1e-4, msg=name
        )
    assert one.env_steps == other.env_steps == 1024


def test_a_missed_target_is_a_failure(missed_run: Path) -> None:
    assert "CartPole-v1: mean return" in (missed_run / "stdout").read_text()
    expected = "the target was missed: no 100 episodes had a mean return of 475"
    assert expected in (missed_run / "stderr").read_text()
