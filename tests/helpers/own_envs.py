# SPDX-License-Identifier: Apache-2.0
"""Environments that are none of ours, as headers; and where compiled ones are kept between runs."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

import rollouts
from rollouts.errors import EngineError
from rollouts.own_env.compiler import find_compiler

ROOT = Path(__file__).resolve().parents[2]
HEADERS = Path(__file__).resolve().parent / "own_envs"
CACHE = ROOT / "build" / "own_envs"


def keep_between_runs() -> None:
    """Keeps in build/ what this process and its children compile from now on."""
    CACHE.mkdir(parents=True, exist_ok=True)
    CACHE.chmod(0o700)
    os.environ["ROLLOUTS_CACHE_DIR"] = str(CACHE)


def quick_compiler() -> str:
    """A value of $CXX: the compiler without optimisations, on which it spends most of its time.

    A header is parsed and checked as always, and computes the same.
    """
    script = CACHE / "quick-c++"
    text = f'#!/bin/sh\nexec {shlex.join(find_compiler().command)} "$@" -O0\n'
    if not script.exists() or script.read_text() != text:
        # other processes may run it meanwhile
        handle, path = tempfile.mkstemp(dir=CACHE)
        os.write(handle, text.encode())
        os.fchmod(handle, 0o700)
        os.close(handle)
        os.replace(path, script)
    return shlex.quote(str(script))


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
