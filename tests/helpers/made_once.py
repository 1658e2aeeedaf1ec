# SPDX-License-Identifier: Apache-2.0
"""Files that compilers make: each is made once, and kept beside a digest of what it was made of.

Another process, or a second run, makes what has changed, whatever the files' times say.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

# where they are kept
BUILD = Path(__file__).resolve().parents[2] / "build"


def make(made: Path, command: list[str], inputs: Sequence[Path]) -> Path:
    """Runs `command` -o `made` unless it was made of the same; returns `made`."""
    with _locked(made):
        digest = made.with_name(f"{made.name}.sha256")
        depfile = made.with_suffix(".d")
        fresh = made.exists() and digest.exists()
        if fresh and digest.read_text() == _digest(command, inputs, depfile):
            return made
        digest.unlink(missing_ok=True)
        began = time.time()
        done = subprocess.run([*command, "-o", str(made)], stderr=subprocess.PIPE, text=True)
        if "cannot find -l" in done.stderr or "unable to find library" in done.stderr:
            pytest.skip(f"a sanitizer's library is not installed: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        # a file that was edited meanwhile may have been read before or after
        read = [path for path in _read_files(inputs, depfile) if path.exists()]
        if all(path.stat().st_mtime < began for path in read):
            digest.write_text(_digest(command, inputs, depfile))
    return made


def _read_files(inputs: Sequence[Path], depfile: Path) -> list[Path]:
    """The inputs, and the headers that they included."""
    text = depfile.read_text() if depfile.exists() else ""
    headers = re.sub(r"\\\n|^[^:]*:", " ", text).split()
    return [Path(one) for one in dict.fromkeys([*map(str, inputs), *headers])]


def _digest(command: list[str], inputs: Sequence[Path], depfile: Path) -> str:
    """A hash of the compiler, its options, and the files that it read."""
    found = hashlib.sha256(repr((_version(command[0]), command)).encode())
    for path in _read_files(inputs, depfile):
        digest = Path(f"{path}.sha256")
        # what was made here has a digest, which says the same in fewer bytes
        content = digest if digest.exists() else path
        found.update(content.read_bytes() if content.exists() else b"gone")
    return found.hexdigest()


@functools.cache
def _version(compiler: str) -> str:
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return said.stdout


@contextmanager
def _locked(made: Path) -> Iterator[None]:
    """Keeps other threads and processes from making the same file meanwhile."""
    made.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(made.with_name(f"{made.name}.lock"), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
