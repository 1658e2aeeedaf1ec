# SPDX-License-Identifier: Apache-2.0
"""The wheel, built once for all tests and processes of a run."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from wheels import build_wheel, has_build_requirements


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, of the last build's objects where nothing has changed."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = list(folder.glob("rollouts-*.whl"))
        return found[0] if found else build_wheel(folder, isolated=not has_build_requirements())
