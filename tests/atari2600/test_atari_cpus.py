# SPDX-License-Identifier: Apache-2.0
"""ROLLOUTS_ATARI_CPU: how a ROM's instructions are done, which shows in nothing but time."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.system

# cartridges of 4, 8 (F8 and E0) and 16 KiB; Pitfall II's is not decoded
GAMES = ["Pong", "MsPacman", "MontezumaRevenge", "RoadRunner", "Pitfall2"]
PROGRAM = """
import ctypes, hashlib, sys
import numpy as np

if sys.argv[1] == "refuse":
    # PR_SET_MDWE: memory that was written is not to be executed
    if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
        sys.exit("no PR_SET_MDWE")
import rollouts

seen = hashlib.sha256()
for game in sys.argv[2:]:
    env = rollouts.make_vec(f"ALE/{game}-v5", 3, seed=1, num_threads=1)
    env.reset()
    rng = np.random.default_rng(1)
    for _ in range(300):
        actions = rng.integers(env.single_action_space.n, size=3)
        obs, reward, terminated, truncated, _ = env.step(actions)
        for part in (obs, reward, terminated, truncated):
            seen.update(np.ascontiguousarray(part).tobytes())
print(seen.hexdigest())
"""


def _run(cpu: str, first: str = "", games: list[str] = GAMES) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, first, *games],
        capture_output=True, text=True, env=dict(os.environ, ROLLOUTS_ATARI_CPU=cpu),
    )  # fmt: skip


@pytest.fixture(scope="module")
def decoded() -> str:
    done = _run("decoded")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="x86-64 Linux alone has it"
)
def test_compiled_roms_show_what_decoded_ones_show(decoded: str) -> None:
    done = _run("compiled")
    assert done.returncode == 0, done.stderr
    assert done.stdout == decoded


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can forbid it")
def test_roms_are_decoded_where_code_must_not_be_made(decoded: str) -> None:
    done = _run("", "refuse")
    if "no PR_SET_MDWE" in done.stderr:
        pytest.skip("this kernel cannot forbid it")
    assert done.returncode == 0, done.stderr
    assert done.stdout == decoded
    wanted = _run("compiled", "refuse", ["Pong"])
    assert "ROLLOUTS_ATARI_CPU is 'compiled', and this machine can run: decoded" in wanted.stderr


def test_an_unknown_cpu_is_named() -> None:
    done = _run("turbo", games=["Pong"])
    assert done.returncode != 0
    assert "ROLLOUTS_ATARI_CPU is 'turbo', and this machine can run: " in done.stderr
