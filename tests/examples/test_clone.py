# SPDX-License-Identifier: Apache-2.0
"""`examples/clone.py` learns a data set's actions and leaves a run that can be played."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import rollouts
from rollouts.cli.main import main as command
from rollouts.datasets import open_set

ROOT = Path(rollouts.__file__).parents[1]


def push_to_where_it_falls(obs: np.ndarray) -> np.ndarray:
    right: np.ndarray = (obs @ np.array([0.5, 1.0, 10.0, 5.0]) > 0).astype(np.int64)
    return right


def test_a_clone_plays_as_its_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    import clone

    data, run = tmp_path / "teacher.hdf5", tmp_path / "new" / "clone"
    with rollouts.make_vec("CartPole-v1", 8, seed=1, autoreset_mode="same_step") as env:
        recorder = rollouts.Recorder(env, data)
        with recorder:
            obs, _ = recorder.reset()
            for _ in range(520):
                obs, *_ = recorder.step(push_to_where_it_falls(obs))
    taught = np.mean([each.reward.sum() for each in open_set(data)])
    arguments = ["--data", data, "--run-dir", run, "--epochs", 40, "--learning-rate", 3e-3]
    monkeypatch.setattr(sys, "argv", ["clone.py", *map(str, arguments)])
    assert clone.main() == 0
    assert f"the teacher's {taught:.1f}" in capsys.readouterr().out
    monkeypatch.chdir(ROOT)
    assert command(["eval", str(run), "--trust", "--episodes", "20", "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"].values()
    returns = group["returns"]
    assert np.mean(returns) >= 0.9 * taught


def test_what_is_no_data_set_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    import clone

    monkeypatch.setattr(sys, "argv", ["clone.py", "--data", str(tmp_path / "nothing.hdf5")])
    expected = r"^error: there is no data set .*nothing\.hdf5, expected FILE\.hdf5, "
    with pytest.raises(SystemExit, match=expected):
        clone.main()
