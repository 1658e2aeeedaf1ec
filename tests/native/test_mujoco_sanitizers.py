# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's environments under ThreadSanitizer and AddressSanitizer: see mujoco_stress.cpp."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitizers import (
    HERE,
    NATIVE,
    SANITIZERS,
    SUPPORT,
    alone,
    build,
    group,
    mujoco_package,
    needs_compiler,
    run,
    scenarios,
)

from rollouts.families import dm_control
from rollouts.mujoco import assets_dir

SRC = NATIVE / "src"
GROUPS = [
    group("mujoco_stress", HERE, "mujoco_stress.cpp"),
    group("mujoco_engine", SRC / "engines", "mujoco_*.cpp"),
    *alone(SRC / "engines" / "mujoco_lanes", "*.cpp"),
    group("pixels", SRC / "engines" / "pixels", "*.cpp"),
    group("mujoco_envs", SRC / "envs", "dm_control/*.cpp", "mujoco/*.cpp"),
    group("lanes", SRC / "lanes", "[!l]*.cpp"),
    *alone(SRC / "lanes", "loops_*.cpp"),
    SUPPORT,
]
SCENARIOS = [
    "divergence_stays_apart",
    "fatal_errors_stay_apart",
    "groups_step_in_lanes",
    "own_fields_stay_apart",
    "own_models_stand_in_lanes",
    "parts_by_name",
    "suite_tasks_begin_in_groups",
    "suite_tasks_share_models",
    "threads_share_models",
]
# the tasks of the suite that the program plays, each by its header
SUITE = {
    "BallInCupCatch-v1": "envs/dm_control/ball_in_cup.h",
    "CheetahRun-v1": "envs/dm_control/cheetah.h",
    "StackerStack2-v1": "envs/dm_control/stacker.h",
}

# their loops take a compiler minutes; CI has the pool's threads, which step them, with sanitizers,
# and whole episodes in lanes beside MuJoCo without
pytestmark = [needs_compiler, pytest.mark.slow]


@pytest.fixture(scope="session")
def mujoco_programs() -> dict[str, Path]:
    """mujoco_stress built with each sanitizer."""
    return build("mujoco_stress", GROUPS)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that the program finds by its environment variables."""
    cheetah = (assets_dir() / "half_cheetah.xml").read_text()
    unstable = tmp_path / "half_cheetah.xml"
    unstable.write_text(cheetah.replace('timestep="0.01"', 'timestep="0.5"'))
    ant = (assets_dir() / "ant.xml").read_text()
    small = tmp_path / "ant.xml"
    small.write_text(ant.replace("<option ", '<size memory="12K"/>\n  <option ', 1))
    monkeypatch.setenv("MUJOCO_LIBRARY", str(next(mujoco_package().glob("libmujoco.*"))))
    monkeypatch.setenv("MUJOCO_ASSETS", str(assets_dir()))
    monkeypatch.setenv("UNSTABLE_MODEL", str(unstable))
    monkeypatch.setenv("SMALL_MODEL", str(small))
    for task, header in SUITE.items():
        (tmp_path / f"{task}.mjb").symlink_to(dm_control.model_file(task, header))
    monkeypatch.setenv("SUITE_MODELS", str(tmp_path))


def test_every_scenario_of_the_mujoco_program_is_run(mujoco_programs: dict[str, Path]) -> None:
    assert scenarios(mujoco_programs["asan"]) == SCENARIOS


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_mujoco_is_free_of_races_and_memory_errors(
    mujoco_programs: dict[str, Path], files: None, scenario: str, sanitizer: str
) -> None:
    run(mujoco_programs[sanitizer], scenario)
