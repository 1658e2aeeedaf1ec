# SPDX-License-Identifier: Apache-2.0
"""A build without Box2D's sources says so in a sentence, or does without them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"

# that of this Python's environment: the system's own may be too old, or none
CMAKE = shutil.which("cmake", path=str(Path(sys.executable).parent))

pytestmark = [pytest.mark.system, pytest.mark.skipif(CMAKE is None, reason="needs cmake")]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The core's sources alone, without what earlier builds downloaded."""
    shutil.copytree(NATIVE, tmp_path / "checkout" / "native")
    return tmp_path / "checkout"


def configure(checkout: Path, box2d: str) -> tuple[int, str]:
    """The exit status and the words, on one line, of a configuration without a package index."""
    pybind11 = subprocess.run(
        [sys.executable, "-m", "pybind11", "--cmakedir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    command = [str(CMAKE), "-S", checkout / "native", "-B", checkout / "objects"]
    command += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={pybind11}"]
    done = subprocess.run(
        [*command, f"-DROLLOUTS_BOX2D={box2d}"],
        capture_output=True,
        text=True,
        env=os.environ | {"PIP_NO_INDEX": "1"},
    )
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_build_without_sources_is_one_without_box2d(checkout: Path) -> None:
    status, said = configure(checkout, "AUTO")
    assert status == 0
    assert "This build has no Box2D environments: pip could not download" in said
    assert "build/box2d/box2d-py-2.3.8.tar.gz" in said


def test_build_that_must_have_box2d_says_what_to_do(checkout: Path) -> None:
    status, said = configure(checkout, "ON")
    assert status != 0
    assert re.search(r"No Box2D: pip could not download .*cmake.define.ROLLOUTS_BOX2D=OFF", said)


def test_other_sources_are_not_built(checkout: Path) -> None:
    archive = checkout / "build" / "box2d" / "box2d-py-2.3.8.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"other sources")
    status, said = configure(checkout, "ON")
    assert status != 0
    assert "has SHA-256" in said and "expected bdacfbbc56079bb3" in said


def test_build_without_box2d_asks_nobody(checkout: Path) -> None:
    status, said = configure(checkout, "OFF")
    assert status == 0
    assert "Box2D" not in said
