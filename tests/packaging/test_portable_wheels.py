# SPDX-License-Identifier: Apache-2.0
"""The wheels of `make wheels`, where there is no compiler and on the other architecture."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from emulated import EmulatedPython, checked, emulated_python, missing_tools
from page_blocks import DOCS, script_of

# emulated steps and episodes are tens of times slower, and the wheels take minutes to build
pytestmark = pytest.mark.wheels

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
STEPS, ASYNC_STEPS = 1000, 10_000
EPISODES = {"classic_control": 20, "toy_text": 200}  # rarer are some of Blackjack's rewards


def wheel_for(arch: str, version: str) -> Path:
    tag = f"cp{version.replace('.', '')}"
    found = list((ROOT / "dist").glob(f"rollouts-*-{tag}-{tag}-*manylinux_2_28_{arch}.whl"))
    if len(found) != 1:
        pytest.skip(f"needs dist's {tag} wheel for {arch}: make wheels")
    return found[0]


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose PATH is a fresh virtual environment with the wheel, and nothing else."""
    wheel = wheel_for("x86_64", f"{sys.version_info[0]}.{sys.version_info[1]}")
    folder = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(folder, with_pip=True)
    constraints = ROOT / "constraints.txt"
    python = folder / "bin" / "python"
    checked(python, "-m", "pip", "install", "-q", "-c", constraints, wheel, "ale-py")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL", "CXX"))}
    return kept | {"PATH": str(folder / "bin")}


@pytest.mark.parametrize("page", ["tutorials/first_pool", "how_to/own_python_envs"])
def test_page_runs_from_the_wheel_without_a_compiler(
    page: str, without_compiler: dict[str, str], tmp_path: Path
) -> None:
    for compiler in ("c++", "g++", "gcc", "cc", "clang++"):
        assert shutil.which(compiler, path=without_compiler["PATH"]) is None
    (tmp_path / "page.py").write_text(script_of(DOCS / f"{page}.md"))
    result = subprocess.run(
        [Path(without_compiler["PATH"]) / "python", "page.py"],
        cwd=tmp_path, env=without_compiler, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Error" not in result.stderr


def test_every_wheel_is_small_and_binds_to_old_libraries_alone() -> None:
    wheels = sorted((ROOT / "dist").glob("rollouts-*.whl"))
    if not wheels:
        pytest.skip("needs the wheels of dist/: make wheels")
    for wheel in wheels:
        assert re.search(r"manylinux_2_28_(x86_64|aarch64)\.whl$", wheel.name), wheel.name
        assert wheel.stat().st_size < 10_000_000
        names = zipfile.ZipFile(wheel).namelist()
        # auditwheel had nothing to copy in
        assert not [name for name in names if ".libs/" in name]
        (module,) = (name for name in names if name.endswith(".so"))
        needed = zipfile.ZipFile(wheel).read(module)
        newest = {
            kind.decode(): max(
                tuple(int(part) for part in match.split(b"."))
                for match in re.findall(rb"\0" + kind + rb"_([0-9.]+)(?=\0)", needed)
            )
            for kind in (b"GLIBC", b"GLIBCXX")
        }
        assert newest["GLIBC"] <= (2, 28)
        assert newest["GLIBCXX"] <= (3, 4, 24)


@pytest.fixture(scope="module")
def aarch64(tmp_path_factory: pytest.TempPathFactory) -> EmulatedPython:
    missing_tools()
    return emulated_python(
        wheel_for("aarch64", "3.11"), tmp_path_factory.mktemp("aarch64") / "site"
    )


def test_aarch64_wheel_gives_the_data_of_this_machine(
    aarch64: EmulatedPython, tmp_path: Path
) -> None:
    program = [HERE / "steps_digest.py", STEPS, ASYNC_STEPS]
    here = checked(sys.executable, *program).splitlines()
    there = aarch64.run(*program, cwd=tmp_path).splitlines()
    assert len(here) == 17
    assert there == here


@pytest.mark.parametrize("name", ["classic_control", "toy_text"])
def test_aarch64_wheel_passes_the_oracle_tests(
    name: str, aarch64: EmulatedPython, tmp_path: Path
) -> None:
    for source in (ROOT / "tests" / "oracle").glob("*.py"):
        shutil.copy(source, tmp_path)
    # fewer episodes than on the machine itself, else the references take hours
    (tmp_path / "conftest.py").write_text(
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        f"        item.module.NUM_EPISODES = {EPISODES[name]}\n"
    )
    # the tests compile the core's sine for the reference
    compiler = tmp_path / "bin" / "c++"
    compiler.parent.mkdir()
    compiler.write_text('#!/bin/sh\nexec aarch64-linux-gnu-g++ "$@"\n')
    compiler.chmod(0o755)
    arguments = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", f"test_{name}.py"]
    output = aarch64.run(*arguments, cwd=tmp_path, path=str(compiler.parent))
    assert re.search(r"\d+ passed", output), output[-2000:]
    # what this Gymnasium lacks may be skipped, the comparison of sines may not
    skipped = [line for line in output.splitlines() if line.startswith("SKIPPED")]
    assert all("Gymnasium" in line for line in skipped), output[-2000:]
