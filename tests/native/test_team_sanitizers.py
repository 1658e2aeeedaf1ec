# SPDX-License-Identifier: Apache-2.0
"""Kernels of worlds, a thread for each of a GPU's, under ThreadSanitizer and AddressSanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from sanitizers import HANG_LIMIT_S, HERE, SANITIZERS, build, needs_compiler, run, scenarios

UNGUARDED = "nobody_waits"
SCENARIOS = ["crowd", "crowd_in_rounds", "grid", UNGUARDED, "world_comm"]

pytestmark = [needs_compiler, pytest.mark.system]


@pytest.fixture(scope="session")
def team_programs() -> dict[str, Path]:
    """team_stress built with each sanitizer."""
    return build("team_stress", [HERE / "programs" / "team_stress.cpp"])


def test_every_scenario_of_the_team_program_is_run(team_programs: dict[str, Path]) -> None:
    assert scenarios(team_programs["asan"]) == SCENARIOS


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one != UNGUARDED])
def test_teams_are_free_of_races_and_memory_errors(
    team_programs: dict[str, Path], scenario: str, sanitizer: str
) -> None:
    run(team_programs[sanitizer], scenario)


def test_a_team_that_does_not_wait_is_found(team_programs: dict[str, Path]) -> None:
    found = subprocess.run(
        [team_programs["tsan"], UNGUARDED], capture_output=True, text=True, timeout=HANG_LIMIT_S
    )
    if "unexpected memory mapping" in found.stderr:
        pytest.skip("this kernel's address layout is one that ThreadSanitizer cannot use")
    assert found.returncode != 0
    assert "data race" in found.stderr
