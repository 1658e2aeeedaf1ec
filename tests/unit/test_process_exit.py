# SPDX-License-Identifier: Apache-2.0
"""A process ends with its program's own exit code, whatever threads are at work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from exit_programs import EXIT_CODES, PROGRAMS

PROGRAM_FILE = Path(__file__).with_name("exit_programs.py")
HANG_S = 3600

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the programs fork")


def exit_codes(program: str, ending: str, repeats: int) -> list[int]:
    """Of so many runs of the program."""
    command = [sys.executable, str(PROGRAM_FILE), program, ending, str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    # nothing but the program's own error is told; no "terminate called", no FATAL
    assert "terminate called" not in done.stderr
    assert "FATAL" not in done.stderr
    codes: list[int] = json.loads(done.stdout.splitlines()[-1])
    return codes


@pytest.mark.parametrize("ending", EXIT_CODES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_exit_code_is_the_programs_own(program: str, ending: str) -> None:
    assert exit_codes(program, ending, 3) == [EXIT_CODES[ending]] * 3


# slow: 1 600 processes, for what only some moments of an exit would show
@pytest.mark.slow
@pytest.mark.parametrize("ending", EXIT_CODES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_exit_code_is_the_programs_own_in_100_of_100_runs(program: str, ending: str) -> None:
    assert exit_codes(program, ending, 100) == [EXIT_CODES[ending]] * 100
