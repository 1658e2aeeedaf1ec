# SPDX-License-Identifier: Apache-2.0
"""The host's tensor cores: elements lie in threads as PTX says."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sanitizers import GXX, HANG_LIMIT_S, HERE, NATIVE, needs_compiler

SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@needs_compiler
def test_a_warp_multiplies_matrices_as_ptx_lays_them_out(tmp_path: Path) -> None:
    program = tmp_path / "matrix_unit"
    source = HERE / "programs" / "matrix_unit.cpp"
    command = [str(GXX), "-std=c++20", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", *SANITIZE]
    subprocess.run(
        [*command, f"-I{NATIVE / 'include'}", str(source), "-o", str(program)], check=True
    )
    subprocess.run([str(program)], check=True, timeout=HANG_LIMIT_S)
