# SPDX-License-Identifier: Apache-2.0
"""Builds stress programs with sanitizers, and runs their scenarios."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native"
# a scenario takes seconds; on a busy machine a sanitizer makes many of them
HANG_LIMIT_S = 600
SANITIZERS = {"tsan": "thread", "asan": "address,undefined"}

GXX = shutil.which("g++")
needs_compiler = pytest.mark.skipif(GXX is None, reason="needs the compiler g++")


def build(folder: Path, sources: Sequence[Path], *options: str) -> dict[str, Path]:
    """Builds a program with each sanitizer, both compilers at once; returns the executables.

    Args:
      folder: Where they go.
      sources: All .cpp files.
      options: Of the compiler, beside the usual ones.
    """
    builds = {}
    for name, flag in SANITIZERS.items():
        command = [str(GXX), "-std=c++20", "-O1", "-g", "-pthread", "-ffp-contract=off"]
        command += ["-Wall", "-Wextra", "-Werror", *options, f"-fsanitize={flag}"]
        command += ["-fno-sanitize-recover=all", f"-I{NATIVE / 'include'}"]
        command += [*map(str, sources), "-o", str(folder / name)]
        builds[name] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    # all are waited for before any is judged: none is left behind
    errors = {name: build.communicate()[1] for name, build in builds.items()}
    for name, text in errors.items():
        if "cannot find -l" in text or "unable to find library" in text:
            pytest.skip(f"the library of -fsanitize={SANITIZERS[name]} is not installed")
        assert builds[name].returncode == 0, text
    return {name: folder / name for name in SANITIZERS}


def scenarios(program: Path) -> list[str]:
    """The scenarios that a program says it has."""
    listed = subprocess.run([program], capture_output=True, text=True, check=True)
    return listed.stdout.split()


def run(program: Path, scenario: str) -> None:
    """Runs one scenario; whatever the sanitizer or the program finds fails the test."""
    result = subprocess.run(
        [program, scenario], capture_output=True, text=True, timeout=HANG_LIMIT_S
    )
    if "unexpected memory mapping" in result.stderr:
        pytest.skip("this kernel's address layout is one that ThreadSanitizer cannot use")
    assert result.returncode == 0, result.stderr[-4000:]
