# SPDX-License-Identifier: Apache-2.0
"""Elementary functions of policies: how exact they are, and that every vector width agrees."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rollouts import _native

HERE = Path(__file__).parent
INCLUDE = HERE.parents[1] / "native" / "include"
GXX = shutil.which("g++")

pytestmark = pytest.mark.skipif(GXX is None, reason="needs the compiler g++")

WIDTHS = {"avx512": ["-DWIDTH_512"], "avx2": ["-DWIDTH_256"], "emulated": [], "baseline": []}
# softplus is a sum of two that may cancel nothing; erf is used by GELU alone
MOST_ULPS = {"exp": 2, "expm1": 2, "log": 2, "tanh": 2, "sigmoid": 2, "softplus": 3, "erf": 4}


def compared(folder: Path, width: list[str], stride: int) -> dict[str, tuple[float, str]]:
    program = folder / f"policy_ulps{''.join(width)}"
    options = ["-std=c++20", "-O2", "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi"]
    source = HERE / "policy_ulps.cpp"
    command = [str(GXX), *options, *width, f"-I{INCLUDE}", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    said = subprocess.run([program, str(stride)], capture_output=True, text=True, check=True)
    rows = [line.split() for line in said.stdout.splitlines()]
    return {name: (float(ulps), digest) for name, ulps, digest in rows}


def check(folder: Path, stride: int) -> None:
    by_width = [compared(folder, WIDTHS[name], stride) for name in _native.policy_kernels()]
    for name, (ulps, _) in by_width[0].items():
        assert ulps <= MOST_ULPS[name], name
    assert {*by_width[0]} == {*MOST_ULPS}
    assert all(found == by_width[0] for found in by_width)


def test_functions_are_as_exact_as_documented_and_equal_at_every_width(tmp_path: Path) -> None:
    check(tmp_path, stride=4999)


@pytest.mark.slow  # every float: minutes for each width
def test_functions_are_so_at_every_float(tmp_path: Path) -> None:
    check(tmp_path, stride=1)
