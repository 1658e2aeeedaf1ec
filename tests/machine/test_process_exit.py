# SPDX-License-Identifier: Apache-2.0
"""A process ends with its program's own exit code, whatever threads are at work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from exit_programs import EXIT_CODES, OF_RAY, PROGRAMS
from processes import environ_with_path
from small_cluster import cluster_of_its_own

PROGRAM_FILE = Path(__file__).with_name("exit_programs.py")
HANG_S = 3600
HERE = [program for program in PROGRAMS if program not in OF_RAY]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the programs fork")


def exit_codes(
    program: str, repeats: int, endings: Iterable[str] = EXIT_CODES, ray_address: str = ""
) -> dict[str, list[int]]:
    """The exit codes of so many runs of the program, by ending."""
    command = [sys.executable, str(PROGRAM_FILE), program, str(repeats), ray_address, *endings]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        env=environ_with_path(),
    )
    assert done.returncode == 0, done.stderr
    # nothing but the program's own error is told; no "terminate called", no FATAL
    assert "terminate called" not in done.stderr
    assert "FATAL" not in done.stderr
    errors = done.stderr.count("Traceback (most recent call last)")
    assert errors == repeats * len({"exception", "interrupt"} & {*endings}), done.stderr
    codes: dict[str, list[int]] = json.loads(done.stdout.splitlines()[-1])
    return codes


@pytest.fixture(scope="module")
def ray_address() -> Iterator[str]:
    """A cluster that the programs join: each would need seconds to start its own.

    It has a process of its own. Where this one shares Ray with other tests, on loopback, a cluster
    started here has another address than the one where programs expect their node.
    """
    pytest.importorskip("ray")
    with cluster_of_its_own(num_cpus=1) as address:
        yield address


@pytest.mark.system
@pytest.mark.parametrize("program", HERE)
def test_exit_code_is_the_programs_own(program: str) -> None:
    assert exit_codes(program, 1) == {ending: [code] for ending, code in EXIT_CODES.items()}


def codes_with_ray(ray_address: str) -> dict[str, int]:
    """Ray alone makes the end by a signal an exit code 1."""
    alone = exit_codes("ray_alone", 1, ["interrupt"], ray_address)
    return EXIT_CODES | {ending: codes[0] for ending, codes in alone.items()}


@pytest.mark.system
def test_exit_code_beside_a_coordinator_is_the_programs_own(ray_address: str) -> None:
    codes = codes_with_ray(ray_address)
    endings = ["normal", "interrupt"]
    found = exit_codes("collecting", 1, endings, ray_address)
    assert found == {ending: [codes[ending]] for ending in endings}


# slow: 1 600 processes, for what only some moments of an exit would show
@pytest.mark.slow
@pytest.mark.parametrize("program", HERE)
def test_exit_code_is_the_programs_own_in_100_of_100_runs(program: str) -> None:
    assert exit_codes(program, 100) == {ending: [code] * 100 for ending, code in EXIT_CODES.items()}


# slow: each of the 400 joins a Ray cluster and starts a worker
@pytest.mark.slow
@pytest.mark.parametrize("ending", EXIT_CODES)
def test_exit_code_beside_a_coordinator_is_the_programs_own_in_100_of_100_runs(
    ending: str, ray_address: str
) -> None:
    code = codes_with_ray(ray_address)[ending]
    assert exit_codes("collecting", 100, [ending], ray_address) == {ending: [code] * 100}
