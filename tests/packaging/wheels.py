# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel, and environments that hold it and what its metadata asks for."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from email import message_from_bytes
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def run(*command: object, cwd: Path) -> str:
    """Runs a command outside this test's environment; returns what it printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    result = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, f"{command}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    return result.stdout


def build_wheel(folder: Path, *, isolated: bool) -> Path:
    """Builds the wheel of this checkout into `folder`.

    Args:
      isolated: In an environment of pip's own with the requirements that pyproject.toml declares.
        The headers' paths are others there, so that most objects are compiled anew.
    """
    how = [] if isolated else ["--no-isolation"]
    command = [sys.executable, "-m", "build", "--wheel", *how, "--outdir", folder, ROOT]
    run(*command, cwd=folder)
    (path,) = folder.glob("rollouts-*.whl")
    return path


def has_build_requirements() -> bool:
    """Tells if this environment has what pyproject.toml declares for building."""
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    for requirement in map(Requirement, system["requires"]):
        try:
            if distribution(requirement.name).version not in requirement.specifier:
                return False
        except PackageNotFoundError:
            return False
    return True


def make_environment(folder: Path, wheel: Path, extras: Iterable[str]) -> Path:
    """An environment with the wheel and the distributions that its metadata asks for, no others.

    These are links to those of this environment: that an index has them is another test's.

    Returns:
      The interpreter.
    """
    venv.create(folder, symlinks=True)
    interpreter = folder / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(interpreter, "-c", code, cwd=folder).strip())
    for name in requirements(wheel, extras):
        _link(name, packages)
    pip = [sys.executable, "-m", "pip", "--python", interpreter, "install", "-q", "--no-deps"]
    run(*pip, wheel, cwd=folder)
    return interpreter


def requirements(wheel: Path, extras: Iterable[str]) -> set[str]:
    """The names of what pip would install for the wheel with these extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        own = message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    asked = [("rollouts", frozenset(extras))]
    found = set(asked)
    while asked:
        name, wanted = asked.pop()
        for text in own if name == "rollouts" else distribution(name).requires or []:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in {"", *wanted}):
                continue
            one = (canonicalize_name(requirement.name), frozenset(requirement.extras))
            if one not in found:
                found.add(one)
                asked.append(one)
    return {name for name, _ in found} - {"rollouts"}


def _link(name: str, packages: Path) -> None:
    """Puts an installed distribution into a folder of packages."""
    files = distribution(name).files or []
    top = Path(str(distribution(name).locate_file("")))
    # a package is one link; those that share a namespace, each its own
    for unit in {_unit(top, Path(file)) for file in files if ".." not in file.parts}:
        if not (packages / unit).exists():
            (packages / unit).parent.mkdir(parents=True, exist_ok=True)
            (packages / unit).symlink_to(top / unit)


def _unit(top: Path, file: Path) -> Path:
    for depth in range(1, len(file.parts)):
        folder = Path(*file.parts[:depth])
        if (top / folder / "__init__.py").exists() or folder.suffix == ".dist-info":
            return folder
    return file
