# SPDX-License-Identifier: Apache-2.0
"""The replay store under ThreadSanitizer and AddressSanitizer: see replay_stress.cpp."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitizers import (
    HERE,
    NATIVE,
    SANITIZERS,
    SUPPORT,
    build,
    group,
    needs_compiler,
    run,
    scenarios,
)

GROUPS = [
    group("replay_stress", HERE, "replay_stress.cpp"),
    group("replay", NATIVE / "src" / "replay", "*.cpp"),
    SUPPORT,
]
SCENARIOS = [
    "close_wakes_everybody",
    "queue_throughput",
    "states_meanwhile",
    "writers_and_readers",
]

pytestmark = [needs_compiler, pytest.mark.system]


@pytest.fixture(scope="session")
def replay_programs() -> dict[str, Path]:
    """replay_stress built with each sanitizer."""
    return build("replay_stress", GROUPS)


def test_every_scenario_of_the_replay_program_is_run(replay_programs: dict[str, Path]) -> None:
    assert scenarios(replay_programs["asan"]) == SCENARIOS


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_replay_is_free_of_races_and_memory_errors(
    replay_programs: dict[str, Path], scenario: str, sanitizer: str
) -> None:
    run(replay_programs[sanitizer], scenario)
