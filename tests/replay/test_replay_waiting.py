# SPDX-License-Identifier: Apache-2.0
"""Blocking inserts and samples of the native replay store, and its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from replay_models import counting_store, table

from rollouts import _native
from rollouts.errors import ClosedError, ProtocolError

HANG_LIMIT_S = 300
QUEUE = {"sampler": "fifo", "remover": "fifo", "max_times_sampled": 1}


def wait_until(condition: Callable[[], bool]) -> None:
    """Looks again and again; another thread makes it true."""
    never = threading.Event()
    for _ in range(HANG_LIMIT_S * 100):
        if condition():
            return
        never.wait(0.01)
    raise AssertionError("nothing happened within the hang limit")


def test_an_insert_waits_for_a_sample() -> None:
    store, plan = counting_store(9, table(max_size=2, limiter=("queue", 2), **QUEUE))
    with ThreadPoolExecutor(1) as threads:
        inserting = threads.submit(store.insert, "t", [0] * 5, np.arange(5), 1)
        taken: list[int] = []
        for _ in range(5):
            batch = store.sample("t", plan, 1, timeout_s=HANG_LIMIT_S)
            taken += batch["x"].tolist()
        assert len(inserting.result(HANG_LIMIT_S)) == 5
    assert taken == [0, 1, 2, 3, 4]


def test_a_sample_waits_for_all_of_its_items() -> None:
    store, plan = counting_store(9, table(limiter=("min_size", 3)))
    with ThreadPoolExecutor(1) as threads:
        sampling = threads.submit(store.sample, "t", plan, 2, timeout_s=HANG_LIMIT_S)
        wait_until(lambda: store.info("t")["num_waiting_samples"] == 1)
        store.insert("t", [0, 0], [0, 1], 1)
        wait_until(lambda: store.info("t")["num_waiting_samples"] == 1)
        assert not sampling.done()
        store.insert("t", [0], [2], 1)
        assert len(sampling.result(HANG_LIMIT_S)["x"]) == 2


def test_timeouts_leave_the_counters() -> None:
    store, plan = counting_store(9, table(max_size=2, limiter=("queue", 2), **QUEUE))
    with pytest.raises(TimeoutError, match="no 1 samples of table 't'"):
        store.sample("t", plan, 1, timeout_s=0.001)
    assert len(store.insert("t", [0] * 3, np.arange(3), 1, timeout_s=0.001)) == 2
    info = store.info("t")
    assert (info["num_inserts"], info["num_samples"], info["size"]) == (2, 0, 2)


def test_close_wakes_everybody() -> None:
    queue = table("full", max_size=2, limiter=("queue", 2), **QUEUE)
    store, plan = counting_store(9, queue, table("empty"))
    store.insert("full", [0, 0], [0, 1], 1)
    with ThreadPoolExecutor(4) as threads:
        waiting: list[Future[object]] = []
        for _ in range(2):
            waiting.append(threads.submit(store.insert, "full", [0], [2], 1))
            waiting.append(threads.submit(store.sample, "empty", plan, 1))
        wait_until(lambda: store.info("full")["num_waiting_inserts"] == 2)
        wait_until(lambda: store.info("empty")["num_waiting_samples"] == 2)
        store.close()
        for future in waiting:
            with pytest.raises(ClosedError):
                future.result(HANG_LIMIT_S)
    store.close()
    assert store.closed
    with pytest.raises(ClosedError):
        store.append([0], {"x": np.zeros(1, np.int64)})


def test_many_threads_keep_to_the_ratio() -> None:
    bounds = (-8.0, 8.0)
    limiter = ("sample_to_insert_ratio", 2.0, 1, *bounds)
    writers, items = 4, 200
    store, plan = counting_store(
        0, table(max_size=50, limiter=limiter), num_streams=writers, chunk_rows=8
    )

    def write(stream: int) -> None:
        for i in range(items):
            rows = store.append([stream], {"x": np.array([stream * 1000 + i])})
            store.insert("t", [stream], rows, 1)

    def read() -> None:
        # the last inserts lie within the bounds, so that each reader gets all of its share
        for _ in range(items - 4):
            batch = store.sample("t", plan, 2)
            np.testing.assert_array_equal(batch["x"], batch["stream_id"] * 1000 + batch["start"])
            info = store.info("t")
            difference = 2 * info["num_inserts"] - info["num_samples"]
            assert bounds[0] <= difference <= bounds[1]

    with ThreadPoolExecutor(2 * writers) as threads:
        readers = [threads.submit(read) for _ in range(writers)]
        writing = [threads.submit(write, stream) for stream in range(writers)]
        for future in readers:
            future.result(HANG_LIMIT_S)
        # what the readers left open is read here, so that all inserts are admitted
        while not all(future.done() for future in writing):
            try:
                store.sample("t", plan, 1, timeout_s=0.01)
            except TimeoutError:
                continue
        for future in writing:
            future.result(HANG_LIMIT_S)
    assert store.info("t")["num_inserts"] == writers * items


def test_a_stream_has_one_writer_at_a_time() -> None:
    store, _ = counting_store(0, num_streams=1, history_rows=1)
    value = {"x": np.zeros((2000, 1), np.int64)}
    refused = threading.Event()

    def write() -> int:
        appended = 0
        while not refused.is_set() and appended < 300:
            try:
                store.append([0], value)
                appended += 1
            except ProtocolError:
                refused.set()
        return appended

    with ThreadPoolExecutor(3) as threads:
        total = sum(f.result(HANG_LIMIT_S) for f in [threads.submit(write) for _ in range(3)])
    # what was not refused is whole
    assert store.stream_rows([0])[1].tolist() == [2000 * total]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told() -> None:
    store, plan = counting_store(3, num_threads=2)
    store.insert("t", [0], [0], 1)
    child = os.fork()
    if child == 0:
        try:
            store.sample("t", plan, 1)
        except ProtocolError:
            os._exit(7)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert isinstance(store, _native.ReplayStore)
