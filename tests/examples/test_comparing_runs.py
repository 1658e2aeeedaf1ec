# SPDX-License-Identifier: Apache-2.0
"""Examples that make runs of others: `time_to_return.py` and `compare_engines.py`."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from warm_python import run_script

from rollouts.checkpoint import load_checkpoint

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    return run_script(EXAMPLES / script, *args, timeout=600)


@pytest.mark.system
def test_seconds_to_a_return_stand_in_a_table(tmp_path: Path) -> None:
    # what the program does not know goes to `ppo.py`: within reach of a policy that has just begun
    # to learn
    options = ("--seeds", 2, "--threads", 1, "--run-dir", tmp_path, "--target-return", 40)
    done = run("time_to_return.py", "--env-id", "CartPole-v1", *options)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    number = r"(\d+\.\d)"
    match = re.fullmatch(rf"\| CartPole-v1 \| 475 \| {number} \| {number} \| ([\d,]+) \|", last)
    assert match, done.stdout
    history = load_checkpoint(tmp_path / "CartPole-v1-2").training["progress"]["history"]
    assert f"{history[-1]['seconds']:.1f}" == match[1] == match[2]
    assert history[-1]["mean_return"] >= 40


def test_a_return_that_one_seed_did_not_reach_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example: Any = importlib.import_module("time_to_return")
    runs = [example.Found(True, 4.26, 81920, 476.0), example.Found(False, 1.6, 8192, 21.4)]
    assert (
        example.row("CartPole-v1", 475.0, runs) == "| CartPole-v1 | 475 | 4.3 | (21 in 2) |  |  |"
    )


@pytest.mark.slow  # Python and torch start twice for the exit status
@pytest.mark.system
def test_a_return_that_is_not_reached_is_shown_and_fails(tmp_path: Path) -> None:
    options = ("--seeds", 1, "--total-steps", 8192, "--run-dir", tmp_path)
    done = run("time_to_return.py", "--env-id", "CartPole-v1", *options)
    assert done.returncode == 1, done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"\| CartPole-v1 \| 475 \| \(\d+ in \d+\) \|  \|  \|", last), last


@pytest.mark.system
def test_runs_with_each_engine_are_drawn_and_made_once(tmp_path: Path) -> None:
    sizes = ("--total-steps", 2048, "--seeds", 3, "--run-dir", tmp_path)
    options = ("--programs", "ppo", "--env-id", "InvertedPendulum-v5", *sizes)
    first = run("compare_engines.py", *options)
    assert first.returncode == 0, first.stderr
    rows = [line for line in first.stdout.splitlines() if line.startswith("| ppo |")]
    assert [row.split(" | ")[2] for row in rows] == ["lanes", "mujoco"]
    assert (tmp_path / "returns.png").read_bytes().startswith(b"\x89PNG")
    for engine in ("lanes", "mujoco"):
        checkpoint = load_checkpoint(tmp_path / f"ppo-InvertedPendulum-v5-{engine}-3")
        assert checkpoint.env_options["engine"] == engine and checkpoint.env_steps >= 2048
    again = run("compare_engines.py", *options)
    assert again.returncode == 0 and "env-steps in" not in again.stdout
    assert [line for line in again.stdout.splitlines() if line.startswith("| ppo |")] == rows


def test_options_of_the_command_come_after_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    ppo: Any = importlib.import_module("ppo")
    both = ["--option", "engine=mujoco", "--option", "normalize_reward=false"]
    for _ in range(2):
        args = ppo.parse_args(["--env-id", "HalfCheetah-v5", *both])
        expected = {
            "normalize_observation": True,
            "normalize_reward": False,
            "engine": "mujoco",
        }
        assert dict(args.option) == expected
    assert dict(ppo.parse_args(["--env-id", "Hopper-v5"]).option) == {}


def test_a_gaussian_begins_as_wide_as_it_was_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    ppo: Any = importlib.import_module("ppo")
    args = ppo.parse_args(["--env-id", "Pendulum-v1", "--log-std", "-1"])
    learner = ppo.Learner(args)
    assert learner.model.log_std.tolist() == [-1.0]
    assert learner.policy.weights()["log_std"].tolist() == [-1.0]


def test_the_learning_rate_follows_the_divergence_where_it_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    ppo: Any = importlib.import_module("ppo")
    args = ppo.parse_args(["--env-id", "Pendulum-v1", "--steady-kl", "0.01", "--hidden", "8"])
    learner = ppo.Learner(args)
    assert learner.model.actor[0].out_features == 8
    rates = []
    for kl in (0.001, 0.01, 0.1, 0.1):
        learner.set_rate(learner.steadied(kl))
        rates.append(learner.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([1.5e-3, 1.5e-3, 1e-3, 1e-3 / 1.5])
    # and a resumed run goes on with it
    other = ppo.Learner(args)
    other.load_state(learner.state())
    assert other.optimizer.param_groups[0]["lr"] == rates[-1]
