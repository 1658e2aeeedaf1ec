# SPDX-License-Identifier: Apache-2.0
"""Environments that a thread steps in turns: their engine's work side by side changes no bit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rollouts import _native

pytestmark = pytest.mark.skipif(not _native.has_box2d(), reason="this build has no Box2D")

# prints a hash of all that pools show; 21 environments: turns of different numbers
_PROGRAM = """
import hashlib, sys
import numpy as np
import rollouts

seen = hashlib.sha256()
for mode in ("next_step", "same_step"):
    for batch_size in (21, 5):
        with rollouts.make_vec(sys.argv[1], 21, num_threads=2, seed=5, autoreset_mode=mode,
                               batch_size=batch_size) as env:
            env.single_action_space.seed(3)
            actions = [[env.single_action_space.sample() for _ in range(21)] for _ in range(250)]
            env.async_reset()
            numbers = np.zeros(21, np.int64)
            rows = [hashlib.sha256() for _ in range(21)]
            while numbers.min() < 250:
                obs, reward, terminated, truncated, info = env.recv()
                ids = info["env_id"]
                for i, env_id in enumerate(ids):
                    if numbers[env_id] < 250:
                        for array in (obs, reward, terminated, truncated):
                            rows[env_id].update(np.ascontiguousarray(array[i]).tobytes())
                chosen = np.array([actions[numbers[e] % 250][e] for e in ids])
                numbers[ids] += 1
                env.send(chosen, ids)
            for row in rows:
                seen.update(row.digest())
print(seen.hexdigest())
"""


def _digest(env_id: str, kernel: str) -> str:
    env = dict(os.environ, ROLLOUTS_BOX2D_KERNEL=kernel)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, env_id], capture_output=True, text=True, env=env
    )
    if "this machine can run" in done.stderr:
        pytest.skip(f"this machine cannot run {kernel}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module", params=["LunarLander-v3", "BipedalWalker-v3"])
def one_by_one(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param, _digest(request.param, "none")


@pytest.mark.parametrize("kernel", ["baseline", "avx2", "avx512"])
def test_turns_show_what_one_by_one_shows(one_by_one: tuple[str, str], kernel: str) -> None:
    env_id, digest = one_by_one
    assert _digest(env_id, kernel) == digest


def test_an_unknown_kernel_is_named() -> None:
    env = dict(os.environ, ROLLOUTS_BOX2D_KERNEL="sse9")
    done = subprocess.run(
        [sys.executable, "-c", "import rollouts; rollouts.make_vec('LunarLander-v3', 2)"],
        capture_output=True, text=True, env=env,
    )  # fmt: skip
    assert done.returncode != 0
    assert "ROLLOUTS_BOX2D_KERNEL is 'sse9', and this machine can run: none" in done.stderr
