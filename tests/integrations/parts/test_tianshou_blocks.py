# SPDX-License-Identifier: Apache-2.0
"""Blocks of transitions against Tianshou's own `add`, for some environments at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("tianshou", reason="needs Tianshou: pip install 'rollouts[tianshou]'")

from rollouts.integrations.tianshou.action import Spread
from rollouts.integrations.tianshou.blocks import BlockWriter, leaves_of
from tianshou.data import (
    Batch,
    CachedReplayBuffer,
    PrioritizedVectorReplayBuffer,
    ReplayBuffer,
    VectorReplayBuffer,
)
from tianshou.data.collector import get_stddev_from_dist
from torch.distributions import Categorical, Independent, Normal

NUM_ENVS = 3


def transitions(ids: list[int], numbers: list[int], done: list[bool]) -> Batch:
    """A step of environments `ids`, whose every column says `numbers`."""
    values = np.array(numbers)
    return Batch(
        obs=values.astype(np.float32)[:, None],
        act=values,
        rew=values.astype(np.float64),
        terminated=np.array(done),
        truncated=np.zeros(len(ids), np.bool_),
        obs_next=values.astype(np.float32)[:, None] + 1,
        info=Batch(env_id=np.array(ids)),
        policy=Batch(),
    )


def leaves(step: Batch) -> Any:
    found = {
        (name,): step[name] for name in ("obs", "act", "rew", "terminated", "truncated", "obs_next")
    }
    done = step.terminated | step.truncated
    return {**found, ("done",): done, ("info", "env_id"): step.info.env_id}


def make_buffers(kind: str, size: int) -> tuple[Any, Any]:
    if kind == "plain":
        return VectorReplayBuffer(size, NUM_ENVS), VectorReplayBuffer(size, NUM_ENVS)
    options = {"alpha": 0.6, "beta": 0.4}
    one = PrioritizedVectorReplayBuffer(size, NUM_ENVS, **options)
    return one, PrioritizedVectorReplayBuffer(size, NUM_ENVS, **options)


def assert_same(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    for name in ("obs", "act", "rew", "terminated", "truncated", "done", "obs_next"):
        assert np.array_equal(ours._meta[name], theirs._meta[name]), name
    assert np.array_equal(ours._meta.info.env_id, theirs._meta.info.env_id)
    assert np.array_equal(ours.last_index, theirs.last_index)
    assert np.array_equal(ours._lengths, theirs._lengths)
    for one, other in zip(ours.buffers, theirs.buffers, strict=True):
        for state in ("_insertion_idx", "_size", "_ep_return", "_ep_len", "_ep_start_idx"):
            assert one.__dict__[state] == other.__dict__[state], state
        assert np.array_equal(one.last_index, other.last_index)
    if isinstance(ours, PrioritizedVectorReplayBuffer):
        everything = np.arange(ours.maxsize)
        assert np.array_equal(ours.weight[everything], theirs.weight[everything])


@pytest.mark.parametrize("kind", ["plain", "prioritized"])
@pytest.mark.parametrize("size", [3, 6, 12, 300])
def test_blocks_leave_the_buffer_as_add_does(size: int, kind: str) -> None:
    ours, theirs = make_buffers(kind, size)
    # the storage is made by the first transition of any
    first = transitions([0, 1, 2], [0, 0, 0], [False] * 3)
    for buffer in (ours, theirs):
        buffer.add(first, buffer_ids=np.arange(NUM_ENVS))
    writer, rng = BlockWriter(ours), np.random.default_rng(size)
    writer.load()
    for number in range(60):
        ids = rng.permutation(NUM_ENVS)[: rng.integers(1, NUM_ENVS + 1)]
        done = (rng.random(len(ids)) < 0.3).tolist()
        step = transitions(ids.tolist(), (100 * number + ids).tolist(), done)
        index, ended = writer.append(ids, leaves(step))
        expected = theirs.add(step, buffer_ids=ids)
        assert index.tolist() == expected[0].tolist()
        assert ended.rows.tolist() == np.flatnonzero(done).tolist()
        for found, column in zip(ended[1:], expected[1:], strict=True):
            assert found.tolist() == column[ended.rows].tolist()
        if number % 7 == 6:
            writer.store()
            assert_same(ours, theirs)
            writer.load()


def test_columns_are_those_of_the_storage() -> None:
    ours, _ = make_buffers("plain", 6)
    step = transitions([0, 1, 2], [1, 1, 1], [False] * 3)
    ours.add(step, buffer_ids=np.arange(NUM_ENVS))
    writer = BlockWriter(ours)
    assert writer.has_columns(leaves(step))
    fewer = leaves(step)
    del fewer["info", "env_id"]
    assert not writer.has_columns(fewer)
    assert not writer.has_columns({**leaves(step), ("policy", "x"): np.zeros(3)})


def test_only_vectors_of_tianshou_s_own_buffers_fit() -> None:
    class Own(VectorReplayBuffer):
        def add(self, *args: Any, **kwargs: Any) -> Any:
            return super().add(*args, **kwargs)

    for kind in ("plain", "prioritized"):
        assert BlockWriter.fits(make_buffers(kind, 6)[0])
    cached = CachedReplayBuffer(ReplayBuffer(10), 2, 5)
    for other in (ReplayBuffer(6), Own(6, 2), cached, None):
        assert not BlockWriter.fits(other)


def test_leaves_of_a_batch_are_arrays_or_it_has_none() -> None:
    found = leaves_of("policy", Batch(a=np.zeros(2), b=Batch(c=torch.ones(2))))
    assert found is not None and set(found) == {("policy", "a"), ("policy", "b", "c")}
    assert leaves_of("policy", Batch()) == {}
    for wrong in (np.array(["x", None], object), [1, "x"]):
        assert leaves_of("policy", Batch(a=wrong)) is None


def test_spreads_are_those_of_tianshou_in_the_order_of_steps() -> None:
    torch.manual_seed(0)
    dists = [
        Categorical(logits=torch.randn(3, 4)),
        Categorical(logits=torch.randn(2, 4)),
        Independent(Normal(torch.zeros(3, 1), torch.rand(3, 1)), 1),
        Categorical(logits=torch.randn(1, 4)),
    ]
    spread = Spread()
    spread.add(None)
    assert spread.array() is None
    expected = []
    for dist in dists:
        spread.add(dist)
        expected.append(np.atleast_2d(get_stddev_from_dist(dist).numpy()).reshape(-1, 1))
    found = spread.array()
    assert found is not None and found.shape == (9, 1)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-5)
