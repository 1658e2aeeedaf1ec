# SPDX-License-Identifier: Apache-2.0
"""Packages of `make demo`, `make test` and `make bench` are to be had from the public index.

uv resolves it from metadata alone, with none of this machine's settings: for every Python and every
platform, whichever this is. All comes as wheels, so that nobody builds somebody else's library.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
import uv

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
# what is to be had for the first and the last is for those between, but for a slip of some library
EACH = [
    pytest.param(one, marks=() if one in (PYTHONS[0], PYTHONS[-1]) else pytest.mark.slow)
    for one in PYTHONS
]
LINUX, LINUX_ARM, MACOS_ARM = (
    "x86_64-manylinux_2_28",
    "aarch64-manylinux_2_28",
    "aarch64-apple-darwin",
)
# rl_games wants psutil below 6, which has no wheel for this one platform
BUILT_FROM_SOURCE = {LINUX: [], LINUX_ARM: ["psutil"], MACOS_ARM: []}

# how this machine reaches others; an index is none of these
CONNECTION = ("PATH", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE")
NO_CONNECTION = re.compile(
    r"dns error|error trying to connect|[Cc]onnection (refused|reset)|unreachable|"
    r"timed out|tunnel error|No route to host"
)


def resolve(
    requirements: Path,
    python: str,
    platform: str,
    home: Path,
    *,
    extras: Sequence[str] = (),
    constraints: Path | None = None,
) -> dict[str, str]:
    """Resolves as a stranger's machine would; returns versions by name."""
    environment = {name: os.environ[name] for name in CONNECTION if name in os.environ}
    environment |= {"HOME": str(home), "MACOSX_DEPLOYMENT_TARGET": "14.0"}
    if "PIP_CERT" in os.environ:
        environment["SSL_CERT_FILE"] = os.environ["PIP_CERT"]
    command = [uv.find_uv_bin(), "pip", "compile", str(requirements), "--no-config", "--no-header"]
    command += ["--python", sys.executable, "--python-version", python]
    command += ["--python-platform", platform, "--only-binary", ":all:"]
    for package in BUILT_FROM_SOURCE[platform]:
        command += ["--no-binary", package]
    for extra in extras:
        command += ["--extra", extra]
    if constraints is not None:
        command += ["--constraints", str(constraints)]
    command += ["--no-annotate", "--emit-index-annotation"]
    result = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True)
    if result.returncode != 0 and NO_CONNECTION.search(result.stderr):
        pytest.skip(f"needs a network: {result.stderr.strip()[-300:]}")
    assert result.returncode == 0, result.stderr[-4000:]

    # all of it from one index, and none of it from a folder of this machine
    indices = set(re.findall(r"# from (\S+)", result.stdout))
    assert len(indices) == 1, indices
    assert next(iter(indices)).startswith("https://"), indices
    return dict(re.findall(r"^([\w.-]+)==(\S+)", result.stdout, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home without settings; keeps the metadata that the tests here share."""
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("platform", [LINUX, LINUX_ARM, MACOS_ARM])
@pytest.mark.parametrize("python", EACH)
def test_demo_and_tests_install_from_the_public_index(
    python: str, platform: str, home: Path
) -> None:
    # what resolves together does in the steps that the Makefile takes
    found = resolve(
        ROOT / "pyproject.toml",
        python,
        platform,
        home,
        extras=["examples", "dev", "bench"],
        constraints=ROOT / "constraints.txt",
    )
    assert {"torch", "ray", "ale-py", "mujoco", "pytest", "tensorboard"} <= set(found)
    # the torch of Linux is the one with CUDA, and brings the NVRTC that the tests use
    assert ("nvidia-cuda-nvrtc" in found) == (platform != MACOS_ARM)


@pytest.mark.parametrize("python", EACH)
def test_newest_gymnasium_installs_from_the_public_index(
    python: str, home: Path, tmp_path: Path
) -> None:
    # as the target test-newest-gymnasium of the Makefile
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    kept = [line for line in lines if not line.startswith("gymnasium=")]
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("\n".join([*kept, "gymnasium>=1.4"]))
    found = resolve(
        ROOT / "pyproject.toml", python, LINUX, home, extras=["test"], constraints=constraints
    )
    assert tuple(map(int, found["gymnasium"].split(".")[:2])) >= (1, 4)


@pytest.mark.parametrize("python", EACH)
def test_library_alone_needs_numpy_and_gymnasium_alone(python: str, home: Path) -> None:
    found = resolve(ROOT / "pyproject.toml", python, LINUX, home)
    of_gymnasium = {"cloudpickle", "farama-notifications", "typing-extensions"}
    assert set(found) == {"numpy", "gymnasium"} | of_gymnasium


@pytest.mark.parametrize("platform", [LINUX, LINUX_ARM, MACOS_ARM])
@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]])
def test_what_builds_it_comes_from_the_public_index(
    python: str, platform: str, home: Path, tmp_path: Path
) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("\n".join(PROJECT["build-system"]["requires"]))
    assert "pybind11" in resolve(requirements, python, platform, home)


def test_every_extra_that_the_makefile_installs_is_resolved_here() -> None:
    makefile = (ROOT / "Makefile").read_text()
    asked = re.findall(r"\(EXTRA_REQUIREMENTS\) ([\w -]+)", makefile)
    installed = {name for names in asked for name in names.split()}
    assert installed == {"dependencies", "examples", "dev", "bench", "build-system"}


def test_every_python_that_is_promised_is_resolved_here() -> None:
    promised = re.findall(r"Python :: (3\.\d+)'", str(PROJECT["project"]["classifiers"]))
    assert promised == PYTHONS
