# SPDX-License-Identifier: Apache-2.0
"""The replay store under ThreadSanitizer and AddressSanitizer: see replay_stress.cpp."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native"
SOURCES = [
    HERE / "replay_stress.cpp",
    *sorted((NATIVE / "src" / "replay").glob("*.cpp")),
    NATIVE / "src" / "page_memory.cpp",
    NATIVE / "src" / "state.cpp",
]
# a scenario takes seconds; on a busy machine a sanitizer makes many of them
HANG_LIMIT_S = 600
SANITIZERS = {"tsan": "thread", "asan": "address,undefined"}
SCENARIOS = [
    "close_wakes_everybody",
    "queue_throughput",
    "states_meanwhile",
    "writers_and_readers",
]

GXX = shutil.which("g++")
pytestmark = pytest.mark.skipif(GXX is None, reason="needs the compiler g++")


@pytest.fixture(scope="session")
def replay_programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """replay_stress built with each sanitizer, both compilers at once."""
    folder = tmp_path_factory.mktemp("replay_sanitizers")
    builds = {}
    for name, flag in SANITIZERS.items():
        command = [GXX, "-std=c++20", "-O1", "-g", "-pthread", "-ffp-contract=off"]
        command += ["-Wall", "-Wextra", "-Werror", f"-fsanitize={flag}"]
        command += ["-fno-sanitize-recover=all", f"-I{NATIVE / 'include'}"]
        command += [*map(str, SOURCES), "-o", str(folder / name)]
        builds[name] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for name, build in builds.items():
        _, errors = build.communicate()
        if "cannot find -l" in errors or "unable to find library" in errors:
            pytest.skip(f"the library of -fsanitize={SANITIZERS[name]} is not installed")
        assert build.returncode == 0, errors
    return {name: folder / name for name in SANITIZERS}


def test_every_scenario_of_the_replay_program_is_run(replay_programs: dict[str, Path]) -> None:
    listed = subprocess.run(
        [replay_programs["asan"]], capture_output=True, text=True, check=True
    ).stdout.split()
    assert listed == SCENARIOS


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_replay_is_free_of_races_and_memory_errors(
    replay_programs: dict[str, Path], scenario: str, sanitizer: str
) -> None:
    result = subprocess.run(
        [replay_programs[sanitizer], scenario],
        capture_output=True,
        text=True,
        timeout=HANG_LIMIT_S,
    )
    if "unexpected memory mapping" in result.stderr:
        pytest.skip("this kernel's address layout is one that ThreadSanitizer cannot use")
    assert result.returncode == 0, result.stderr[-4000:]
