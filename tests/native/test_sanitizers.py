# SPDX-License-Identifier: Apache-2.0
"""The pool's threads under ThreadSanitizer and AddressSanitizer: see pool_stress.cpp."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitizers import (
    HERE,
    LEARNING,
    NATIVE,
    SANITIZERS,
    SUPPORT,
    WORKER_THREADS,
    build,
    group,
    needs_compiler,
    run,
    scenarios,
)

GROUPS = [
    group("pool_stress", HERE, "pool_stress*.cpp"),
    group("pool", NATIVE / "src" / "pool", "*.cpp"),
    group("acting", NATIVE / "src" / "policy", "native_policy.cpp", "r*.cpp"),
    group("digests", NATIVE / "src" / "data", "column_digests.cpp"),
    *LEARNING,
    WORKER_THREADS,
    SUPPORT,
]
SCENARIOS = [
    "agents_collect",
    "agents_leave_async",
    "agents_leave_sync",
    "async_senders_and_receiver",
    "close_wakes_recv",
    "close_while_collecting",
    "close_while_others_work_async",
    "close_while_others_work_sync",
    "close_while_others_work_sync_queued",
    "close_while_rows_are_shared",
    "close_while_stepping_async",
    "close_while_stepping_sync",
    "close_while_stepping_sync_queued",
    "closers_race",
    "counted_rollouts_equal_those_of_one_thread",
    "drain_against_sends_async",
    "drain_against_sends_sync",
    "drain_against_sends_sync_queued",
    "engines_step_in_parallel",
    "failures_async",
    "failures_sync",
    "failures_while_collecting",
    "held_buffers_do_not_change",
    "making_fails",
    "many_pools",
    "many_receivers_async",
    "many_receivers_sync",
    "many_receivers_sync_queued",
    "one_thread_is_first_in_first_out",
    "parts_of_batches_async",
    "polls_that_throw_end_rollouts",
    "rollouts_beside_other_calls",
    "rollouts_equal_those_of_one_thread",
    "rollouts_that_nobody_waits_for",
    "rounds_into_given_arrays",
    "rows_at_rest_fail",
    "rows_at_rest_show",
    "shared_rows",
    "slow_environment_holds_nobody_up",
    "stats_against_steps",
    "sync_rounds",
    "weights_change_while_collecting",
    "whole_rounds",
]

pytestmark = [needs_compiler, pytest.mark.system]


@pytest.fixture(scope="session")
def stress_programs() -> dict[str, Path]:
    """pool_stress built with each sanitizer."""
    return build("pool_stress", GROUPS)


def test_every_scenario_of_the_stress_program_is_run(stress_programs: dict[str, Path]) -> None:
    assert scenarios(stress_programs["asan"]) == SCENARIOS


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pool_is_free_of_races_and_memory_errors(
    stress_programs: dict[str, Path], scenario: str, sanitizer: str
) -> None:
    run(stress_programs[sanitizer], scenario)
