# SPDX-License-Identifier: Apache-2.0
"""Environments that are none of ours, as headers; and where compiled ones are kept between runs."""

from __future__ import annotations

import functools
import os
import shlex
import tempfile
from pathlib import Path

from made_once import make

import rollouts
from rollouts.errors import EngineError
from rollouts.own_env.compiler import Compiler, find_compiler

ROOT = Path(__file__).resolve().parents[2]
HEADERS = Path(__file__).resolve().parent / "own_envs"
CACHE = ROOT / "build" / "own_envs"


def keep_between_runs() -> None:
    """Keeps in build/ what this process and its children compile from now on."""
    CACHE.mkdir(parents=True, exist_ok=True)
    CACHE.chmod(0o700)
    os.environ["ROLLOUTS_CACHE_DIR"] = str(CACHE)


# the headers of ours that a plug-in includes
OURS = """\
#include "rollouts/core/env.h"
#include "rollouts/core/multi_agent.h"
#include "rollouts/plugin/exports.h"
"""


@functools.cache
def quick_compiler() -> str:
    """A value of $CXX: the compiler without optimisations, on which it spends most of its time.

    A header is checked as always, and computes the same. Ours, which take the other half of the
    time, GCC has parsed before; where its options are others than for most plug-ins, it parses them
    again.
    """
    compiler = find_compiler()
    command = shlex.join(compiler.command)
    script = CACHE / "quick-c++"
    parsed = _parsed_headers(compiler)
    text = f"""#!/bin/sh
case "$*" in *"/env.cpp "*) set -- {parsed} "$@" ;; esac
exec {command} "$@" -O0
"""
    if not script.exists() or script.read_text() != text:
        replace(script, text, 0o700)
    return shlex.quote(str(script))


def _parsed_headers(compiler: Compiler) -> str:
    """Arguments that bring GCC the headers above, parsed; none for another compiler."""
    if "Free Software Foundation" not in compiler.version:
        return ""
    header = CACHE / "ours.h"
    if not header.exists() or header.read_text() != OURS:
        replace(header, OURS)
    parsed = CACHE / "ours.h.gch"
    command = [*compiler.command, *compiler.options(blocks=False), "-O0", "-x", "c++-header"]
    command += ["-MMD", "-MF", str(parsed.with_suffix(".d")), f"-I{rollouts.include_dir()}"]
    make(parsed, [*command, str(header)], [header])
    return f"-include {shlex.quote(str(header))}"


def replace(path: Path, text: str, mode: int = 0o600) -> None:
    """Writes a file at once, because other processes may read or run it meanwhile."""
    handle, written = tempfile.mkstemp(dir=path.parent)
    os.write(handle, text.encode())
    os.fchmod(handle, mode)
    os.close(handle)
    os.replace(written, path)


def has_compiler() -> bool:
    """Tells if they can be compiled here."""
    try:
        find_compiler()
    except EngineError:
        return False
    return True


def register_all() -> None:
    """Registers those below, if there is a compiler."""
    if has_compiler():
        keep_between_runs()
        register_vault()
        register_herd()


def register_vault() -> str:
    """One agent, random numbers, options and a MultiDiscrete action, in two files."""
    return rollouts.register_env(
        "Vault-v0", header=HEADERS / "vault.h", type="games::Vault", max_episode_steps=40
    )


def register_herd() -> str:
    """Two groups of agents, of which sheep leave."""
    return rollouts.register_env(
        "Herd-v0", header=HEADERS / "herd.h", type="Herd", max_episode_steps=30
    )
