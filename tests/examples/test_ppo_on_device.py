# SPDX-License-Identifier: Apache-2.0
"""`examples/ppo_on_device.py`, its kernels as loops on the host."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from warm_python import run_script

from rollouts.cli.main import main as command

SCRIPT = Path(__file__).parents[2] / "examples" / "ppo_on_device.py"

pytestmark = pytest.mark.system


@pytest.fixture
def groups_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """The report of `rollouts eval` on a run's groups."""

    def evaluate(run_dir: Path, *arguments: str) -> dict[str, Any]:
        monkeypatch.chdir(SCRIPT.parents[1])
        assert command(["eval", str(run_dir), "--trust", "--json", *arguments]) == 0
        groups: dict[str, Any] = json.loads(capsys.readouterr().out)["groups"]
        return groups

    return evaluate


@pytest.mark.parametrize(
    ("target", "enough"),
    # the whole training is the longer form of the other
    [(150, 100), pytest.param(475, 400, marks=pytest.mark.slow)],
)
def test_it_learns_cart_pole(
    target: int, enough: int, groups_of: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    arguments = ["--device", "cpu-emulation", "--num-envs", "128", "--total-steps", "1500000"]
    goal = ("--target-return", target)
    done = run_script(SCRIPT, *arguments, *goal, "--run-dir", tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "env-steps on cpu" in done.stdout
    # the CPU's threads play it as well
    assert groups_of(tmp_path)[""]["return"]["mean"] > enough


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


def returns_of(directory: Path, group: str = "agent") -> list[float]:
    events = EventAccumulator(str(directory))
    events.Reload()
    return [one.value for one in events.Scalars(f"return/{group}")]


def test_a_policy_with_memory_finds_out_hidden_velocities(
    groups_of: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    # with seed 1: 81 after 30 000 env-steps, 110 after 50 000, 369 after 100 000; 50 without memory
    arguments = ("--device", "cpu-emulation", "--engine", "torch", "--recurrent", "--num-envs", 32)
    learning = ("--gamma", 0.98, "--gae-lambda", 0.8, "--num-epochs", 10, "--num-minibatches", 2)
    done = run_script(
        SCRIPT, *arguments, *learning, "--total-steps", 50_000, "--run-dir", tmp_path, timeout=600
    )
    assert done.returncode == 1, done.stderr[-2000:]
    assert returns_of(tmp_path)[-1] > 100
    # the checkpoint says how its network is made
    assert groups_of(tmp_path)[""]["return"]["mean"] > 100


@pytest.mark.slow
def test_without_memory_it_does_not(tmp_path: Path) -> None:
    arguments = ("--device", "cpu-emulation", "--recurrent", "--no-memory", "--num-envs", 32)
    learning = ("--gamma", 0.98, "--gae-lambda", 0.8, "--num-epochs", 10, "--num-minibatches", 2)
    done = run_script(
        SCRIPT, *arguments, *learning, "--total-steps", 60_000, "--run-dir", tmp_path, timeout=600
    )
    assert done.returncode == 1 and max(returns_of(tmp_path)) < 80


def test_configurations_of_warpdrive_run(tmp_path: Path) -> None:
    """Taggers and runner share a policy on the grid; on the plane runners stand still."""
    sizes = ("--num-envs", 100, "--rollout-length", 20, "--total-steps", 30_000)
    done = warpdrive("tag_gridworld", *sizes, "--run-dir", tmp_path / "grid")
    assert done.returncode == 0, done.stderr[-2000:]
    # the runner runs away from what it cannot see coming: 0.2 before, 0.5 after with seed 20
    runner = returns_of(tmp_path / "grid", "runner")
    assert runner[-1] > runner[0] + 0.1
    sizes = ("--num-envs", 2, "--rollout-length", 100, "--total-steps", 400)
    done = warpdrive("tag_continuous", "--engine", "torch", *sizes)
    assert done.returncode == 0, done.stderr[-2000:]


def warpdrive(name: str, *args: object) -> subprocess.CompletedProcess[str]:
    path = SCRIPT.parent / "warpdrive" / f"{name}.yaml"
    options = ("--warpdrive-yaml", path, "--device", "cpu-emulation")
    return run_script(SCRIPT, *options, *args, timeout=900)


def test_a_pendulum_of_physics_is_balanced(
    groups_of: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    pytest.importorskip("mujoco_warp")
    # with seed 1: 7 after 2 000 env-steps, 27 after 12 000, 70 after 25 000, 91 after 37 000
    sizes = ("--num-envs", 64, "--rollout-length", 32, "--total-steps", 60_000)
    options = ("--env-id", "InvertedPendulum-v5", "--device", "cpu-emulation", "--engine", "torch")
    done = run_script(
        SCRIPT, *options, *sizes, "--target-return", 80, "--run-dir", tmp_path, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # MuJoCo's own physics is balanced as well
    assert groups_of(tmp_path)[""]["return"]["mean"] > 50


def tag(*args: object) -> subprocess.CompletedProcess[str]:
    options = ("--env-id", "TagContinuous-v0", "--device", "cpu-emulation", "--engine", "torch")
    return run_script(SCRIPT, *options, *args, timeout=900)


def test_groups_of_agents_have_policies_of_their_own(
    groups_of: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    sizes = ("--num-envs", 8, "--rollout-length", 50, "--total-steps", 2400, "--max-rows", 2000)
    done = tag(*sizes, "--run-dir", tmp_path, "--gif")
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"mean return tagger \d+\.\d, return runner -?\d\.\d after 2400", done.stdout)
    assert "101 frames of an episode in" in done.stdout
    assert (tmp_path / "episode.gif").stat().st_size > 10_000
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    assert len(groups_of(tmp_path, "--episodes", "2")["runner"]["returns"]) == 200


# the steps are those of the test before; runners of the grid learn above
@pytest.mark.slow
def test_taggers_learn(tmp_path: Path) -> None:
    # 1.0 before; 1.4 after 28 000, 1.5 after 40 000 env-steps with seed 1. A fifth of the runners:
    # each costs as much as a tagger
    sizes = ("--num-envs", 32, "--rollout-length", 50, "--total-steps", 30_000)
    sizes += ("--option", "num_runners=20")
    learning = ("--train", "tagger", "--learning-rate", 0.001, "--num-minibatches", 8)
    returns = ("--gamma", 0.95, "--gae-lambda", 0.9)
    done = tag(*sizes, *learning, *returns, "--run-dir", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    tagger, runner = returns_of(tmp_path, "tagger"), returns_of(tmp_path, "runner")
    assert tagger[-1] > 1.25 * tagger[0]
    # a runner that stays is tagged more often
    assert runner[-1] < runner[0]


def test_what_is_asked_of_the_wrong_kind_is_refused() -> None:
    done = tag("--train", "hunter", "--num-envs", 2)
    assert done.returncode == 2
    assert "groups of TagContinuous-v0 are tagger, runner" in done.stderr
    done = run_script(SCRIPT, "--gif", "--run-dir", "x", timeout=300)
    assert done.returncode == 2 and "--gif films several agents" in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_sentence_says_what_would_work() -> None:
    done = run_script(SCRIPT, timeout=600)
    assert done.returncode == 2
    assert "needs an NVIDIA GPU" in done.stderr
    assert "Traceback" not in done.stderr
