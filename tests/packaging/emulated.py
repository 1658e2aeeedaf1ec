# SPDX-License-Identifier: Apache-2.0
"""A CPython for aarch64 that runs on this machine, by QEMU's user-mode emulation.

Interpreter and C library are Debian's, unpacked into a folder: nothing is installed on the
machine, and no root is needed. Packages are PyPI's wheels for aarch64.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "aarch64"
VERSION = "3.11"
DEBIAN = Path("/etc/debian_version")
TOOLS = {
    "qemu-aarch64-static": "qemu-user-static",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "apt-get": "apt",
    "dpkg": "dpkg",
}
APT = """
Dir::State "{0}/state";
Dir::State::status "{0}/state/status";
Dir::Cache "{0}/cache";
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "";
Debug::NoLocking "true";
"""
PLATFORMS = [f"manylinux_2_{minor}_aarch64" for minor in (28, 27, 17)]


def checked(*command: object, cwd: Path | None = None, **environment: str) -> str:
    """The output of the command; fails the test with all of it where the command fails."""
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=3000,
    )  # fmt: skip
    assert result.returncode == 0, f"{command}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    return result.stdout


@dataclass(frozen=True, slots=True)
class EmulatedPython:
    """The unpacked system and the folder of Python packages."""

    system: Path
    packages: Path

    def run(self, *arguments: object, cwd: Path, path: str = "") -> str:
        """Runs the interpreter with `packages` importable and `path` before PATH."""
        return checked(
            "qemu-aarch64-static", "-L", self.system,
            self.system / "usr" / "bin" / f"python{VERSION}", *arguments,
            PYTHONPATH=str(self.packages), PYTHONDONTWRITEBYTECODE="",
            PATH=f"{path}{os.pathsep}{os.environ['PATH']}", cwd=cwd,
        )  # fmt: skip


def missing_tools() -> None:
    """Skips the test, with the reason, where this machine cannot emulate."""
    lacking = sorted(package for tool, package in TOOLS.items() if shutil.which(tool) is None)
    if lacking:
        pytest.skip(f"emulating aarch64 needs Debian's {' '.join(lacking)}: apt-get install them")
    if not DEBIAN.exists():
        pytest.skip(f"the emulated interpreter is Debian's, and this system has no {DEBIAN}")


def system() -> Path:
    """Debian's CPython for arm64 with what it needs, unpacked once into build/.

    It comes from where this machine's own packages do.
    """
    folder = CACHE / "system"
    if folder.exists():
        return folder
    for part in ("state/lists/partial", "cache/archives/partial"):
        (CACHE / part).mkdir(parents=True, exist_ok=True)
    (CACHE / "state" / "status").touch()
    (CACHE / "apt.conf").write_text(APT.format(CACHE))
    configured = {"APT_CONFIG": str(CACHE / "apt.conf")}
    checked("apt-get", "update", **configured)
    names = [f"python{VERSION}", "libstdc++6"]
    checked("apt-get", "-y", "--download-only", "install", *names, **configured)
    unfinished = CACHE / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for package in sorted((CACHE / "cache" / "archives").glob("*.deb")):
        checked("dpkg", "-x", package, unfinished)
    return unfinished.rename(folder)


def emulated_python(wheel: Path, packages: Path) -> EmulatedPython:
    """The interpreter with the wheel and what it depends on in the folder `packages`."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", packages, "--no-compile"]
    pip += ["--only-binary=:all:", "--python-version", VERSION, "--implementation", "cp"]
    for platform in PLATFORMS:
        pip += ["--platform", platform]
    constraints = ROOT / "constraints.txt"
    checked(*pip, "-c", constraints, "numpy", "gymnasium", "pytest", "ale-py")
    # by its own tag, so that pip refuses a wheel that says another architecture
    checked(*pip, "--no-deps", wheel)
    return EmulatedPython(system(), packages)
