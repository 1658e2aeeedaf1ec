# SPDX-License-Identifier: Apache-2.0
"""Several learners of one stream: every batch or column goes to exactly one of them."""

from __future__ import annotations

import threading
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_batches import make_batch

from rollouts.batch import RolloutBatch
from rollouts.device_queue import DeviceQueue
from rollouts.errors import ClosedError, SpecError
from rollouts.learner_shards import LearnerShards, split_columns

TIMEOUT_S = 120


class Stream:
    """Counts what it gives out; ends after `total`."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.given = 0
        self.busy = threading.Lock()

    def __call__(self, timeout_s: float) -> Any:
        assert self.busy.acquire(blocking=False), "asked by two threads at a time"
        try:
            if self.given == self.total:
                raise StopIteration
            self.given += 1
            return self.given - 1
        finally:
            self.busy.release()


def drain(shards: LearnerShards, learner: int, into: list[Any]) -> None:
    try:
        while True:
            into.append(shards.get(learner, TIMEOUT_S))
    except StopIteration:
        return


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 60))
def test_threads_get_disjoint_complete_and_even_shares(
    num_learners: int, depth: int, total: int
) -> None:
    shards = LearnerShards(Stream(total), num_learners, depth=depth)
    shares: list[list[Any]] = [[] for _ in range(num_learners)]
    threads = [
        threading.Thread(target=drain, args=(shards, learner, share))
        for learner, share in enumerate(shares)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    # learner i gets batches i, i + n, i + 2 n, ...
    assert shares == [list(range(i, total, num_learners)) for i in range(num_learners)]


@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.integers(0, 3), max_size=60),
    st.integers(0, 30),
)
def test_any_order_of_takers_keeps_the_shares_and_the_bound(
    num_learners: int, depth: int, takers: list[int], total: int
) -> None:
    stream = Stream(total)
    shards = LearnerShards(stream, num_learners, depth=depth)
    taken = [0] * num_learners
    for taker in takers:
        learner = taker % num_learners
        try:
            got: Any = shards.get(learner, 0)
            assert got == learner + num_learners * taken[learner]
            taken[learner] += 1
        except TimeoutError:
            # somebody has to take theirs first
            behind = stream.given % num_learners
            assert behind != learner
            assert taken[behind] + depth == stream.given // num_learners
        except StopIteration:
            assert stream.given == total
        assert stream.given - sum(taken) <= num_learners * depth


def test_learner_that_lags_makes_the_others_wait() -> None:
    stream = Stream(100)
    shards = LearnerShards(stream, 2, depth=2)
    got: list[Any] = []
    with pytest.raises(TimeoutError, match="learner 0 within 0 s"):
        while True:
            got.append(shards.get(0, 0))
    assert got == [0, 2, 4] and stream.given == 5
    assert [shards.get(1, 0) for _ in range(3)] == [1, 3, 5]
    got.append(shards.get(0, 0))
    assert got[-1] == 6


def test_source_s_exception_reaches_every_learner_after_its_last_batch() -> None:
    left = iter(["zero"])

    def source(timeout_s: float) -> Any:
        for batch in left:
            return batch
        raise ValueError("broken")

    shards = LearnerShards(source, 2)
    with pytest.raises(ValueError, match="broken"):
        shards.get(1)
    first: Any = shards.get(0)
    assert first == "zero"
    for learner in (0, 1):
        with pytest.raises(ValueError, match="broken"):
            shards.get(learner)


def test_close_wakes_learners() -> None:
    entered, go = threading.Event(), threading.Event()

    def source(timeout_s: float) -> Any:
        entered.set()
        assert go.wait(TIMEOUT_S)
        raise TimeoutError

    shards = LearnerShards(source, 2)
    outcomes: list[BaseException] = []

    def learn(learner: int) -> None:
        try:
            shards.get(learner)
        except ClosedError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=learn, args=(learner,)) for learner in range(2)]
    for thread in threads:
        thread.start()
    assert entered.wait(TIMEOUT_S)
    shards.close()
    go.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert len(outcomes) == 2


def test_each_learner_may_have_a_device_queue() -> None:
    batches = [make_batch(2, 2, seed=seed) for seed in range(9)]
    left = iter(batches)
    shards = LearnerShards(lambda timeout_s: next(left), 3)
    queues = [DeviceQueue(shards.source(learner)) for learner in range(3)]
    for number, expected in enumerate(batches):
        got = queues[number % 3].get(TIMEOUT_S)
        np.testing.assert_array_equal(got.obs.numpy(), expected.obs)
    for queue in queues:
        assert list(queue) == []
        queue.close()


@pytest.mark.parametrize("arguments", [{"num_learners": 0}, {"num_learners": 1, "depth": 0}])
def test_wrong_numbers_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(SpecError, match="expected at least 1"):
        LearnerShards(Stream(0), **arguments)


def test_unknown_learner_is_refused() -> None:
    with pytest.raises(SpecError, match="learner is 2, expected 0 to 1"):
        LearnerShards(Stream(0), 2).source(2)


@given(st.integers(1, 12), st.data())
def test_parts_are_the_columns_in_order_and_each_episode_once(
    columns: int, data: st.DataObject
) -> None:
    num_learners = data.draw(st.integers(1, columns))
    batch = replace(make_batch(3, columns), policy_state=(np.arange(columns),))
    ended = batch.terminated | batch.truncated
    batch = replace(batch, final_obs=batch.obs[ended] + np.uint8(1))
    # two fragments of the same environments are two columns with one env_id
    batch.env_id[columns // 2 :] = batch.env_id[: columns - columns // 2]
    parts = split_columns(batch, num_learners)
    sizes = [len(part.env_id) for part in parts]
    assert len(parts) == num_learners and max(sizes) - min(sizes) <= 1
    joined = RolloutBatch.concatenate(parts)
    for f in fields(batch):
        if f.name in ("extras", "policy_state", "counted"):
            continue
        np.testing.assert_array_equal(getattr(joined, f.name), getattr(batch, f.name))
    np.testing.assert_array_equal(joined.extras["hidden"], batch.extras["hidden"])
    np.testing.assert_array_equal(joined.policy_state[0], batch.policy_state[0])
    assert sum(len(part.episodes().returns) for part in parts) == ended.sum()


def test_tensors_are_cut_as_arrays_are_with_a_final_observation_for_each_step() -> None:
    arrays = make_batch(4, 5)
    given = {f.name: getattr(arrays, f.name) for f in fields(arrays)} | {"final_obs": arrays.obs}
    given["extras"] = {"hidden": torch.from_numpy(arrays.extras["hidden"])}
    given = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    parts = split_columns(RolloutBatch(**given), 2)
    for part, columns in zip(parts, (slice(0, 2), slice(2, 5)), strict=True):
        np.testing.assert_array_equal(part.final_obs, arrays.obs[:, columns])
        np.testing.assert_array_equal(part.env_id, arrays.env_id[columns])


@pytest.mark.parametrize("num_learners", [0, 4])
def test_more_learners_than_columns_are_refused(num_learners: int) -> None:
    with pytest.raises(SpecError, match=f"num_learners is {num_learners}, expected 1 to 3"):
        split_columns(make_batch(2, 3), num_learners)
