# SPDX-License-Identifier: Apache-2.0
"""The first of several processes imports alone, so that the others read what it compiled."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from first_imports import one_process_imports_first


def others_wait(build: Path) -> bool:
    with open(build / "first_imports.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_others_wait_for_the_first_and_then_for_nobody(tmp_path: Path) -> None:
    with one_process_imports_first(tmp_path):
        assert others_wait(tmp_path)
    with one_process_imports_first(tmp_path), one_process_imports_first(tmp_path):
        assert not others_wait(tmp_path)


def test_where_the_first_failed_the_next_imports_alone(tmp_path: Path) -> None:
    with pytest.raises(ImportError), one_process_imports_first(tmp_path):
        raise ImportError
    assert not others_wait(tmp_path)
    with one_process_imports_first(tmp_path):
        assert others_wait(tmp_path)
