# SPDX-License-Identifier: Apache-2.0
"""Single headers of the core: the tests in units/, compiled into one program and run once."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from made_once import BUILD, make
from sanitizers import GXX, HERE, NATIVE, needs_compiler

UNITS = HERE / "units"
CACHE = BUILD / "units"
# Sources that become one object, those of the core before their tests: most of what a compiler does
# here is to read the same headers.
OBJECTS = {
    "policy": (
        ("policy/network", "policy/kernels", "policy/kernels_baseline", "policy/native_policy"),
        ("kernel_sets", "network", "kernels", "registers", "heads"),
    ),
    "rollouts": (
        (
            *("pool/cpu_pool", "pool/cpu_pool_idle", "pool/cpu_pool_recv", "pool/cpu_pool_send"),
            *("pool/cpu_pool_state", "pool/env_ledger", "pool/failure_log", "pool/placement"),
            *("pool/scheduler", "pool/scheduler_threads", "pool/heavy_env_batch", "policy/rollout"),
        ),
        ("tasks", "rollouts"),
    ),
    "pool": (
        ("pool/batch_buffer", "pool/buffer_ring", "pool/checked_copy", "pool/step_stats"),
        ("queues", "buffers", "stats", "configs"),
    ),
    "replay": (
        (
            *("replay/chunk", "replay/column", "replay/rate_limiter", "replay/selector"),
            *("replay/sum_tree", "replay/stream", "replay/gather", "replay/hindsight"),
            "replay/worker_threads",
        ),
        ("sums", "selectors", "chunks", "streams", "gather", "worker_threads"),
    ),
    "plugin": (("plugin/plugin_batch", "plugin/spec_rules", "engines/shared_library"), ("plugin",)),
    "support": (
        (
            *("data/column_digests", "data/packed_integers"),
            *("support/checksum", "support/huge_pages", "support/moments", "support/options"),
            *("support/page_memory", "support/state"),
        ),
        ("core", "options", "packing", "steps", "returns", "main"),
    ),
}
SOURCES = {path.stem.removeprefix("units_"): path for path in UNITS.rglob("*.cpp")}
NAMES = sorted(
    f"{suite}.{name}"
    for source in SOURCES.values()
    for suite, name in re.findall(r"^TEST\((\w+), (\w+)\)", source.read_text(), re.MULTILINE)
)

pytestmark = [needs_compiler, pytest.mark.system]


def compiled(name: str) -> Path:
    """An object of `OBJECTS`, made anew where a source or a header has changed."""
    command = [str(GXX), "-std=c++20", "-O1", "-pthread", "-ffp-contract=off", "-Wall", "-Wextra"]
    command += ["-Werror", "-MMD", "-c"]
    command += [f"-I{folder}" for folder in (NATIVE / "include", NATIVE / "src", UNITS)]
    parts, tests = OBJECTS[name]
    sources = [NATIVE / "src" / f"{part}.cpp" for part in parts]
    sources += [SOURCES[test] for test in tests]
    *first, last = map(str, sources)
    included = [option for source in first for option in ("-include", source)]
    return make(CACHE / f"{name}.o", [*command, *included, last], sources)


@pytest.fixture(scope="session")
def outcomes() -> dict[str, str]:
    """The program's words on each of its tests."""
    with ThreadPoolExecutor(2) as compilers:
        objects = list(compilers.map(compiled, OBJECTS))
    linked = [str(GXX), "-pthread", *map(str, objects)]
    program = make(CACHE / "units", linked, objects)
    done = subprocess.run([program], capture_output=True, text=True, timeout=600)
    said = {}
    for line in done.stdout.splitlines():
        outcome, name, *what = line.split(" ", 2)
        said[name] = "" if outcome == "ok" else what[0]
    # a crash ends the program before its later tests
    end = f"the program ended with {done.returncode} before it: {done.stderr[-2000:]}"
    return dict.fromkeys(NAMES, end) | said


def test_names_are_those_of_the_program(outcomes: dict[str, str]) -> None:
    assert sorted(outcomes) == NAMES


def test_every_source_is_compiled() -> None:
    assert {name for _, tests in OBJECTS.values() for name in tests} == set(SOURCES)


@pytest.mark.parametrize("name", NAMES)
def test_of_a_header_holds(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name] == ""
