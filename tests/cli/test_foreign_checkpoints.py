# SPDX-License-Identifier: Apache-2.0
"""Somebody else's checkpoint: what it names is run or opened only where the user says so."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from rollouts import _native
from rollouts.checkpoint import SAFE_TORCH, Checkpoint, load_checkpoint, save_checkpoint
from rollouts.cli import main as cli
from rollouts.cli.checkpoint_program import options_of
from rollouts.support.option_help import option_help

PROGRAM = """
import pathlib
import torch
from rollouts import TorchPolicy

class Net(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.body = torch.nn.Linear(4, 2)
    def forward(self, obs):
        return self.body(obs), torch.zeros(len(obs))

pathlib.Path("imported").touch()

def make_policy(spec, size=1):
    pathlib.Path("made").write_text(str(size))
    return TorchPolicy(Net(size), spec.single_action_space)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a program and a checkpoint that names it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # importing a program adds to it
    (tmp_path / "mine.py").write_text(PROGRAM)
    save()
    return tmp_path


def save(**changes: Any) -> None:
    given: dict[str, Any] = {
        "id": "CartPole-v1",
        "program": "mine.py",
        "program_options": {"size": 7},
        "weights": {"body.weight": torch.ones(2, 4), "body.bias": torch.zeros(2)},
        **changes,
    }
    save_checkpoint("run.pt", Checkpoint(**given))


EVAL = ["eval", "run.pt", "--episodes", "1"]
RECORD = ["record", "--policy", "run.pt", "--out", "run.gif", "--max-steps", "2"]
COMMANDS = pytest.mark.parametrize("command", [EVAL, RECORD], ids=lambda command: command[0])


@COMMANDS
def test_the_program_of_a_checkpoint_runs_only_where_it_is_trusted(
    command: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command) == 2
    said = capsys.readouterr().err
    assert f"run.pt would run mine.py ({here / 'mine.py'}) with {{'size': 7}}" in said
    assert "--trust" in said and "--network FILE" in said
    assert not (here / "imported").exists()
    assert cli.main([*command, "--trust"]) == 0
    assert (here / "made").read_text() == "7"


@COMMANDS
def test_a_program_of_the_users_runs_without_what_the_checkpoint_says(
    command: list[str], here: Path
) -> None:
    assert cli.main([*command, "--network", "mine.py"]) == 0
    assert (here / "made").read_text() == "1"


OUTSIDE = [
    ("game_args", "+logfile written"),
    ("cfg_file", "basic.cfg"),
    ("wad_file", "basic.wad"),
    ("iwad_file", "doom2.wad"),
    ("xml_file", "./own.xml"),
    ("xml_file", "~/own.xml"),
    ("doom_map", "map01 +logfile written"),
    ("model", {"mesh": ["a/b.obj"]}),
    ("anything", ["fine", "/etc/passwd"]),
]


@COMMANDS
@pytest.mark.parametrize(("name", "value"), OUTSIDE)
def test_files_and_command_lines_of_a_checkpoint_are_refused(
    name: str, value: Any, command: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(env_options={name: value})
    assert cli.main([*command, "--trust"]) == 2
    said = capsys.readouterr().err
    assert f"run.pt has the option {name}={value!r}, which names a file" in said
    assert f"--option {name}=" in said
    assert not (here / "imported").exists() and not (here / "run.gif").exists()


def test_what_the_user_repeats_holds(here: Path) -> None:
    save(env_options={"xml_file": "./own.xml", "frame_skip": 3, "obs_dtype": "float32"})
    read = load_checkpoint("run.pt")
    assert options_of(read, here, {"xml_file": "./mine.xml"}) == {
        "xml_file": "./mine.xml",
        "frame_skip": 3,
        "obs_dtype": "float32",
    }


def test_every_option_that_names_a_file_is_known() -> None:
    """The headers' own words: an option whose help speaks of a path or a command line."""
    found = set()
    for header in {entry["header"] for entry in _native.registry()}:
        for name, text in option_help(header).items():
            # others are set by the family, and users cannot give them
            if re.search(r"\b(path|command line)\b", text) and "set by" not in text:
                found.add(name)
    assert found == {"cfg_file", "game_args", "iwad_file", "wad_file", "xml_file"}
    assert found <= {name for name, _ in OUTSIDE}


def test_names_that_are_no_files_are_taken(here: Path) -> None:
    options = {
        "xml_file": "humanoid.xml",
        "observation": "qpos, qvel",
        "obs_dtype": "float32",
        "offset": "-1",
        "lens": "distance=4 lookat=0,-0.5,1.15",
    }
    save(env_options=options)
    assert options_of(load_checkpoint("run.pt"), here, {}) == options


def test_a_program_that_registers_its_environment_is_imported_first(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine.py").write_text("print('imported')\n" + PROGRAM)
    save(id="Unknown-v0")
    assert cli.main([*EVAL, "--trust"]) == 2
    said = capsys.readouterr()
    assert "imported" in said.out and "Unknown-v0" in said.err


@COMMANDS
def test_a_release_of_torch_that_runs_what_files_hold_is_refused(
    command: list[str],
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for version, refused in (("2.9.1+cu128", True), ("2.5.1", True), ("2.10.0", False)):
        monkeypatch.setattr(torch, "__version__", version)
        assert cli.main([*command, "--trust"]) == (2 if refused else 0)
        said = capsys.readouterr().err
        assert (f"torch {version} executes what crafted files hold" in said) == refused


def test_the_package_asks_for_a_release_of_torch_that_is_not_refused() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (torch_extra,) = project["project"]["optional-dependencies"]["torch"]
    assert torch_extra == f"torch>={'.'.join(map(str, SAFE_TORCH))}"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import no_such_package", "needs the package 'no_such_package', which is not installed"),
        ("raise SystemExit(3)", "cannot be imported (SystemExit: 3), expected a Python file that"),
        ("1 / 0", "cannot be imported (ZeroDivisionError: division by zero)"),
        ("def make(", "is no Python that can be compiled ('(' was never closed"),
        ("make_policy = 3", "has no function make_policy(spec)"),
        (
            "def make_policy(spec): return None",
            "mine.py returned None, expected a policy: rollouts.Torch",
        ),
        ("def make_policy(spec): 1 / 0", "makes no policy for CartPole-v1 (ZeroDivisionError"),
        ("def make_policy(): pass", "makes no policy for CartPole-v1 (TypeError"),
    ],
)
@COMMANDS
def test_a_program_that_fails_is_named(
    program: str,
    message: str,
    command: list[str],
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (here / "mine.py").write_text(program)
    for arguments in ([*command, "--trust"], [*command, "--network", "mine.py"]):
        save(program_options={})
        assert cli.main(arguments) == 2
        said = capsys.readouterr().err
        assert message in said and "mine.py" in said


def test_a_model_of_stable_baselines3_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    sb3.PPO("MlpPolicy", "CartPole-v1", device="cpu").save(here / "run.pt")
    for command in (EVAL, RECORD):
        assert cli.main(command) == 2
        assert "run.pt is a model of Stable-Baselines3, expected" in capsys.readouterr().err


def test_weights_alone_say_nothing_of_their_environment(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = {"body.weight": torch.ones(2, 4), "body.bias": torch.zeros(2)}
    torch.save(weights, here / "run.pt")
    assert cli.main([*RECORD, "--network", "mine.py"]) == 2
    assert "does not say what they were trained in: add --env-id" in capsys.readouterr().err
    assert cli.main([*RECORD, "--network", "mine.py", "--env-id", "CartPole-v1"]) == 0
    assert cli.main([*EVAL, "--network", "mine.py"]) == 2
    assert "is no checkpoint of rollouts" in capsys.readouterr().err
