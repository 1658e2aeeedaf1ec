# SPDX-License-Identifier: Apache-2.0
"""Nearest points as the CPU's loops and as a kernel's, sorted into cells or not, beside sorting."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from sanitizers import GXX, HANG_LIMIT_S, HERE, NATIVE, needs_compiler

pytestmark = pytest.mark.system

SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@needs_compiler
@pytest.mark.parametrize("define", [[], ["-DROLLOUTS_KERNEL"]], ids=["loops", "kernel"])
def test_those_found_are_the_nearest_in_order(define: list[str], tmp_path: Path) -> None:
    program = tmp_path / "nearest_points"
    source = HERE / "programs" / "nearest_points.cpp"
    command = [str(GXX), "-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", *SANITIZE]
    subprocess.run(
        [*command, *define, f"-I{NATIVE / 'include'}", str(source), "-o", str(program)], check=True
    )
    subprocess.run([str(program)], check=True, timeout=HANG_LIMIT_S)
