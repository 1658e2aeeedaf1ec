# SPDX-License-Identifier: Apache-2.0
"""Programs of one source under ThreadSanitizer and AddressSanitizer.

`team_stress` runs kernels of worlds with a thread for each of a GPU's, `atari_stress` random ROMs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from sanitizers import HANG_LIMIT_S, HERE, SANITIZERS, build, group, needs_compiler, run, scenarios

# to optimise them with all checks takes a compiler two to three times as long; they run for seconds
LEVELS = {"atari_stress": {"asan": "-O0"}, "team_stress": {"asan": "-O0"}}
UNGUARDED = ("alone_and_nobody_waits", "nobody_waits")
# one thread, in which there is no race to be found
OF_ONE_THREAD = ("roms",)
SCENARIOS = {
    "atari_stress": ["roms", "threads"],
    "team_stress": [
        *("alone", "alone_and_nobody_waits", "cells", "crowd", "crowd_in_rounds", "grid"),
        *("nobody_waits", "world_comm"),
    ],
}
CLEAN = [
    (name, one, sanitizer)
    for name, all_of in SCENARIOS.items()
    for one in all_of
    for sanitizer in SANITIZERS
    if one not in UNGUARDED and not (one in OF_ONE_THREAD and sanitizer == "tsan")
]

pytestmark = [needs_compiler, pytest.mark.system]


@pytest.fixture(scope="session")
def programs() -> dict[str, dict[str, Path]]:
    """Each program built with each sanitizer."""
    return {
        name: build(name, [group(name, HERE / "programs", f"{name}.cpp")], LEVELS.get(name, {}))
        for name in SCENARIOS
    }


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_of_a_program_is_run(
    programs: dict[str, dict[str, Path]], name: str
) -> None:
    assert scenarios(programs[name]["asan"]) == SCENARIOS[name]


@pytest.mark.parametrize(("name", "scenario", "sanitizer"), CLEAN)
def test_programs_are_free_of_races_and_memory_errors(
    programs: dict[str, dict[str, Path]], name: str, scenario: str, sanitizer: str
) -> None:
    run(programs[name][sanitizer], scenario)


@pytest.mark.parametrize("scenario", UNGUARDED)
def test_a_team_that_does_not_wait_is_found(
    programs: dict[str, dict[str, Path]], scenario: str
) -> None:
    found = subprocess.run(
        [programs["team_stress"]["tsan"], scenario],
        capture_output=True, text=True, timeout=HANG_LIMIT_S,
    )  # fmt: skip
    if "unexpected memory mapping" in found.stderr:
        pytest.skip("this kernel's address layout is one that ThreadSanitizer cannot use")
    assert found.returncode != 0
    assert "data race" in found.stderr
