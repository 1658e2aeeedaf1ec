# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a replay in shards: keys, shares, joined batches, limiter, packed stacks."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from fragments import fragment_info
from hypothesis import given
from hypothesis import strategies as st

from rollouts.batch import RolloutBatch
from rollouts.collecting import frame_stacks
from rollouts.errors import SpecError
from rollouts.replay import (
    MinSize,
    NStep,
    ReplayBuffer,
    SampleToInsertRatio,
    Sequences,
    TableConfig,
)
from rollouts.replay.shards.admission import Admission
from rollouts.replay.shards.joining import join_batches, share_out
from rollouts.replay.shards.keys import KeyLayout
from rollouts.replay.shards.shard import ReplayShard, ShardConfig

OBS_SPACE = gymnasium.spaces.Box(0, 255, (4, 2, 2), np.uint8)
ACTION_SPACE = gymnasium.spaces.Discrete(3)


def shard_config(*tables: TableConfig, stack_num: int = 4, **changes: Any) -> ShardConfig:
    settings: dict[str, Any] = {
        "single_observation_space": OBS_SPACE,
        "single_action_space": ACTION_SPACE,
        "tables": tables,
        "num_shards": 1,
        "shard_id": 0,
        "stack_num": stack_num,
        "policy_state": (),
        "extras": {},
        "seed": 0,
        "max_batch_length": 16,
        "num_threads": 1,
        "max_bytes": 0,
        "storage_dir": "",
    }
    return ShardConfig(**settings | changes)


def rollout(steps: int, rows: int, *, seed: int) -> RolloutBatch:
    """Makes a rollout of stacks that go on, in which one episode ends."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 256, (steps + 4, rows, 2, 2), np.uint8)
    stacks = np.stack([frames[t : t + 4].swapaxes(0, 1) for t in range(steps + 1)])
    terminated = np.zeros((steps, rows), np.bool_)
    terminated[steps // 2, 0] = True
    zeros, row = np.zeros((steps, rows), np.float32), np.zeros(rows, np.float32)
    return RolloutBatch(
        obs=stacks[:-1],
        action=rng.integers(0, 3, (steps, rows)),
        reward=rng.random((steps, rows), np.float32),
        terminated=terminated,
        truncated=np.zeros_like(terminated),
        bootstrap_value=zeros,
        log_prob=zeros,
        value=zeros,
        last_obs=stacks[-1],
        last_value=row,
        policy_version=np.ones((steps, rows), np.int64),
        env_id=np.arange(rows, dtype=np.int32),
        episode_return=np.full((steps, rows), 2.5),
        episode_length=np.full((steps, rows), steps // 2 + 1, np.int32),
        final_obs=rng.integers(0, 256, (1, 4, 2, 2), np.uint8),
    )


@given(
    max_size=st.integers(1, 2**22),
    num_shards=st.integers(1, 64),
    data=st.data(),
)
def test_keys_say_where_an_item_is(max_size: int, num_shards: int, data: st.DataObject) -> None:
    layout = KeyLayout(max_size, num_shards)
    shard_id = data.draw(st.integers(0, num_shards - 1))
    incarnation = data.draw(st.integers(0, 1000))
    uses = data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=9))
    slots = data.draw(st.lists(st.integers(0, max_size), min_size=len(uses), max_size=len(uses)))
    keys = np.array(uses, np.int64) << 32 | np.array(slots, np.int64)
    joined = layout.join(keys, shard_id, incarnation)
    assert (joined >= 0).all()
    parts = layout.split(joined)
    assert (parts.shard_id == shard_id).all()
    assert (parts.life == layout.life(incarnation)).all()
    assert (parts.key == keys).all()


def test_more_items_than_keys_are_refused() -> None:
    with pytest.raises(SpecError, match="63 bits"):
        KeyLayout(2**26, 1024)


@given(
    masses=st.lists(st.floats(0, 1e6), min_size=1, max_size=6).filter(any),
    batch_sizes=st.lists(st.integers(1, 50), min_size=1, max_size=30),
)
def test_shares_are_exact_over_many_batches(masses: list[float], batch_sizes: list[int]) -> None:
    share = np.array(masses) / np.sum(masses)
    credit, given_so_far = np.zeros(len(share)), np.zeros(len(share))
    for batch_size in batch_sizes:
        counts, credit = share_out(batch_size, share, credit)
        assert counts.sum() == batch_size and (counts >= 0).all()
        assert (counts[share == 0] == 0).all()
        given_so_far += counts
    assert (np.abs(given_so_far - share * sum(batch_sizes)) <= len(share)).all()


def test_joined_batch_has_the_probabilities_of_one_table() -> None:
    table = TableConfig(items=NStep(1), sampler="prioritized", exponent=1.0)
    buffers = [ReplayBuffer(OBS_SPACE, ACTION_SPACE, table, stack_num=4, seed=i) for i in (0, 1)]
    for seed, buffer in enumerate(buffers):
        buffer.add_batch(rollout(8, 1 + seed, seed=seed))
    sizes = [buffer.size() for buffer in buffers]
    # three times the priority in the second
    keys = buffers[1].store.keys("replay")
    buffers[1].update_priorities(keys, np.full(len(keys), 3.0))
    masses = np.array([sizes[0], 3.0 * sizes[1]])
    share = masses / masses.sum()
    parts = [buffer.sample(4, beta=0.0) for buffer in buffers]
    batch = join_batches(parts, share.tolist(), sum(sizes), beta=1.0)
    expected = np.repeat([1.0, 3.0], 4) / masses.sum()
    assert np.allclose(batch.probability, expected, rtol=1e-12)  # rounding of two products
    assert np.allclose(batch.weight, np.repeat([1.0, 1 / 3], 4), rtol=1e-6)  # float32
    assert (batch.table_size == sum(sizes)).all()
    assert (batch.obs == np.concatenate([part.obs for part in parts])).all()


def test_joined_sequences_are_as_long_as_the_longest() -> None:
    table = TableConfig(items=Sequences(6, end_of_episode="truncate"))
    buffers = [ReplayBuffer(OBS_SPACE, ACTION_SPACE, table, stack_num=4) for _ in (0, 1)]
    buffers[0].add_batch(rollout(4, 1, seed=0))  # an episode of 3 steps
    buffers[1].add_batch(rollout(12, 1, seed=1))  # one of 7, so also a whole sequence
    parts: list[Any] = [buffer.sample(8) for buffer in buffers]
    assert len(parts[0].reward) < len(parts[1].reward) == 6
    batch: Any = join_batches(parts, [0.5, 0.5], 3, beta=0.0)
    assert batch.obs.shape == (7, 16, 4, 2, 2) and batch.reward.shape == (6, 16)
    assert (batch.valid.sum(axis=0) == batch.num_steps).all()
    assert not batch.obs[4:, :8].any()


@given(
    ratio=st.sampled_from([0.5, 1.0, 4.0]),
    min_size=st.integers(1, 10),
    buffer=st.integers(10, 30),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=40),
)
def test_decisions_are_those_of_one_table(
    ratio: float, min_size: int, buffer: int, steps: list[tuple[bool, int]]
) -> None:
    limiter = SampleToInsertRatio(ratio, min_size, float(buffer))
    table = TableConfig(items=NStep(1), max_size=20, limiter=limiter)
    admission = Admission(table)
    with ReplayBuffer(OBS_SPACE, ACTION_SPACE, table, stack_num=4) as replay:
        number = 0
        for inserts, count in steps:
            info = replay.stats()["tables"]["replay"]
            admission.size, admission.inserts = info["size"], info["inserts"]
            admission.samples = info["samples"]
            assert admission.can_insert() == replay.can_insert(1)
            assert admission.can_sample(count) == replay.can_sample(count)
            if inserts and replay.can_insert(1):
                batch = rollout(1, 1, seed=number)
                number += 1
                replay.add_batch(batch, timeout_s=0.0)
            elif not inserts and replay.can_sample(count):
                replay.sample(count, timeout_s=0.0)


def test_no_admitted_batch_is_one_that_inserts_could_never_admit() -> None:
    admission = Admission(TableConfig(limiter=SampleToInsertRatio(2.0, 10, 50.0)))
    admission.size = 10
    while admission.can_insert():
        admission.inserts += 1
        admission.size += 1
    most = 100 - 2
    admission.check_batch(most)
    assert admission.can_sample(most)
    with pytest.raises(SpecError, match="at most 98"):
        admission.check_batch(most + 1)
    assert Admission(TableConfig(limiter=MinSize(5))).can_insert()


def test_packed_stacks_become_the_same_items() -> None:
    table = TableConfig(items=NStep(2))
    shards = [ReplayShard(shard_config(table)) for _ in (0, 1)]
    for number in range(3):
        batch = rollout(8, 2, seed=number)
        shards[0].add(fragment_info(number), batch)
        report = shards[1].add(fragment_info(number), frame_stacks.pack(batch))
    assert report.episodes is not None
    assert report.episodes.returns.tolist() == [2.5]
    plain, packed = (shard.sample("replay", 64, 7)[0] for shard in shards)
    assert plain is not None and packed is not None
    for name in ("key", "obs", "next_obs", "action", "reward", "policy_lag"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(packed, name))
    assert (plain.policy_lag == 6).all()


def test_a_shard_refuses_what_it_has_and_cuts_at_gaps() -> None:
    shard = ReplayShard(shard_config(TableConfig(items=NStep(1))))
    batches = [rollout(4, 1, seed=number) for number in range(3)]
    first = shard.add(fragment_info(0, 3, 0), batches[0])
    again = shard.add(fragment_info(0, 3, 0), batches[0])
    assert again.env_steps == first.env_steps == 4
    gap = shard.add(fragment_info(2, 3, 0), batches[1])
    assert (gap.env_steps, gap.episodes_cut) == (8, 1)
    next_life = shard.add(fragment_info(0, 3, 1), batches[2])
    assert (next_life.env_steps, next_life.episodes_cut) == (12, 2)


def test_what_a_shard_cannot_give_is_left_out() -> None:
    shard = ReplayShard(shard_config(TableConfig(items=NStep(1), max_times_sampled=1)))
    assert shard.sample("replay", 8, 0)[0] is None
    shard.add(fragment_info(0), rollout(6, 1, seed=0))
    size = shard.report().tables["replay"].size
    batch, report = shard.sample("replay", 64, 0)
    assert batch is not None and len(batch.key) == size
    assert report.tables["replay"].size < size
