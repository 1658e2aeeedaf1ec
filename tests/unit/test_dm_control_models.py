# SPDX-License-Identifier: Apache-2.0
"""Where the DeepMind Control Suite's models come from, and what is said when they do not."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rollouts
from rollouts import dm_control
from rollouts.errors import SpecError

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


@needs_dm_control
def test_models_are_gone_when_the_process_has_ended() -> None:
    code = (
        "import os, rollouts\n"
        "from rollouts import dm_control\n"
        "rollouts.make_vec('PendulumSwingup-v1').close()\n"
        "path = dm_control.model_file('PendulumSwingup-v1', 'envs/dm_control/pendulum.h')\n"
        "child = os.fork()\n"
        "if child == 0: sys_exit = __import__('sys').exit()\n"
        "os.waitpid(child, 0)\n"
        "print(path, path.is_file())"
    )
    path, there_after_the_child = run_python(code).split()
    assert there_after_the_child == "True"
    assert path.endswith("pendulum.mjb")
    with pytest.raises(FileNotFoundError):
        open(path, "rb").close()


@needs_dm_control
def test_tasks_of_one_domain_share_a_model() -> None:
    header = "envs/dm_control/walker.h"
    one, other = (dm_control.model_file(f"Walker{name}-v1", header) for name in ("Walk", "Run"))
    assert one == other and one.is_file()


@needs_dm_control
def test_options_are_those_of_the_suite() -> None:
    spec = rollouts.env_spec("CheetahRun-v1")
    assert dict(spec.options) == {"frame_skip": 0, "obs_dtype": "float64"}
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
