# SPDX-License-Identifier: Apache-2.0
"""Samples are admitted one by one: batches beyond a limiter's window, and what a timeout leaves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from replay_models import counting_store, table

from rollouts import _native

HANG_S = 300.0
QUEUE: dict[str, Any] = {"sampler": "fifo", "remover": "fifo", "max_times_sampled": 1}


def queue(size: int) -> dict[str, Any]:
    return table(max_size=size, limiter=("queue", size), **QUEUE)


def test_a_batch_larger_than_the_queue_comes_as_inserts_go_on() -> None:
    store, plan = counting_store(9, queue(2))
    with ThreadPoolExecutor(1) as threads:
        inserting = threads.submit(store.insert, "t", [0] * 9, np.arange(9), 1, timeout_s=HANG_S)
        assert store.sample("t", plan, 7, timeout_s=HANG_S)["x"].tolist() == list(range(7))
        assert len(inserting.result(HANG_S)) == 9
    assert store.info("t")["size"] == 2


def test_samplers_whose_batches_fill_the_window_do_not_block_each_other() -> None:
    # a window of 8, in which no 9 are ever admitted at once
    limiter = ("sample_to_insert_ratio", 4.0, 1, 0.0, 8.0)
    store, plan = counting_store(80, table(max_size=40, limiter=limiter))
    samplers, rounds, batch = 3, 10, 9
    # samples stop at a difference of 0: the last insert brings the last ones in
    inserts = -(-samplers * rounds * batch // 4)
    with ThreadPoolExecutor(samplers + 1) as threads:
        inserting = threads.submit(
            store.insert, "t", [0] * inserts, np.arange(inserts), 1, timeout_s=HANG_S
        )

        def sample() -> int:
            found = [store.sample("t", plan, batch, timeout_s=HANG_S) for _ in range(rounds)]
            return sum(len(each["x"]) for each in found)

        sampling = [threads.submit(sample) for _ in range(samplers)]
        assert sum(each.result(HANG_S) for each in sampling) == samplers * rounds * batch
        assert len(inserting.result(HANG_S)) == inserts
    info = store.info("t")
    assert (info["num_inserts"], info["num_samples"]) == (inserts, samplers * rounds * batch)


def test_what_was_drawn_before_a_timeout_comes_first() -> None:
    store, plan = counting_store(9, queue(3))
    store.insert("t", [0] * 3, [0, 1, 2], 1)
    with pytest.raises(TimeoutError):
        store.sample("t", plan, 4, timeout_s=0)
    # the three were admitted, so there is room for as many
    assert store.info("t")["num_samples"] == 3
    assert len(store.insert("t", [0] * 3, [3, 4, 5], 1, timeout_s=0)) == 3
    assert store.sample("t", plan, 2)["x"].tolist() == [0, 1]
    assert store.sample("t", plan, 4)["x"].tolist() == [2, 3, 4, 5]


def test_removals_by_sampling_count_for_the_next_item_of_a_batch() -> None:
    # Reverb's rule: below min_size nothing is sampled, also in the middle of a batch
    once = {"sampler": "fifo", "max_times_sampled": 1}
    store, plan = counting_store(9, table(limiter=("min_size", 3), **once))
    store.insert("t", [0] * 4, np.arange(4), 1)
    with pytest.raises(TimeoutError):
        store.sample("t", plan, 3, timeout_s=0)
    assert store.info("t")["size"] == 2
    assert store.sample("t", plan, 2, timeout_s=0)["x"].tolist() == [0, 1]


def test_drawn_samples_are_part_of_a_state_and_go_with_a_reset() -> None:
    store, plan = counting_store(9, queue(3))
    store.insert("t", [0] * 3, [0, 1, 2], 1)
    with pytest.raises(TimeoutError):
        store.sample("t", plan, 4, timeout_s=0)
    state = store.save_state()
    other, other_plan = counting_store(0, queue(3))
    other.load_state(state)
    for one, its_plan in ((store, plan), (other, other_plan)):
        one.insert("t", [0], [3], 1)
        assert one.sample("t", its_plan, 4, timeout_s=0)["x"].tolist() == [0, 1, 2, 3]

    store.load_state(state)
    store.reset("t")
    assert not store.can_sample("t", 1)
    store.end_streams([0])
    assert store.memory()["used_bytes"] == 0


def test_pieces_of_a_state_are_the_state_of_their_moment() -> None:
    rows, width = 3000, 1024
    # room for the rows, but not for as many again
    store = _native.ReplayStore(
        [("x", "int64", (width,), 1, "zero")],
        [table(max_size=rows)],
        num_streams=1,
        chunk_rows=16,
        max_bytes=40 << 20,
    )

    def add(first: int) -> None:
        values = np.arange(first, first + 100)[:, None, None]
        numbers = store.append([0], {"x": np.ascontiguousarray(np.tile(values, (1, 1, width)))})
        store.insert("t", [0] * 100, numbers[:, 0], 1)

    for first in range(0, rows, 100):
        add(first)
    whole = store.save_state()
    pieces = store.state_pieces()
    assert pieces.nbytes == len(whole) > rows * width * 8
    # the store goes on, and its oldest rows are removed, while the pieces are taken
    taken = [next(pieces)]
    for first in range(rows, 2 * rows, 100):
        add(first)
    taken += pieces
    assert max(map(len, taken)) < 8 << 20
    assert (np.concatenate(taken) == whole).all()
    assert store.keys("t").size == rows
