# SPDX-License-Identifier: Apache-2.0
"""Libraries that portable wheels are linked against, and errors where something is missing."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PORTABLE = Path(__file__).resolve().parents[2] / "native" / "portable"
GXX = shutil.which("g++")
READELF = shutil.which("readelf")

needs_gcc = pytest.mark.skipif(
    sys.platform != "linux" or GXX is None or READELF is None, reason="needs Linux, g++ and readelf"
)
SOURCE = """
#include <cmath>
#include <dlfcn.h>
double Compute(double x) { return std::exp(x) + std::pow(x, x) + std::hypot(x, x); }
void* Open(const char* path) { return dlopen(path, RTLD_NOW); }
"""


def old_libraries(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, PORTABLE / "old_libraries.py", "--readelf", READELF, *arguments]
    return subprocess.run([str(one) for one in command], capture_output=True, text=True)


def glibc_versions(module: Path) -> set[tuple[int, ...]]:
    found = re.findall(rb"\0GLIBC_([0-9.]+)(?=\0)", module.read_bytes())
    return {tuple(int(part) for part in version.split(b".")) for version in found}


@needs_gcc
def test_a_module_linked_against_old_libraries_asks_for_old_symbols(tmp_path: Path) -> None:
    names = ["libm.so.6", "libdl.so.2", "libpthread.so.0", "libc.so.6"]
    made = old_libraries("--compiler", GXX, "--folder", tmp_path / "old", *names)
    assert made.returncode == 0, made.stderr
    (tmp_path / "module.cpp").write_text(SOURCE)
    module = tmp_path / "module.so"
    command = [GXX, "-shared", "-fPIC", "-nodefaultlibs", tmp_path / "module.cpp", "-o", module]
    subprocess.run([*command, *(tmp_path / "old" / name for name in names)], check=True)
    assert glibc_versions(module)
    assert max(glibc_versions(module)) <= (2, 28)
    assert old_libraries("--check", module).returncode == 0
    # and it is found at run time, in the system's own libraries
    load = f"import ctypes; ctypes.CDLL({str(module)!r})._Z7Computed"
    subprocess.run([sys.executable, "-c", load], check=True)


@needs_gcc
def test_a_symbol_without_stand_in_is_named(tmp_path: Path) -> None:
    (tmp_path / "module.cpp").write_text('extern "C" int too_new(); int F() { return too_new(); }')
    module = tmp_path / "module.so"
    command = [GXX, "-shared", "-fPIC", "-nodefaultlibs", tmp_path / "module.cpp", "-o", module]
    subprocess.run(command, check=True)
    result = old_libraries("--check", module)
    assert result.returncode == 1
    assert "module.so needs too_new" in result.stderr
    assert "write a stand-in in native/portable/stand_ins.cpp" in result.stderr


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="crosses from x86-64 Linux"
)
def test_a_missing_cross_compiler_is_named_with_the_line_that_installs_it(tmp_path: Path) -> None:
    script = PORTABLE / "build_wheels.py"
    result = subprocess.run(
        [sys.executable, script, "--arch", "aarch64", "--out", tmp_path],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 1
    assert "apt-get install g++-aarch64-linux-gnu" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_interpreter_is_named_and_none_at_all_ends_the_build(tmp_path: Path) -> None:
    script = PORTABLE / "build_wheels.py"
    if sys.platform != "linux":
        pytest.skip("needs Linux")
    result = subprocess.run(
        [sys.executable, script, "--arch", platform.machine(), "--out", tmp_path],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 1
    for version in ("3.11", "3.12", "3.13", "3.14"):
        assert f"no wheel for CPython {version}" in result.stdout
    assert "no interpreter to build for" in result.stderr
