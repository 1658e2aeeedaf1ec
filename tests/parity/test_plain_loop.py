# SPDX-License-Identifier: Apache-2.0
"""The pool's blocks and vector instructions give what a plain loop over `Env::Step` gives."""

from __future__ import annotations

import numpy as np
import pytest
from grid_ids import without_equal_kinds
from gymnasium.vector.utils import batch_space

import rollouts
from rollouts import _native

LIGHT_IDS = without_equal_kinds(
    entry["id"]
    for entry in _native.registry()
    if not entry["cpu_only"] and not entry["multi_agent"]
)


# one environment, part of a block, whole blocks and a rest
@pytest.mark.parametrize("num_envs", [1, 7, 150])
@pytest.mark.parametrize("env_id", LIGHT_IDS)
def test_pool_equals_the_plain_loop_to_the_bit(env_id: str, num_envs: int) -> None:
    loop = _native.PlainLoop(env_id, {}, num_envs, 40, 5)
    with rollouts.make_vec(env_id, num_envs, seed=5, num_threads=1, max_episode_steps=40) as env:
        space = batch_space(env.single_action_space, num_envs)
        space.seed(0)
        found, _ = env.reset()
        np.testing.assert_array_equal(found, loop.reset()[0])
        for _ in range(150):
            actions = np.asarray(space.sample())
            for ours, plain in zip(env.step(actions)[:4], loop.step(actions), strict=True):
                assert ours.dtype == plain.dtype
                np.testing.assert_array_equal(ours, plain)


def test_plain_loop_writes_the_same_arrays_again() -> None:
    loop = _native.PlainLoop("CartPole-v1", {}, 3, 0, 0)
    first = loop.reset()
    again = loop.step(np.zeros(3, np.int64))
    assert [a.ctypes.data for a in first] == [a.ctypes.data for a in again]


def test_plain_loop_refuses_what_does_not_fit() -> None:
    with pytest.raises(rollouts.SpecError, match="no plain loop over 'ALE/\\*'"):
        _native.PlainLoop("ALE/*", {}, 1, 0, 0)
    with pytest.raises(rollouts.SpecError, match="unknown option 'speed'"):
        _native.PlainLoop("CartPole-v1", {"speed": 1}, 1, 0, 0)
    loop = _native.PlainLoop("CartPole-v1", {}, 3, 0, 0)
    for actions in (np.zeros(2, np.int64), np.zeros(3, np.float32), np.zeros(6, np.int64)[::2]):
        with pytest.raises(rollouts.SpecError, match="contiguous array of 3 int64"):
            loop.step(actions)
