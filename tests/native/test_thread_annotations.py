# SPDX-License-Identifier: Apache-2.0
"""Locks of the pool: clang's -Wthread-safety finds nothing, and finds what is left unlocked."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
SOURCES = sorted((NATIVE / "src" / "pool").glob("*.cpp"))
# the newest that is called by its plain name, else any that says its version
NAMES = ["clang++", *(f"clang++-{version}" for version in range(30, 10, -1))]
CLANG = next((found for name in NAMES if (found := shutil.which(name))), None)
LOCK = re.compile(r"^ *const (?:Mutex|Open)Lock \w+\([^\n]*\);\n", re.MULTILINE)
LOCKING = [source for source in SOURCES if LOCK.search(source.read_text())]
OPTIONS = [
    "-std=c++20",
    "-fsyntax-only",
    "-Wthread-safety",
    "-Wthread-safety-beta",
    "-Werror",
    "-ferror-limit=0",
]

pytestmark = [
    pytest.mark.skipif(CLANG is None, reason="needs the compiler clang++"),
    pytest.mark.system,
]


def checked(source: str) -> subprocess.CompletedProcess[str]:
    assert CLANG is not None
    paths = [f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}", f"-I{NATIVE / 'src' / 'pool'}"]
    return subprocess.run(
        [CLANG, *OPTIONS, *paths, "-x", "c++", "-"], input=source, capture_output=True, text=True
    )


def test_every_guarded_member_is_used_with_its_lock() -> None:
    # as one, as the module is built: what they include takes longest
    result = checked("".join(f'#include "{source}"\n' for source in SOURCES))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("source", LOCKING, ids=lambda path: path.stem)
def test_locks_that_are_left_out_do_not_compile(source: Path) -> None:
    result = checked(LOCK.sub("\n", source.read_text()))
    assert result.returncode != 0
    assert re.search(r"'\w+' .*requires holding", result.stderr), result.stderr


def test_locks_taken_against_their_order_do_not_compile() -> None:
    path = NATIVE / "src" / "pool" / "cpu_pool.cpp"
    turned, count = re.subn(
        rf"({LOCK.pattern})({LOCK.pattern})", r"\2\1", path.read_text(), flags=LOCK.flags
    )
    assert count == 1
    result = checked(turned)
    assert result.returncode != 0
    assert re.search("'recv_mutex_' must be acquired before 'send_mutex_'", result.stderr)
