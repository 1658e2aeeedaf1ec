# SPDX-License-Identifier: Apache-2.0
"""Packed rollouts: each frame stored once, and the same stacks again."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import rollouts
from rollouts.batch import RolloutBatch
from rollouts.collecting.collector import Collector
from rollouts.collecting.frame_stacks import PackedRollout, join, pack
from rollouts.errors import SpecError
from rollouts.policy import PolicyOutput

STEPS, ROWS, DEPTH, FRAME = 9, 3, 4, (5, 2)


def batch_of(obs: np.ndarray, last_obs: np.ndarray, first_env_id: int = 0) -> RolloutBatch:
    steps, rows = obs.shape[:2]
    zeros = np.zeros((steps, rows), np.float32)
    ends = np.zeros((steps, rows), np.bool_)
    return RolloutBatch(
        obs=obs,
        action=np.arange(steps * rows).reshape(steps, rows),
        reward=zeros,
        terminated=ends,
        truncated=ends,
        bootstrap_value=zeros,
        log_prob=zeros,
        value=zeros,
        last_obs=last_obs,
        last_value=zeros[0],
        policy_version=np.ones((steps, rows), np.int64),
        env_id=np.arange(first_env_id, first_env_id + rows, dtype=np.int32),
        episode_return=np.zeros(ends.shape),
        episode_length=np.zeros(ends.shape, np.int32),
        extras={"twice": zeros},
    )


def stacked(seed: int = 0, dtype: Any = np.uint8, rows: int = ROWS) -> RolloutBatch:
    """Environments that begin an episode, go on, or stand still, at random."""
    dice = np.random.default_rng(seed)
    stack = dice.integers(0, 256, (rows, DEPTH, *FRAME)).astype(dtype)
    obs = []
    for _ in range(STEPS + 1):
        obs.append(stack.copy())
        for row in range(rows):
            kind = dice.random()
            if kind < 0.2:
                stack[row] = 0
            if kind < 0.9:
                stack[row, :-1] = stack[row, 1:]
                stack[row, -1] = dice.integers(0, 256, FRAME)
    return batch_of(np.stack(obs[:-1]), obs[-1], first_env_id=10 * seed)


def assert_same(got: RolloutBatch, expected: RolloutBatch) -> None:
    for name in (field.name for field in fields(RolloutBatch)):
        a, b = getattr(got, name), getattr(expected, name)
        if name == "extras":
            assert a.keys() == b.keys()
            a, b = list(a.values()), list(b.values())
        if name in ("final_obs", "counted"):
            assert a is b is None
            continue
        if name in ("extras", "policy_state"):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                np.testing.assert_array_equal(x, y)
            continue
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("seed", range(5))
def test_packed_stacks_come_back_to_the_bit(seed: int, dtype: Any) -> None:
    batch = stacked(seed, dtype)
    packed = pack(batch)
    assert_same(join([packed]), batch)
    assert join([packed]).obs.flags.writeable
    assert packed.nbytes == packed.frames.nbytes + packed.index.nbytes + packed.rest.nbytes


def test_a_frame_is_stored_once_while_an_episode_goes_on() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (STEPS + DEPTH, ROWS, *FRAME), np.uint8)
    obs = np.stack([frames[t : t + DEPTH].swapaxes(0, 1) for t in range(STEPS + 1)])
    packed = pack(batch_of(obs[:-1], obs[-1]))
    assert len(packed.frames) == (STEPS + DEPTH) * ROWS
    assert packed.index.shape == (STEPS + 1, ROWS, DEPTH)


def test_an_episode_start_costs_its_frame_and_an_empty_one() -> None:
    frames = np.random.default_rng(0).integers(1, 256, (STEPS + DEPTH, *FRAME), np.uint8)
    first = np.zeros((DEPTH, *FRAME), np.uint8)
    first[-1] = 255
    obs = np.stack([frames[:DEPTH], first, frames[1 : DEPTH + 1]])[:, None]
    packed = pack(batch_of(obs[:-1], obs[-1]))
    # the last stack goes on from nothing that is remembered
    assert len(packed.frames) == DEPTH + 2 + DEPTH


def test_a_game_that_stands_still_costs_nothing() -> None:
    obs = np.broadcast_to(stacked().obs[:1], (STEPS, ROWS, DEPTH, *FRAME))
    packed = pack(batch_of(obs, obs[0].copy()))
    assert len(packed.frames) == len(pack(batch_of(obs[:1], obs[0].copy())).frames)
    np.testing.assert_array_equal(join([packed]).obs, obs)


def test_rollouts_are_joined_as_concatenate_joins_them() -> None:
    batches = [stacked(1), stacked(2, rows=1), stacked(3)]
    expected = RolloutBatch.concatenate(batches)
    assert_same(join([pack(batch) for batch in batches]), expected)
    # packed and unpacked ones, too
    assert_same(join([pack(batches[0]), batches[1], pack(batches[2])]), expected)
    assert join([batches[0]]) is batches[0]


def test_negative_zero_and_nan_keep_their_bits() -> None:
    obs = np.zeros((STEPS, ROWS, DEPTH, *FRAME), np.float32)
    obs[3] = -0.0
    obs[5] = np.nan
    got = join([pack(batch_of(obs, obs[0]))]).obs
    np.testing.assert_array_equal(got.view(np.uint32), obs.view(np.uint32))


def test_observations_without_frames_are_refused() -> None:
    flat = batch_of(np.zeros((4, 2), np.float32), np.zeros(2, np.float32))
    with pytest.raises(SpecError, match=r"expected \(T, B, S, \.\.\.\)"):
        pack(flat)
    other = replace(stacked(), last_obs=np.zeros((ROWS, DEPTH, 7), np.uint8))
    with pytest.raises(SpecError, match="last_obs has shape"):
        pack(other)


class NoisyPolicy:
    """Presses buttons at random, the same ones in every run."""

    def __init__(self, num_actions: int) -> None:
        self.policy_version = 1
        self._dice = np.random.default_rng(0)
        self._num_actions = num_actions

    def act(self, obs: np.ndarray) -> PolicyOutput:
        zeros = np.zeros(len(obs), np.float32)
        return PolicyOutput(self._dice.integers(0, self._num_actions, len(obs)), zeros, zeros)

    def value(self, obs: np.ndarray) -> np.ndarray:
        return np.zeros(len(obs), np.float32)


@pytest.mark.parametrize(
    "options",
    [
        {"max_episode_steps": 13},
        {"episodic_life": True, "max_episode_steps": 60},
        {"life_loss_info": True},
        {"grayscale": False, "stack_num": 3, "max_episode_steps": 13},
        {"stack_num": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("batch_size", [4, 2])
def test_atari_stacks_are_what_the_environment_returned(options: Any, batch_size: int) -> None:
    pytest.importorskip("ale_py")
    small: dict[str, Any] = {"img_height": 42, "img_width": 42, "noop_max": 1}
    with rollouts.make_vec(
        "ALE/Breakout-v5",
        4,
        seed=3,
        batch_size=batch_size,
        autoreset_mode="same_step",
        **(small | options),
    ) as env:
        collector = Collector(env, NoisyPolicy(env.single_action_space.n), 40)  # type: ignore[attr-defined]
        for _ in range(3):
            batch = collector.collect()
            packed = pack(batch)
            assert isinstance(packed, PackedRollout)
            assert_same(join([packed]), batch)
            # one frame a step, and a whole stack where a rollout or an episode begins
            steps, rows, depth = batch.obs.shape[:3]
            ends = int((batch.terminated | batch.truncated).sum())
            assert len(packed.frames) <= (steps + depth) * rows + (depth - 1) * ends
