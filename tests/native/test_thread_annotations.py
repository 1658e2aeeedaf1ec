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
OPTIONS = ["-std=c++20", "-fsyntax-only", "-Wthread-safety", "-Wthread-safety-beta", "-Werror"]

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


def without(path: Path, line: str) -> str:
    """The source without the first line that holds this text."""
    text = path.read_text()
    assert line in text, f"{path.name} has no {line!r} any more"
    return re.sub(rf"^.*{re.escape(line)}.*\n", "\n", text, count=1, flags=re.MULTILINE)


def test_every_guarded_member_is_used_with_its_lock() -> None:
    # as one, as the module is built: what they include takes longest
    result = checked("".join(f'#include "{source}"\n' for source in SOURCES))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("file", "lock", "guarded"),
    [
        ("cpu_pool_send.cpp", "const OpenLock lock(*this, send_mutex_);", "ledger_"),
        ("cpu_pool_recv.cpp", "const MutexLock lock(pool_.send_mutex_);", "receiving_"),
        ("cpu_pool_recv.cpp", "const OpenLock lock(*this, recv_mutex_);", "RecvRound"),
        ("failure_log.cpp", "const MutexLock lock(mutex_);", "failures_"),
        ("step_stats.cpp", "const MutexLock lock(base_mutex_);", "base_"),
    ],
)
def test_a_lock_that_is_left_out_does_not_compile(file: str, lock: str, guarded: str) -> None:
    result = checked(without(NATIVE / "src" / "pool" / file, lock))
    assert result.returncode != 0
    assert re.search(rf"'{guarded}'.* requires holding", result.stderr), result.stderr


def test_locks_taken_against_their_order_do_not_compile() -> None:
    path = NATIVE / "src" / "pool" / "cpu_pool.cpp"
    first = "    const MutexLock recv_lock(recv_mutex_);\n"
    second = "    const MutexLock send_lock(send_mutex_);\n"
    source = path.read_text()
    assert first + second in source
    result = checked(source.replace(first + second, second + first))
    assert result.returncode != 0
    assert "'recv_mutex_' must be acquired before 'send_mutex_'" in result.stderr, result.stderr
