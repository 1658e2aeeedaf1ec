# SPDX-License-Identifier: Apache-2.0
"""Examples at their edges: help, short runs, Ctrl-C, missing packages."""

from __future__ import annotations

import argparse
import importlib
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from matplotlib.figure import Figure
from warm_python import run_script

pytestmark = pytest.mark.system

EXAMPLES = Path(__file__).parents[2] / "examples"
INTEGRATIONS = sorted((EXAMPLES / "integrations").glob("*.py"))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports an example; what it imports lies beside it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


@pytest.mark.parametrize("name", ["ppo", "impala", "dqn"])
def test_help_shows_the_target_that_the_environment_has(
    name: str, module: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, shown in (([], "475.0"), (["--env-id", "Acrobot-v1"], "None")):
        with pytest.raises(SystemExit):
            module(name).parse_args([*arguments, "--help"])
        said = " ".join(capsys.readouterr().out.split())
        assert f"100 episodes (default: {shown})" in said


def test_a_short_run_learns_and_ends_where_it_was_told_to(
    tmp_path: Path, module: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    sac, checkpoint = module("sac"), module("common.checkpoint")
    arguments = ["--env-id", "Pendulum-v1", "--num-workers", "0", "--eval-interval", "0"]
    sizes = ["--total-steps", "600", "--min-size", "10000", "--batch-size", "16"]
    patched = pytest.MonkeyPatch()
    patched.setattr(sys, "argv", ["sac.py", *arguments, *sizes, "--run-dir", str(tmp_path)])
    try:
        assert sac.main() in (0, 1)
    finally:
        patched.undo()
    assert "learning begins after 300" in capsys.readouterr().err
    state = checkpoint.read_training(tmp_path, sac.CHECKPOINT_KIND, id="Pendulum-v1")
    # a fragment of 4 x 8 steps is the least that is added
    assert 600 <= state["progress"]["env_steps"] <= 600 + 3 * 32
    assert state["progress"]["updates"] > 0


def test_pictures_say_why_there_is_no_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Callable[[str], ModuleType]
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **options: drawn.append(self))
    row = {"env_steps": 8, "seconds": 0.5, "env_steps_per_s": 16.0}
    histories: list[list[dict[str, float]]] = [
        [],
        [{**row, "mean_return": float("nan")}],
        [{**row, "mean_return": 3.0}],
    ]
    for history in histories:
        module("common.plotting").save_training_curves(
            tmp_path / "x.png", history, title="", target=None
        )
    said = [[text.get_text() for axes in one.axes for text in axes.texts] for one in drawn]
    assert said == [["no episode has ended", "no update was made"], ["no episode has ended"], []]


def test_integration_examples_name_the_extra_that_is_missing() -> None:
    code = (
        "import runpy, sys\n"
        "for name in ('torch', 'ray', 'stable_baselines3', 'rl_games', 'dm_env', 'tianshou',"
        " 'torchrl', 'jax'):\n"
        "    sys.modules[name] = None\n"
        "import rollouts\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        runpy.run_path(path, run_name='imported')\n"
        "    except rollouts.EngineError as error:\n"
        "        print(path, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, INTEGRATIONS)],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    # the other two need nothing but the library itself
    assert done.stdout.count("pip install 'rollouts[") == len(INTEGRATIONS) - 2, done.stdout
    assert "this example needs" in done.stdout and "rollouts[rllib]" in done.stdout


@pytest.mark.parametrize("name", ["compare_her.py", "compare_sac.py"])
def test_comparisons_name_the_extra_of_the_other_library(name: str, tmp_path: Path) -> None:
    program = tmp_path / "without.py"
    program.write_text(
        "import os, runpy, sys\n"
        "sys.modules['stable_baselines3'] = None\n"
        "sys.path.insert(0, os.path.dirname(sys.argv[1]))\n"
        "runpy.run_path(sys.argv[1], run_name='imported')\n"
    )
    done = run_script(program, EXAMPLES / name, timeout=600)
    assert done.returncode == 1
    assert "this example needs a library" in done.stderr, done.stderr
    assert done.stderr.splitlines()[-1].endswith("pip install 'rollouts[sb3]'"), done.stderr


@pytest.mark.parametrize("path", INTEGRATIONS, ids=lambda path: path.stem)
def test_ctrl_c_ends_an_integration_example_without_a_traceback(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", interrupted)
    try:
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
    except ImportError as error:
        pytest.skip(str(error))
    assert ended.value.code == 130


@pytest.mark.parametrize("name", ["matplotlib", "tensorboard", "tqdm", "torch"])
def test_programs_say_at_once_which_package_is_missing(name: str) -> None:
    code = (
        "import importlib.util, runpy, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "found = importlib.util.find_spec\n"
        # as if it were not installed
        f"importlib.util.find_spec = lambda one, *rest: None if one == {name!r} else found(one)\n"
        "runpy.run_path(f'{sys.argv[1]}/common/__init__.py')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(EXAMPLES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"error: the programs in examples/ need {name}, not installed here: "
        "pip install 'rollouts[examples]'\n"
    )
