# SPDX-License-Identifier: Apache-2.0
"""`examples/dqn.py` by its command line, in this process and with Ray workers and shards."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "examples" / "dqn.py"
IN_PROCESS = ("--num-workers", 0, "--num-shards", 0, "--num-envs", 16)
LIMIT_S = 600
REPLAY_LINE = (
    r"replay: [\d,]+ samples/s, [\d,]+ inserts/s, ([\d,]+) items in [\d,.]+ MiB, "
    r"([\d.]+) samples per insert, 0 shard restarts"
)


def dqn(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.parametrize("where", [IN_PROCESS, ("--num-workers", 2, "--num-shards", 2)])
def test_it_learns_from_what_all_workers_inserted(
    where: tuple[object, ...], tmp_path: Path
) -> None:
    # who acts at random comes to 22
    result = dqn(*where, "--target-return", 60, "--run-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    replay, summary = result.stdout.splitlines()
    ratio = re.fullmatch(REPLAY_LINE, replay)
    assert ratio and 6 < float(ratio[2]) < 10
    match = re.match(r"CartPole-v1: mean return (\d+\.\d) over the last 100 episodes ", summary)
    assert match and float(match[1]) >= 60
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_a_resumed_run_goes_on_with_what_the_shards_held(tmp_path: Path) -> None:
    options = ("--target-return", 1000, "--run-dir", tmp_path, "--save-replay")
    first = dqn(*options, "--total-steps", 4_000)
    assert first.returncode == 1, first.stderr
    before = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    # too few steps to fill a replay that waits for 1 000 items, were it empty
    second = dqn(
        *options, "--total-steps", before["progress"]["env_steps"] + 1, "--resume", tmp_path
    )
    assert second.returncode == 1, second.stderr
    after = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    items = [
        int(match[1].replace(",", ""))
        for match in re.findall(REPLAY_LINE, first.stdout + second.stdout)
    ]
    assert before["learner"]["updates"] < after["learner"]["updates"]
    assert len(items) == 2 and items[0] <= items[1]


def test_a_missed_target_is_a_failure(tmp_path: Path) -> None:
    result = dqn(*IN_PROCESS, "--total-steps", 2_048, "--run-dir", tmp_path)
    assert result.returncode == 1
    assert "CartPole-v1: mean return" in result.stdout


def test_continuous_actions_are_refused(tmp_path: Path) -> None:
    result = dqn("--env-id", "Pendulum-v1", *IN_PROCESS, "--run-dir", tmp_path)
    assert result.returncode == 1 and "needs Discrete actions" in result.stderr
    assert "Traceback" not in result.stderr
