# SPDX-License-Identifier: Apache-2.0
"""The branch-free elementary functions of core/math.h against libm."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
INCLUDE = HERE.parents[1] / "native" / "include"
GXX = shutil.which("g++")

# two roundings of a value below 1; the wrapped angle, up to pi, has larger ones
TOLERANCE = {"sin": 2.3e-16, "cos": 2.3e-16, "wrap": 9e-16}


@pytest.mark.system
@pytest.mark.skipif(GXX is None, reason="needs the compiler g++")
def test_sine_cosine_and_wrapped_angle_are_as_exact_as_documented(tmp_path: Path) -> None:
    program = tmp_path / "math_ulps"
    command = [GXX, "-std=c++20", "-O2", "-ffp-contract=off", f"-I{INCLUDE}"]
    subprocess.run([*command, HERE / "programs" / "math_ulps.cpp", "-o", program], check=True)
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split("\n")
    differences = [line.split() for line in lines if line]
    assert len(differences) == 15
    for name, span, difference in differences:
        assert float(difference) <= TOLERANCE[name], (name, span, difference)
