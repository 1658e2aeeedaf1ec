# SPDX-License-Identifier: Apache-2.0
"""Builds stress programs with sanitizers, and runs their scenarios.

Objects are shared by all programs and kept in build/sanitizers, each beside a digest of what it
was made of: a second run compiles what has changed, whatever the files' times say. Sources of a
group become one object, as in the module's build: most of what a compiler does here is to read the
same headers.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native"
CACHE = HERE.parents[1] / "build" / "sanitizers"
# parsed once for each sanitizer and not once for each source
HEADER = HERE / "sanitizers_prefix.h"
# a scenario takes seconds; on a busy machine a sanitizer makes many of them
HANG_LIMIT_S = 600
NUM_COMPILERS = 2
SANITIZERS = {"tsan": "thread", "asan": "address,undefined"}

GXX = shutil.which("g++")
needs_compiler = pytest.mark.skipif(GXX is None, reason="needs the compiler g++")


def mujoco_package() -> Path:
    """The folder of the installed mujoco."""
    spec = importlib.util.find_spec("mujoco")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


@dataclass(frozen=True, slots=True)
class Group:
    """Sources that become one object."""

    name: str
    sources: tuple[Path, ...]


def group(name: str, folder: Path, *patterns: str) -> Group:
    """The sources of a folder that one of these patterns fits."""
    return Group(name, tuple(sorted(one for each in patterns for one in folder.glob(each))))


def alone(folder: Path, pattern: str) -> list[Group]:
    """Sources of a folder that must not be compiled with others: each is a group."""
    return [Group(one.stem, (one,)) for one in sorted(folder.glob(pattern))]


# what most programs are linked with
SUPPORT = group("support", NATIVE / "src" / "support", "*.cpp")
# a learner's, too
WORKER_THREADS = group("worker_threads", NATIVE / "src" / "replay", "worker_threads.cpp")
# those of the policy that learn; kernels have an instruction set of their own, and the others act
LEARNING = [
    group("learning", NATIVE / "src" / "policy", "[!knr]*.cpp", "kernels.cpp", "network.cpp"),
    *alone(NATIVE / "src" / "policy", "kernels_*.cpp"),
]


def build(name: str, groups: Sequence[Group]) -> dict[str, Path]:
    """Builds the program `name` of these sources with each sanitizer; returns the executables.

    Several processes may build at once: the second takes what the first has built.
    """
    with ThreadPoolExecutor(NUM_COMPILERS) as compilers:
        list(compilers.map(_precompile, SANITIZERS))
        jobs = [(sanitizer, one) for one in groups for sanitizer in SANITIZERS]
        made = dict(zip(jobs, compilers.map(_compile, *zip(*jobs, strict=True)), strict=True))
    programs = {}
    for sanitizer in SANITIZERS:
        programs[sanitizer] = CACHE / sanitizer / name
        objects = [made[sanitizer, one] for one in groups]
        command = [*_command(sanitizer), *map(str, objects), "-ldl"]
        make(programs[sanitizer], command, objects)
    return programs


def _command(sanitizer: str) -> list[str]:
    # -Wno-tsan: gcc says that fences are not modelled; the pool's data pass through atomics.
    # -Wno-...uninitialized: GCC 12 warns of its own AVX-512 headers beside sanitizers.
    # -g1: reports have lines and no values, which take a compiler a third longer
    command = [str(GXX), "-std=c++20", "-O1", "-g1", "-pthread", "-ffp-contract=off"]
    command += ["-Wall", "-Wextra", "-Werror", "-Wno-tsan"]
    command += ["-Wno-uninitialized", "-Wno-maybe-uninitialized"]
    command += [f"-fsanitize={SANITIZERS[sanitizer]}"]
    return [*command, "-fno-sanitize-recover=all", f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"]


def _precompile(sanitizer: str) -> Path:
    """The common header, where -include finds its .gch beside it."""
    header = CACHE / sanitizer / HEADER.name
    header.parent.mkdir(parents=True, exist_ok=True)
    made = header.with_name(f"{header.name}.gch")
    return make(made, [*_command(sanitizer), "-x", "c++-header", "-MMD", str(HEADER)], [HEADER])


def _compile(sanitizer: str, of: Group) -> Path:
    prefix = CACHE / sanitizer / HEADER.name
    *before, last = of.sources
    included = [option for one in (prefix, *before) for option in ("-include", str(one))]
    command = [*_command(sanitizer), *included, "-MMD", "-c", str(last)]
    # the .gch stands for its header, which need not be there
    inputs = [*of.sources, prefix.with_name(f"{prefix.name}.gch")]
    # its list of headers is none of the program of this name
    return make(CACHE / sanitizer / f"{of.name}.group.o", command, inputs)


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
    found = hashlib.sha256(repr((_compiler(), command)).encode())
    for path in _read_files(inputs, depfile):
        digest = Path(f"{path}.sha256")
        # what was made here has a digest, which says the same in fewer bytes
        content = digest if digest.exists() else path
        found.update(content.read_bytes() if content.exists() else b"gone")
    return found.hexdigest()


@functools.cache
def _compiler() -> str:
    version = subprocess.run([str(GXX), "--version"], capture_output=True, text=True, check=True)
    return version.stdout


@contextmanager
def _locked(made: Path) -> Iterator[None]:
    """Keeps other threads and processes from making the same file meanwhile."""
    handle = os.open(made.with_name(f"{made.name}.lock"), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def scenarios(program: Path) -> list[str]:
    """The scenarios that a program says it has."""
    listed = subprocess.run([program], capture_output=True, text=True, check=True)
    return listed.stdout.split()


def run(program: Path, scenario: str) -> None:
    """Runs one scenario; whatever the sanitizer or the program finds fails the test."""
    result = subprocess.run(
        [program, scenario], capture_output=True, text=True, timeout=HANG_LIMIT_S
    )
    if "unexpected memory mapping" in result.stderr:
        pytest.skip("this kernel's address layout is one that ThreadSanitizer cannot use")
    assert result.returncode == 0, result.stderr[-4000:]
