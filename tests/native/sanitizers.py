# SPDX-License-Identifier: Apache-2.0
"""Builds stress programs with sanitizers, and runs their scenarios.

Objects are shared by all programs and kept in build/sanitizers. Sources of a group become one
object, as in the module's build: most of what a compiler does here is to read the same headers.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest
from made_once import BUILD, make

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "native"
CACHE = BUILD / "sanitizers"
# parsed once for each sanitizer and not once for each source
HEADER = HERE / "sanitizers_prefix.h"
# a scenario takes seconds; on a busy machine a sanitizer makes many of them
HANG_LIMIT_S = 600
NUM_COMPILERS = 2
SANITIZERS = {"tsan": "thread", "asan": "address,undefined"}
# a sanitizer and a level of optimisation
Kind = tuple[str, str]

GXX = shutil.which("g++")
needs_compiler = pytest.mark.skipif(GXX is None, reason="needs the compiler g++")


def mujoco_package() -> Path:
    """The folder of the installed mujoco."""
    spec = importlib.util.find_spec("mujoco")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


@dataclass(frozen=True, slots=True)
class Group:
    """Sources that become one object.

    Attributes:
      baseline: Sanitizers for which sources of wider instruction sets have nothing. The program
        then runs the baseline's, which are the same loops.
    """

    name: str
    sources: tuple[Path, ...]
    baseline: frozenset[str] = frozenset()


def group(name: str, folder: Path, *patterns: str) -> Group:
    """The sources of a folder that one of these patterns fits."""
    return Group(name, tuple(sorted(one for each in patterns for one in folder.glob(each))))


def alone(folder: Path, pattern: str, baseline: Iterable[str] = ()) -> list[Group]:
    """Sources of a folder that must not be compiled with others: each is a group."""
    found = sorted(folder.glob(pattern))
    return [Group(one.stem, (one,), frozenset(baseline)) for one in found]


# what most programs are linked with
SUPPORT = group("support", NATIVE / "src" / "support", "*.cpp")
# a learner's, too
WORKER_THREADS = group("worker_threads", NATIVE / "src" / "replay", "worker_threads.cpp")
# those of the policy that learn; kernels have an instruction set of their own, and the others act
LEARNING = [
    group("learning", NATIVE / "src" / "policy", "[!knr]*.cpp", "kernels.cpp", "network.cpp"),
    # races are those of any set; each set's reads and writes are looked at
    *alone(NATIVE / "src" / "policy", "kernels_*.cpp", baseline=["tsan"]),
]


def build(
    name: str, groups: Sequence[Group], levels: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Path]:
    """Builds the program `name` of these sources with each sanitizer; returns the executables.

    Several processes may build at once: the second takes what the first has built.

    Args:
      name: The program's.
      groups: What it is made of.
      levels: Optimisation by sanitizer, where it is not -O1.
    """
    kinds = [(sanitizer, levels.get(sanitizer, "-O1")) for sanitizer in SANITIZERS]
    with ThreadPoolExecutor(NUM_COMPILERS) as compilers:
        list(compilers.map(_precompile, kinds))
        jobs = [(kind, one) for one in groups for kind in kinds]
        made = dict(zip(jobs, compilers.map(_compile, *zip(*jobs, strict=True)), strict=True))
    programs = {}
    for kind in kinds:
        programs[kind[0]] = _folder(kind) / name
        objects = [made[kind, one] for one in groups]
        command = [*_command(kind), *map(str, objects), "-ldl"]
        make(programs[kind[0]], command, objects)
    return programs


def _folder(kind: Kind) -> Path:
    sanitizer, level = kind
    return CACHE / (sanitizer if level == "-O1" else f"{sanitizer}{level}")


def _command(kind: Kind) -> list[str]:
    sanitizer, level = kind
    # -Wno-tsan: gcc says that fences are not modelled; the pool's data pass through atomics.
    # -Wno-...uninitialized: GCC 12 warns of its own AVX-512 headers beside sanitizers.
    # -g1: reports have lines and no values, which take a compiler a third longer
    command = [str(GXX), "-std=c++20", level, "-g1", "-pthread", "-ffp-contract=off"]
    command += ["-Wall", "-Wextra", "-Werror", "-Wno-tsan"]
    command += ["-Wno-uninitialized", "-Wno-maybe-uninitialized"]
    command += [f"-fsanitize={SANITIZERS[sanitizer]}"]
    return [*command, "-fno-sanitize-recover=all", f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"]


def _precompile(kind: Kind) -> Path:
    """The common header, where -include finds its .gch beside it."""
    header = _folder(kind) / HEADER.name
    made = header.with_name(f"{header.name}.gch")
    return make(made, [*_command(kind), "-x", "c++-header", "-MMD", str(HEADER)], [HEADER])


def _compile(kind: Kind, of: Group) -> Path:
    prefix = _folder(kind) / HEADER.name
    *before, last = of.sources
    included = [option for one in (prefix, *before) for option in ("-include", str(one))]
    command = [*_command(kind), *included, "-MMD", "-c", str(last)]
    name = of.name
    if kind[0] in of.baseline:
        command, name = [*command, "-DROLLOUTS_BASELINE"], f"{name}.baseline"
    # the .gch stands for its header, which need not be there
    inputs = [*of.sources, prefix.with_name(f"{prefix.name}.gch")]
    # its list of headers is none of the program of this name
    return make(_folder(kind) / f"{name}.group.o", command, inputs)


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
