# SPDX-License-Identifier: Apache-2.0
"""Sources of the DeepMind Control Suite's models, and the error where there are none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import rollouts
from rollouts.errors import EngineError, SpecError
from rollouts.families import dm_control

pytestmark = pytest.mark.system

needs_dm_control = pytest.mark.skipif(
    not dm_control.installed(), reason="needs the dm-control package"
)

# makes the package look as if it were not there
HIDE = "import sys; sys.modules['dm_control'] = None; sys.modules['dm_control.suite'] = None\n"


def run_python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    return result.stdout.strip()


def test_without_dm_control_its_tasks_name_the_extra() -> None:
    code = (
        HIDE + "import rollouts\n"
        "from rollouts.errors import EngineError\n"
        "try:\n    rollouts.make_vec('CheetahRun-v1')\n"
        "except EngineError as error:\n    print(error)\n"
    )
    said = run_python(code)
    assert "need the dm-control package" in said
    assert "pip install 'rollouts[dm-control]'" in said


def test_ids_are_listed_without_importing_dm_control() -> None:
    code = (
        "import sys, rollouts\n"
        "listed = 'CheetahRun-v1' in rollouts.env_ids()\n"
        "print(listed, 'dm_control' in sys.modules, 'mujoco' in sys.modules)"
    )
    assert run_python(code) == f"{dm_control.installed()} False False"


PENDULUM = "PendulumSwingup-v1", "envs/dm_control/pendulum.h"
FIND = f"from rollouts.families import dm_control; print(dm_control.model_file(*{PENDULUM}))"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kept models, here and in child processes, empty."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / f"rollouts-models-{os.getuid()}"


@needs_dm_control
def test_processes_share_one_whole_file(folder: Path) -> None:
    # all of them find none and write their own
    programs = [
        subprocess.Popen([sys.executable, "-c", FIND], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    found = {program.communicate(timeout=300)[0].strip() for program in programs}
    (path,) = (Path(each) for each in found)
    assert list(folder.iterdir()) == [path]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    written = path.stat().st_mtime_ns
    assert run_python(FIND) == str(path)
    assert path.stat().st_mtime_ns == written
    rollouts.make_vec("PendulumSwingup-v1").close()


@needs_dm_control
def test_other_contents_have_other_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dm_control.suite import pendulum

    before = dm_control.model_file(*PENDULUM)
    xml, assets = pendulum.get_model_and_assets()
    heavier = xml.replace(b'timestep="0.02"', b'timestep="0.01"')
    assert heavier != xml
    monkeypatch.setattr(pendulum, "get_model_and_assets", lambda: (heavier, assets))
    changed = dm_control.model_file(*PENDULUM)
    monkeypatch.setattr(pendulum, "get_model_and_assets", lambda: (xml, assets | {"x": b""}))
    assert len({before, changed, dm_control.model_file(*PENDULUM)}) == 3


@needs_dm_control
def test_a_file_that_was_cleared_away_is_made_again(folder: Path) -> None:
    path = dm_control.model_file(*PENDULUM)
    content = path.read_bytes()
    path.unlink()
    assert dm_control.model_file(*PENDULUM) == path
    assert path.read_bytes() == content


@needs_dm_control
def test_a_folder_that_others_may_write_to_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(EngineError, match="no one else can write to"):
        rollouts.make_vec("PendulumSwingup-v1")
    folder.rmdir()
    folder.symlink_to(folder.parent)
    with pytest.raises(EngineError, match="no one else can write to"):
        rollouts.make_vec("PendulumSwingup-v1")


@needs_dm_control
def test_a_file_that_cannot_be_written_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(EngineError, match="No space left on device; set TMPDIR"):
        rollouts.make_vec("PendulumSwingup-v1")
    assert list(folder.iterdir()) == []


@needs_dm_control
def test_tasks_of_one_domain_share_a_model() -> None:
    header = "envs/dm_control/walker.h"
    one, other = (dm_control.model_file(f"Walker{name}-v1", header) for name in ("Walk", "Run"))
    assert one == other and one.is_file()


@needs_dm_control
def test_options_are_those_of_the_suite() -> None:
    spec = rollouts.env_spec("CheetahRun-v1")
    assert dict(spec.options) == {
        "engine": "auto",
        "frame_skip": 0,
        "from_pixels": False,
        "grayscale": False,
        "obs_dtype": "float64",
    }
    with pytest.raises(SpecError, match="frame_skip"):
        rollouts.make_vec("CheetahRun-v1", frame_skip=-1)
    with pytest.raises(SpecError, match="no option 'suite_model'"):
        rollouts.make_vec("CheetahRun-v1", suite_model="x")


@needs_dm_control
def test_frame_skip_is_substeps() -> None:
    from rollouts.mujoco import integration_state

    with rollouts.make_vec("WalkerWalk-v1", 1, seed=0, frame_skip=3) as env:
        env.reset()
        env.step(env.action_space.sample())
        time_s = integration_state(env.get_state()[0])[0]
    assert time_s == pytest.approx(3 * 0.0025)
