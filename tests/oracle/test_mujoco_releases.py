# SPDX-License-Identifier: Apache-2.0
"""The oracle tests of MuJoCo with other releases than the installed one, each in a new process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rollouts import _native

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# the newest of the oldest supported kind; others are slow to fetch and to run
SECOND = "3.17.0"
OTHERS = [f"{name}.0" for name in _native.MUJOCO_RELEASES if f"{name}.0" not in (SECOND, "4.0.0")]


def package(version: str) -> Path:
    """A folder that holds a release of mujoco alone; fetched once per checkout."""
    folder = ROOT / ".venv-mujoco" / version
    if folder.is_dir():
        return folder
    folder.parent.mkdir(exist_ok=True)
    # made under another name, as several processes may run tests
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        command = [*pip, "--no-deps", "--only-binary", ":all:", "--target", f"{made}/mujoco"]
        found = subprocess.run(
            [*command, f"mujoco=={version}"], capture_output=True, text=True, timeout=600
        )
        if found.returncode:
            pytest.skip(f"mujoco {version} cannot be installed here: {found.stderr[-300:]}")
        if not folder.is_dir():
            os.rename(f"{made}/mujoco", folder)
    return folder


def run_with(version: str, *arguments: str) -> str:
    """Runs Python with this release instead of the installed one; what it printed."""
    code = f"import mujoco; assert mujoco.__version__ == {version!r}, mujoco.__file__"
    environment = {**os.environ, "PYTHONPATH": str(package(version))}
    for command in (["-c", code], list(arguments)):
        found = subprocess.run(
            [sys.executable, *command],
            cwd=HERE,
            env=environment,
            capture_output=True,
            text=True,
            timeout=3600,
        )
        assert found.returncode == 0, found.stdout[-5000:] + found.stderr[-5000:]
    return found.stdout


def run_tests(version: str, *arguments: str) -> str:
    said = run_with(version, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *arguments)
    assert " passed" in said and " failed" not in said and " skipped" not in said, said
    return said


# by file, the tests that say most of another release: Gymnasium's tasks, own fields of models,
# dm_control's tasks, and steps of any engine
OF_SECOND = {
    "test_mujoco.py": "test_episodes_equal_gymnasium and "
    "(Ant-v5 or HalfCheetah-v5 or Humanoid-v5 or Reacher-v5)",
    "test_model_fields.py": "every_field_reads or overrides_step_as or goes_on_equal",
    "test_dm_control.py": "test_episodes_equal_dm_control and "
    "(HumanoidWalk or StackerStack2 or QuadrupedEscape)",
    "../families/test_mujoco_lanes.py": "shows_what_mujocos_shows or models_that_differ",
}


@pytest.mark.system
def test_what_is_compared_with_mujoco_holds_with_the_second_release() -> None:
    # one process for all, which takes as long to start as to test
    chosen = " or ".join(f"({Path(file).name} and ({names}))" for file, names in OF_SECOND.items())
    said = run_tests(SECOND, *OF_SECOND, "-rA", "-k", chosen)
    for file in OF_SECOND:
        assert re.search(rf"PASSED \S*\b{Path(file).name}::", said), said


@pytest.mark.slow
@pytest.mark.parametrize("version", [*OTHERS, SECOND])
def test_all_oracles_hold_with_other_releases(version: str) -> None:
    """Runs all of them: Gymnasium's tasks, and every field of models."""
    run_tests(version, "test_mujoco.py", "test_mujoco_v4.py", "test_model_fields.py")


@pytest.mark.slow
@pytest.mark.parametrize("version", [*OTHERS, SECOND, "4.0.0"])
def test_constants_write_only_what_our_table_says(version: str) -> None:
    said = run_with(version, "mujoco_constants.py")
    assert said.startswith(version) and said.strip().endswith("[]"), said


def test_an_unsupported_release_is_refused_with_what_to_install() -> None:
    code = (
        "import rollouts\n"
        "from rollouts.errors import EngineError\n"
        "try: rollouts.make_vec('Ant-v5', 1)\n"
        "except EngineError as error: print(error)"
    )
    said = run_with("3.13.0", "-c", code)
    assert "mujoco 3.13.0 is installed" in said and 'pip install "mujoco>=3.14,<4.1"' in said


@pytest.mark.system
def test_lanes_step_what_they_equal_of_another_release_and_say_what_they_do_not() -> None:
    code = """
import warnings
import rollouts
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for env_id in ("HalfCheetah-v5", "Ant-v5"):
        with rollouts.make_vec(env_id, 2) as env:
            print(env_id, env.mujoco_engine, env.why_not_lanes)
    with rollouts.make_vec("MuJoCo-v0", 2, xml_file="hopper.xml", info=["qacc"]) as env:
        print("qacc", env.mujoco_engine, env.why_not_lanes)
print("told", len(told), told[0].message)
"""
    said = run_with(SECOND, "-W", "error::SyntaxWarning", "-c", code)
    lines = said.strip().splitlines()
    assert lines[0] == "HalfCheetah-v5 lanes "
    # rotations in Runge and Kutta's stages are 4.0's
    assert lines[1].startswith("Ant-v5 mujoco steps of lanes differ from those of MuJoCo 3.17.0 by")
    assert (
        lines[2].startswith("qacc mujoco") and "this release of MuJoCo leaves otherwise" in lines[2]
    )
    assert lines[3].startswith("told 1 steps of lanes differ")
