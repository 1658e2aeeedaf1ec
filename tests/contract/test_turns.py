# SPDX-License-Identifier: Apache-2.0
"""Environments that a thread steps in turns: their engine's work side by side changes no bit."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from forked import Ended, run_forked

import rollouts
from rollouts import _native

pytestmark = pytest.mark.skipif(not _native.has_box2d(), reason="this build has no Box2D")

NUM_STEPS = 120  # a fallen lander's episode and the next one's begin


def digest_of_pools(env_id: str) -> str:
    """A hash of all that pools show; 21 environments: turns of different numbers."""
    seen = hashlib.sha256()
    for mode in ("next_step", "same_step"):
        for batch_size in (21, 5):
            seen.update(_digest_of_pool(env_id, mode, batch_size))
    return seen.hexdigest()


def _digest_of_pool(env_id: str, mode: str, batch_size: int) -> bytes:
    with rollouts.make_vec(
        env_id, 21, num_threads=2, seed=5, autoreset_mode=mode, batch_size=batch_size
    ) as env:
        env.single_action_space.seed(3)
        actions = [[env.single_action_space.sample() for _ in range(21)] for _ in range(NUM_STEPS)]
        env.async_reset()
        numbers = np.zeros(21, np.int64)
        rows = [hashlib.sha256() for _ in range(21)]
        while numbers.min() < NUM_STEPS:
            obs, reward, terminated, truncated, info = env.recv()
            ids = info["env_id"]
            for i, one in enumerate(ids):
                if numbers[one] < NUM_STEPS:
                    for array in (obs, reward, terminated, truncated):
                        rows[one].update(np.ascontiguousarray(array[i]).tobytes())
            chosen = np.array([actions[numbers[one] % NUM_STEPS][one] for one in ids])
            numbers[ids] += 1
            env.send(chosen, ids)
    return b"".join(row.digest() for row in rows)


def _run(env_id: str, kernel: str) -> Ended:
    return run_forked(digest_of_pools, env_id, environ={"ROLLOUTS_BOX2D_KERNEL": kernel})


def _digest(env_id: str, kernel: str) -> str:
    ended = _run(env_id, kernel)
    if "this machine can run" in ended.stderr:
        pytest.skip(f"this machine cannot run {kernel}")
    assert ended.exitcode == 0, ended.stderr
    found: str = ended.returned
    return found


@pytest.fixture(scope="module", params=["LunarLander-v3", "BipedalWalker-v3"])
def one_by_one(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param, _digest(request.param, "none")


@pytest.mark.parametrize("kernel", ["baseline", "avx2", "avx512"])
def test_turns_show_what_one_by_one_shows(one_by_one: tuple[str, str], kernel: str) -> None:
    env_id, digest = one_by_one
    assert _digest(env_id, kernel) == digest


def test_an_unknown_kernel_is_named() -> None:
    ended = _run("LunarLander-v3", "sse9")
    assert ended.exitcode != 0
    assert "ROLLOUTS_BOX2D_KERNEL is 'sse9', and this machine can run: none" in ended.stderr
