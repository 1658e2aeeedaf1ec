# SPDX-License-Identifier: Apache-2.0
"""Gradient steps under ThreadSanitizer and AddressSanitizer: see learner_stress.cpp."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitizers import (
    HERE,
    LEARNING,
    SANITIZERS,
    SUPPORT,
    WORKER_THREADS,
    build,
    group,
    needs_compiler,
    run,
    scenarios,
)

from rollouts import _native

GROUPS = [
    group("learner_stress", HERE / "programs", "learner_stress.cpp"),
    *LEARNING,
    WORKER_THREADS,
    SUPPORT,
]
SCENARIOS = [
    "learners_beside_each_other",
    "many_are_made",
    "stopped_updates",
    "threads_give_the_bits_of_one",
]

pytestmark = [needs_compiler, pytest.mark.system]


@pytest.fixture(scope="session")
def learner_programs() -> dict[str, Path]:
    """learner_stress built with each sanitizer."""
    return build("learner_stress", GROUPS)


def test_every_scenario_of_the_learner_program_is_run(learner_programs: dict[str, Path]) -> None:
    assert scenarios(learner_programs["asan"]) == SCENARIOS


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_learners_are_free_of_races_and_memory_errors(
    learner_programs: dict[str, Path], scenario: str, sanitizer: str
) -> None:
    run(learner_programs[sanitizer], scenario)


@pytest.mark.parametrize("kernels", _native.policy_kernels())
def test_each_instruction_set_reads_and_writes_arrays_alone(
    learner_programs: dict[str, Path], kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLOUTS_POLICY_KERNELS", kernels)
    run(learner_programs["asan"], "threads_give_the_bits_of_one")
