# SPDX-License-Identifier: Apache-2.0
"""Wrong uses of checkpoints and commands: each is answered by what was given, what was expected
and what to do, and none by a bare exception."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rollouts
from rollouts.checkpoint import FILE_NAME, Checkpoint, load_checkpoint, save_checkpoint
from rollouts.cli import main as cli

GOOD = Checkpoint(id="CartPole-v1", program="mine.py", weights={"w": torch.ones(2)})
COUNTED = rollouts.RunningStatistics(np.zeros(4), np.ones(4), 1.0)
GIVE = ("give", "expected", "choose", "leave", "make it", "must")  # advice has one


# entry, what is given, what its name and value are in the message
SAVED: list[tuple[str, Any, str]] = [
    *(("id", one, repr(one)) for one in (None, 3, 2.5, True, ["CartPole-v1"], {"a": 1})),
    *(("program", one, repr(one)) for one in (None, 3, ["a.py"], 1.5)),
    *(("env_steps", one, repr(one)) for one in (None, "3", 1.5, True, -1, [1], float("nan"))),
    *(("policy_version", one, repr(one)) for one in (None, "3", 1.5, False, -1, {})),
    *(("seed", one, repr(one)) for one in ("3", 1.5, True, [1], object)),
    *(("env_options", one, repr(one)) for one in (None, 3, "a=1", [("a", 1)], {"a"})),
    *(("program_options", one, repr(one)) for one in (None, 3, "a=1", [("a", 1)])),
    *(("training", one, repr(one)) for one in (None, 3, "a", [1])),
    *(("statistics", one, repr(one)) for one in (None, 3, [COUNTED])),
    *(("weights", one, repr(one)) for one in (None, 3, [1.0])),
    ("weights", torch.ones(3), "tensor"),
    ("weights", {"w": None}, "None"),
    ("weights", {"w": "text"}, "'text'"),
    ("weights", {"w": {"v": torch.ones(1)}}, "weights['w']"),
    ("weights", {1: torch.ones(1)}, "1"),
    ("weights", {"w": np.array([None])}, "object"),
    ("env_options", {"reward": print}, "env_options['reward']"),
    ("env_options", {"a": {1: 2}}, "env_options['a']"),
    ("env_options", {"a": [b"x"]}, "env_options['a'][0]"),
    ("env_options", {"a": {3, 4}}, "env_options['a']"),
    ("env_options", {"a": 1j}, "env_options['a']"),
    ("env_options", {"a": torch.ones(1)}, "env_options['a']"),
    ("program_options", {"net": torch.nn.ReLU()}, "ReLU()"),
    ("program_options", {"net": torch.nn.ReLU}, "program_options['net']"),
    ("training", {"net": torch.nn.Linear(1, 1)}, "state_dict()"),
    ("training", {"optimizer": torch.optim.SGD([torch.ones(1)], 0.1)}, "state_dict()"),
    ("training", {"generator": np.random.default_rng(0)}, "training['generator']"),
    ("training", {"generator": torch.Generator()}, "training['generator']"),
    ("training", {"lambda": lambda x: x}, "training['lambda']"),
    ("training", {"file": memoryview(b"a")}, "training['file']"),
    ("training", {"date": np.datetime64("2020-01-01")}, "training['date']"),
    ("training", {frozenset({1}): 1}, "frozenset({1})"),
    ("training", {"env": COUNTED}, "training['env']"),
    ("statistics", {"obs": COUNTED}, "'obs'"),
    ("statistics", {"observation": None}, "None"),
    ("statistics", {"observation": {"mean": 0}}, "{'mean': 0}"),
    ("statistics", {"observation": replace(COUNTED, count=-1.0)}, "-1.0"),
    ("statistics", {"observation": replace(COUNTED, var=-np.ones(4))}, "var"),
    ("statistics", {"observation": replace(COUNTED, var=np.ones(3))}, "(3,)"),
    ("statistics", {"observation": replace(COUNTED, mean=np.full(4, np.nan))}, "mean"),
]


@pytest.mark.parametrize(("entry", "given", "shown"), SAVED)
def test_a_wrong_entry_is_answered(entry: str, given: Any, shown: str, tmp_path: Path) -> None:
    with pytest.raises(rollouts.SpecError) as caught:
        save_checkpoint(tmp_path, replace(GOOD, **{entry: given}))
    said = str(caught.value)
    assert entry in said and shown[:100] in said, said
    assert any(word in said for word in GIVE), said
    assert os.listdir(tmp_path) == []


def _link(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


# a file that is no checkpoint, and what of it is in the message
FILES: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: None, "no checkpoint at"),
    (_link, "no checkpoint at"),
    (lambda path: path.mkdir(), "no checkpoint at"),
    (lambda path: os.mkfifo(path), "no checkpoint at"),
    (lambda path: path.write_bytes(b""), "is not a readable checkpoint"),
    (lambda path: path.write_text("{}"), "is not a readable checkpoint"),
    (lambda path: path.write_bytes(b"PK\3\4" + bytes(99)), "is not a readable checkpoint"),
    (lambda path: np.savez(path.open("wb"), a=np.ones(2)), "is not a readable checkpoint"),
    (lambda path: np.save(path.open("wb"), np.ones(2)), "is not a readable checkpoint"),
    (lambda path: torch.save(torch.nn.Linear(1, 1), path), "is not a readable checkpoint"),
    (lambda path: torch.save(3, path), "holds a int"),
    (lambda path: torch.save([1], path), "holds a list"),
    (lambda path: torch.save(torch.ones(1), path), "holds a Tensor"),
    (lambda path: torch.save({}, path), "has nothing"),
    (lambda path: torch.save({"w": torch.ones(1)}, path), "has w"),
    (lambda path: torch.save({"format": "rollouts checkpoint"}, path), "version None"),
]


@pytest.mark.parametrize(("write", "shown"), FILES)
def test_a_wrong_file_is_answered(
    write: Callable[[Path], object], shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.pt"
    write(path)
    with pytest.raises(rollouts.SpecError) as caught:
        load_checkpoint(path)
    said = str(caught.value)
    assert "run.pt" in said and shown in said, said
    # advice of torch, to read the file without its guard
    assert "weights_only" not in said, said
    assert "expected" in said or "give a checkpoint" in said or "train again" in said, said
    for command in (["eval", str(path)], ["record", "--policy", str(path), "--out", "a.gif"]):
        assert cli.main(command) == 2
        assert "run.pt" in capsys.readouterr().err


# (arguments of eval, what is in the answer)
COMMANDS: list[tuple[list[str], str]] = [
    (["--episodes", "0"], "expected a whole number above 0, got '0'"),
    (["--episodes", "many"], "expected a whole number above 0, got 'many'"),
    (["--num-envs", "-1"], "expected a whole number above 0, got '-1'"),
    (["--seed", "a"], "invalid int value: 'a'"),
    (["--option", "a"], "expected KEY=VALUE, got 'a'"),
    (["--option", "=1"], "expected KEY=VALUE, got '=1'"),
    (["--record", "a.avi"], "ends in .mp4 or .gif"),
    (["--record", "no/a.gif"], "does not exist: make it, or choose another"),
    (["--network", "none.py"], "none.py, which is no Python file: expected one"),
    (["--network", "."], "which is no Python file: expected one"),
    (["--trust"], "'mine.py', which is no file in this directory: run this where"),
    (["--determinstic"], "Did you mean --deterministic?"),
    ([], "'mine.py', which is no file in this directory: run this where"),
]


@pytest.mark.parametrize(("arguments", "shown"), COMMANDS)
def test_a_wrong_argument_of_eval_is_answered(
    arguments: list[str],
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    save_checkpoint(tmp_path, GOOD)
    try:
        status = cli.main(["eval", FILE_NAME, *arguments])
    except SystemExit as ended:
        status = int(str(ended.code))
    assert status == 2
    assert shown in " ".join(capsys.readouterr().err.split())
