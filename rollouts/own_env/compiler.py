# SPDX-License-Identifier: Apache-2.0
"""The system's C++ compiler, its options, and the build of a header as a shared library."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollouts.errors import EngineError, SpecError
from rollouts.own_env.cache import cache_folder, find_or_make
from rollouts.own_env.compile_errors import explain
from rollouts.own_env.header_files import HeaderFiles
from rollouts.support.include_dir import include_dir

_LIBRARY = "env.so"
_SOURCE = """#include "{header}"
#include "rollouts/plugin/exports.h"
ROLLOUTS_PLUGIN({type})
"""
# options for every library with a user's header; contraction would make results depend on the
# machine
_OF_ALL = ("-std=c++20", "-w", "-fPIC", "-shared", "-ffp-contract=off")
# without this option, two libraries would share inline variables of one name, such as kSpec
_OF_ALL_BY_GCC = ("-fno-gnu-unique",)
# traps and errno would prevent vectorisation; without them results are the same
_OPTIONS = (
    *("-O3", "-DNDEBUG", "-fvisibility=hidden"),
    *("-fno-trapping-math", "-fno-math-errno"),
)
# options for loops over blocks of environments, as in native/CMakeLists.txt
_OF_GCC_FOR_BLOCKS = ("-fno-tree-pre", "-fno-thread-jumps", "--param=max-unswitch-insns=400")
# options for all other code: vectors of 512 bits cost short loops a quarter of their speed
_OF_X86_WITHOUT_BLOCKS = ("-mprefer-vector-width=256",)
_INSTALL = (
    "apt-get install g++, dnf install gcc-c++, conda install cxx-compiler or xcode-select --install"
)


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler with its options.

    Attributes:
      command: The program, with further arguments in $CXX.
      version: The whole text of its --version.
    """

    command: tuple[str, ...]
    version: str

    def options(self, *, blocks: bool) -> tuple[str, ...]:
        """The compiler's options, without files; `blocks`: for an environment with kVectorized."""
        if platform.machine() in ("aarch64", "arm64"):
            machine: tuple[str, ...] = ("-mcpu=native",)
        else:
            machine = ("-march=native", *(() if blocks else _OF_X86_WITHOUT_BLOCKS))
        of_blocks = _OF_GCC_FOR_BLOCKS if self._is_gcc and blocks else ()
        return (*self.library_options, *_OPTIONS, *machine, *of_blocks)

    @property
    def library_options(self) -> tuple[str, ...]:
        """Options for every library with a user's header, including a kernel's loops."""
        return (*_OF_ALL, *(_OF_ALL_BY_GCC if self._is_gcc else ()))

    @property
    def _is_gcc(self) -> bool:
        return "Free Software Foundation" in self.version


def find_compiler() -> Compiler:
    """$CXX, else c++, g++ or clang++.

    Raises:
      EngineError: There is none, or it does not run.
    """
    return _find_compiler(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@functools.cache
def _find_compiler(chosen: str, path: str) -> Compiler:
    candidates = [shlex.split(chosen)] if chosen.strip() else [["c++"], ["g++"], ["clang++"]]
    for program, *rest in candidates:
        found = shutil.which(program, path=path)
        if found is None:
            continue
        try:
            said = subprocess.run(
                [found, *rest, "--version"], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise EngineError(f"the C++ compiler {found} does not run: {error}") from error
        return Compiler((found, *rest), said.stdout)
    wanted = f"CXX={chosen!r} is none" if chosen.strip() else "there is none on PATH"
    raise EngineError(f"this needs a C++ compiler, and {wanted}: install one ({_INSTALL})")


def build(files: HeaderFiles, env_type: str) -> Path:
    """The shared library of an environment, compiled at the first call and reused afterwards.

    Args:
      files: Its header.
      env_type: The type in it.

    Returns:
      The library in this user's cache; `sources` beside it has the header.

    Raises:
      SpecError: It does not compile. EngineError: no compiler, or no folder for the result.
    """
    compiler = find_compiler()
    blocks = any("kVectorized" in text for text in files.files.values())
    options = compiler.options(blocks=blocks)
    parts = [
        *(files.digest, env_type, _digest_of_ours(include_dir()), *compiler.command),
        *(compiler.version, *options, cpu_features()),
    ]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def make(folder: Path) -> None:
        files.write_to(sources_beside(folder / _LIBRARY))
        _compile([*compiler.command, *options], folder, files, env_type)

    return find_or_make(cache_folder(), key, _LIBRARY, make)


def sources_beside(library: Path) -> Path:
    """The folder with the header from which a library was made."""
    return library.parent / "sources"


def _compile(command: Sequence[str], folder: Path, files: HeaderFiles, env_type: str) -> None:
    sources = sources_beside(folder / _LIBRARY)
    source = folder / "env.cpp"
    source.write_text(_SOURCE.format(header=sources / files.name, type=env_type))
    where = [f"-I{sources}", f"-I{include_dir()}", str(source), "-o", str(folder / _LIBRARY)]
    try:
        result = subprocess.run(
            [*command, "-fno-diagnostics-color", *where],
            capture_output=True,
            text=True,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        raise EngineError(f"the C++ compiler {command[0]} does not run: {error}") from error
    if result.returncode != 0:
        raise SpecError(explain(result.stderr, sources=sources, files=files, env_type=env_type))


@functools.cache
def _digest_of_ours(folder: Path) -> str:
    """Digest of all our headers, because a user's header may include any of them."""
    found = hashlib.sha256()
    for path in sorted((folder / "rollouts").rglob("*.h")):
        name = path.relative_to(folder).as_posix()
        found.update(f"\0{name}\0".encode() + path.read_bytes())
    return found.hexdigest()


@functools.cache
def cpu_features() -> str:
    """The processor's features, as the system lists them: other features need another library."""
    wanted = ("flags", "Features", "cpu family", "model\t", "CPU implementer", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
