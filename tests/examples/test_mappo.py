# SPDX-License-Identifier: Apache-2.0
"""`examples/mappo.py` by its command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from warm_python import Script, run_script

import rollouts
from rollouts.checkpoint import load_checkpoint

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).parents[2] / "examples" / "mappo.py"
EVAL = [sys.executable, "-m", "rollouts", "eval"]


def mappo(*args: object) -> subprocess.CompletedProcess[str]:
    return run_script(SCRIPT, *args, timeout=300)


@pytest.mark.parametrize(
    ("env_id", "critic"), [("simple_spread_v3", "central"), ("TagContinuous-v0", "own")]
)
def test_it_runs_to_its_end_and_draws(env_id: str, critic: str, tmp_path: Path) -> None:
    options = ("--env-id", env_id, "--critic", critic, "--num-envs", 4, "--num-epochs", 2)
    result = mappo(*options, "--gif", "--total-steps", 800, "--run-dir", tmp_path)
    assert result.returncode == 0, result.stderr
    *lines, last, film = result.stdout.splitlines()
    assert re.search(r"\d+ env-steps, .*: return (-?\d+\.\d\d|nan), entropy \d\.\d\d", lines[-1])
    assert last.endswith(f"picture and weights in {tmp_path}")
    num_frames = rollouts.env_spec(env_id).max_episode_steps + 1
    assert film == f"{num_frames} frames of an episode in {tmp_path / 'episode.gif'}"
    with imageio.get_reader(tmp_path / "episode.gif") as reader:
        frames = [np.asarray(frame)[..., :3] for frame in reader]
    # a GIF joins frames that are equal
    assert num_frames / 2 < len(frames) <= num_frames
    assert (frames[0] != frames[-1]).any()
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    told = subprocess.run(
        [*EVAL, tmp_path, "--trust", "--episodes", "3", "--json"],
        cwd=SCRIPT.parents[1], capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    found = json.loads(told.stdout)
    for group in rollouts.env_spec(env_id, **found["env_options"]).groups:
        assert len(found["groups"][group.name]["returns"]) == 3 * group.num_agents
    again = mappo(*options, "--total-steps", 0, "--weights", tmp_path)
    assert again.returncode == 0, again.stderr


def test_it_saves_while_it_runs_and_ctrl_c_keeps_what_was_learnt(tmp_path: Path) -> None:
    options = ("--num-envs", 4, "--num-epochs", 1, "--checkpoint-interval-s", 0)
    with Script(SCRIPT, *options, "--total-steps", 10**8, "--run-dir", tmp_path) as run:
        shown = ""
        # the bar says so after each update, which is saved
        while shown.count("agent: return") < 3:
            shown += (more := run.stderr.read(1))
            assert more, shown
        saved = load_checkpoint(tmp_path).env_steps
        os.kill(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=120)
    assert run.returncode == 130, err
    assert "picture and weights in" in out
    assert load_checkpoint(tmp_path).env_steps >= saved >= 100
    assert (tmp_path / "training.png").exists()


@pytest.mark.slow
def test_agents_learn_to_spread(tmp_path: Path) -> None:
    # seed 0: -23.6 after 50 000 env-steps, -20.1 after 450 000
    result = mappo("--total-steps", 500_000, "--run-dir", tmp_path)
    means = [float(each) for each in re.findall(r"return (-\d+\.\d\d)", result.stdout)]
    assert means[-1] > means[0] + 2
