# SPDX-License-Identifier: Apache-2.0
"""`rollouts export` writes what `rollouts eval` plays as it plays the checkpoint."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from eval_command import evaluate

import rollouts
from rollouts.checkpoint import Checkpoint, save_checkpoint
from rollouts.cli import main as cli

pytestmark = pytest.mark.system

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

AGENT = """
import rollouts
from torch import nn


class Agent(nn.Module):
    def __init__(self, size, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(size, hidden), nn.Tanh())
        self.actor, self.critic = nn.Linear(hidden, 1), nn.Linear(hidden, 1)
        self.log_std = nn.Parameter(self.actor.weight.new_zeros(1))

    def forward(self, obs):
        features = self.body(obs)
        return self.actor(features), self.log_std, self.critic(features)[:, 0]


def make_policy(spec, hidden=16):
    agent = Agent(spec.single_observation_space.shape[0], hidden)
    return rollouts.TorchPolicy(agent, spec.single_action_space, seed=spec.seed)
"""
OPTIONS = {
    "rescale_action": True,
    "clip_action": True,
    "normalize_observation": True,
    "max_episode_steps": 60,
    "gravity": 8.0,
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a run, with a checkpoint of scaled observations and actions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "exported_agent.py").write_text(AGENT)
    torch.manual_seed(2)
    namespace: dict[str, object] = {}
    exec(AGENT, namespace)
    agent = namespace["Agent"](3, 16)  # type: ignore[operator]
    with rollouts.make_vec("Pendulum-v1", 8, seed=1, **OPTIONS) as env:
        env.reset()
        for _ in range(50):
            env.step(env.action_space.sample())
        checkpoint = Checkpoint(
            id="Pendulum-v1",
            env_options=OPTIONS,
            statistics={"observation": env.observation_statistics},
            program="exported_agent.py",
            weights=agent.state_dict(),
            env_steps=400,
        )
    (tmp_path / "run").mkdir()
    save_checkpoint(tmp_path / "run", checkpoint)
    return tmp_path / "run"


@pytest.mark.parametrize("ending", [".onnx", ".pt2", ".pt"])
def test_a_file_plays_the_episodes_of_the_checkpoint(
    run: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run.parent / f"policy{ending}"
    assert cli.main(["export", str(run), "--to", str(file), "--trust"]) == 0
    said = capsys.readouterr().out
    assert "the policy of Pendulum-v1" in said
    assert "takes obs (B, 3) float32" in said and "gives action (B, 1) float32" in said
    arguments = ("--episodes", 12, "--num-envs", 4, "--seed", 9)
    theirs = evaluate(capsys, "run", *arguments, "--deterministic")
    ours = evaluate(capsys, file, *arguments)
    assert ours["env_options"] == {"gravity": 8.0, "max_episode_steps": 60}
    assert ours["deterministic"] is True
    expected, found = theirs["groups"][""], ours["groups"][""]
    assert found["lengths"] == expected["lengths"] == [60] * 12
    # float32 in another order, 60 steps long
    assert found["returns"] == pytest.approx(expected["returns"], rel=1e-3)


def test_wrong_uses_are_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run.parent / "policy.pt2"
    assert cli.main(["export", str(run), "--to", str(file), "--trust", "--group", "tagger"]) == 2
    assert "leave it out, there is one agent" in capsys.readouterr().err
    assert cli.main(["export", str(run), "--to", str(file)]) == 2
    assert "--trust" in capsys.readouterr().err
    assert not file.exists()
    assert cli.main(["export", str(run), "--to", str(file), "--trust"]) == 0
    capsys.readouterr()
    assert cli.main(["eval", str(file), "--record", str(run / "film.gif")]) == 2
    assert "neither --record nor --network" in capsys.readouterr().err
    assert cli.main(["eval", str(run.parent / "missing.onnx")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_file_that_draws_is_not_called_deterministic(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run.parent / "policy.pt2"
    assert cli.main(["export", str(run), "--to", str(file), "--trust", "--noise"]) == 0
    assert cli.main(["eval", str(file), "--episodes", "2", "--deterministic"]) == 2
    assert "leave --deterministic out" in capsys.readouterr().err
    assert evaluate(capsys, file, "--episodes", 2)["deterministic"] is False


def test_a_strangers_file_chooses_no_file_of_this_machine(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx")
    file = run.parent / "policy.onnx"
    assert cli.main(["export", str(run), "--to", str(file), "--trust"]) == 0
    model = onnx.load(file)
    for entry in model.metadata_props:
        if entry.key == "rollouts":
            said = json.loads(entry.value)
            said["id"], said["env_options"] = "Hopper-v5", {"xml_file": "/etc/passwd"}
            entry.value = json.dumps(said)
    onnx.save(model, file)
    assert cli.main(["eval", str(file), "--episodes", "2"]) == 2
    assert "xml_file='/etc/passwd', which names a file" in capsys.readouterr().err


def test_a_damaged_archive_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run.parent / "policy.pt"
    file.write_bytes(b"xx" * 10 + b"PK\x05\x06" + b"\x01\0" * 9)
    assert cli.main(["eval", str(file)]) == 2
    assert str(file) in capsys.readouterr().err
