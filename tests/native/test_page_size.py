# SPDX-License-Identifier: Apache-2.0
"""Replay memory where the kernel's pages are larger than x86-64's 4 KiB."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native"
GXX = shutil.which("g++")


@pytest.mark.system
@pytest.mark.skipif(GXX is None, reason="needs the compiler g++")
def test_replay_memory_keeps_to_pages_of_64_kib(tmp_path: Path) -> None:
    program = tmp_path / "page_size"
    names = ("replay/chunk.cpp", "replay/column.cpp", "support/huge_pages.cpp")
    sources = [NATIVE / "src" / name for name in names]
    wrapped = [f"-Wl,--wrap={name}" for name in ("sysconf", "mmap", "munmap")]
    command = [GXX, "-std=c++20", "-O1", f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"]
    subprocess.run(
        [*command, *wrapped, HERE / "programs" / "page_size.cpp", *sources, "-o", program],
        check=True,
    )
    result = subprocess.run(
        [program, tmp_path / "replay.bin"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "refused 0 mapped 0\n"
