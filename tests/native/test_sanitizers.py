# SPDX-License-Identifier: Apache-2.0
"""The pool's threads under ThreadSanitizer and AddressSanitizer: see pool_stress.cpp."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native"
SOURCES = [
    HERE / "pool_stress.cpp",
    HERE / "pool_stress_rounds.cpp",
    HERE / "pool_stress_threads.cpp",
    *sorted((NATIVE / "src").glob("cpu_pool*.cpp")),
    NATIVE / "src" / "batch_buffer.cpp",
    NATIVE / "src" / "buffer_ring.cpp",
    NATIVE / "src" / "options.cpp",
    NATIVE / "src" / "page_memory.cpp",
    NATIVE / "src" / "placement.cpp",
    NATIVE / "src" / "state.cpp",
    NATIVE / "src" / "step_stats.cpp",
]
# a scenario takes seconds; on a busy machine a sanitizer makes many of them
HANG_LIMIT_S = 600
SANITIZERS = {"tsan": "thread", "asan": "address,undefined"}
SCENARIOS = [
    "async_senders_and_receiver",
    "close_wakes_recv",
    "close_while_others_work_async",
    "close_while_others_work_sync",
    "close_while_others_work_sync_queued",
    "close_while_rows_are_shared",
    "close_while_stepping_async",
    "close_while_stepping_sync",
    "close_while_stepping_sync_queued",
    "closers_race",
    "drain_against_sends_async",
    "drain_against_sends_sync",
    "drain_against_sends_sync_queued",
    "engines_step_in_parallel",
    "failures_async",
    "failures_sync",
    "held_buffers_do_not_change",
    "making_fails",
    "many_pools",
    "many_receivers_async",
    "many_receivers_sync",
    "many_receivers_sync_queued",
    "one_thread_is_first_in_first_out",
    "parts_of_batches_async",
    "rounds_into_given_arrays",
    "shared_rows",
    "slow_environment_holds_nobody_up",
    "stats_against_steps",
    "sync_rounds",
    "whole_rounds",
]

GXX = shutil.which("g++")
pytestmark = pytest.mark.skipif(GXX is None, reason="needs the compiler g++")


@pytest.fixture(scope="session")
def stress_programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """pool_stress built with each sanitizer, both compilers at once."""
    folder = tmp_path_factory.mktemp("sanitizers")
    builds = {}
    for name, flag in SANITIZERS.items():
        command = [GXX, "-std=c++20", "-O1", "-g", "-pthread", "-ffp-contract=off"]
        # -Wno-tsan: gcc says that fences are not modelled; the pool's data pass through atomics
        command += ["-Wall", "-Wextra", "-Werror", "-Wno-tsan", f"-fsanitize={flag}"]
        command += ["-fno-sanitize-recover=all", f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"]
        command += [*map(str, SOURCES), "-o", str(folder / name)]
        builds[name] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for name, build in builds.items():
        _, errors = build.communicate()
        if "cannot find -l" in errors or "unable to find library" in errors:
            pytest.skip(f"the library of -fsanitize={SANITIZERS[name]} is not installed")
        assert build.returncode == 0, errors
    return {name: folder / name for name in SANITIZERS}


def test_every_scenario_of_the_stress_program_is_run(stress_programs: dict[str, Path]) -> None:
    listed = subprocess.run(
        [stress_programs["asan"]], capture_output=True, text=True, check=True
    ).stdout.split()
    assert listed == SCENARIOS


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pool_is_free_of_races_and_memory_errors(
    stress_programs: dict[str, Path], scenario: str, sanitizer: str
) -> None:
    result = subprocess.run(
        [stress_programs[sanitizer], scenario],
        capture_output=True,
        text=True,
        timeout=HANG_LIMIT_S,
    )
    if "unexpected memory mapping" in result.stderr:
        pytest.skip("this kernel's address layout is one that ThreadSanitizer cannot use")
    assert result.returncode == 0, result.stderr[-4000:]
