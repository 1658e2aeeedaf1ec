# SPDX-License-Identifier: Apache-2.0
"""First imports of a checkout: one of its processes compiles, and the others read its bytecode."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_process_imports_first(build: Path) -> Iterator[None]:
    """Lets the first of several processes import alone, unless a run has done so.

    It compiles thousands of modules, which takes as long as it does to import them; others read its
    bytecode. All import at once where `build` says that there is some.
    """
    build.mkdir(parents=True, exist_ok=True)
    have_imported = build / "have_imported"
    with open(build / "first_imports.lock", "w") as lock:
        if not have_imported.exists():
            fcntl.flock(lock, fcntl.LOCK_EX)
            if have_imported.exists():
                fcntl.flock(lock, fcntl.LOCK_UN)
        try:
            yield
            have_imported.touch()
        finally:
            # a process that was forked meanwhile has the file, too
            fcntl.flock(lock, fcntl.LOCK_UN)
