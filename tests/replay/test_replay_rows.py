# SPDX-License-Identifier: Apache-2.0
"""Rows of the native replay store: appended, stacked, gathered and freed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replay_models import StackedEnv, StreamModel, counting_store, table

from rollouts import _native
from rollouts.errors import DTypeError, ProtocolError, SpecError

STACK, SHAPE = 3, (2, 2)
COLUMNS = [
    ("obs", "uint8", SHAPE, STACK, "zero"),
    ("vector", "float32", (5,), 1, "zero"),
    ("reward", "float64", (), 1, "zero"),
]


def play(
    store: _native.ReplayStore, envs: list[StackedEnv], models: list[StreamModel], steps: int
) -> None:
    """Appends (T, B) random steps, and keeps whole observations in the models."""
    random = np.random.default_rng(steps)
    batch = len(envs)
    obs = np.zeros((steps, batch, STACK, *SHAPE), np.uint8)
    vector = random.normal(size=(steps, batch, 5)).astype(np.float32)
    reward = random.normal(size=(steps, batch))
    ended = random.random((steps, batch)) < 0.2
    final = []
    for t in range(steps):
        for b, env in enumerate(envs):
            obs[t, b] = env.stack
            row = {"obs": obs[t, b], "vector": vector[t, b], "reward": reward[t, b], "final": False}
            models[b].rows.append(row)
            env.push()
            if ended[t, b]:
                final.append(env.stack.copy())
                zeros = {"vector": np.zeros(5, np.float32), "reward": 0.0, "final": True}
                models[b].rows.append({"obs": final[-1], **zeros})
                env.reset()
    columns = {"obs": obs, "vector": vector, "reward": reward}
    finals = {"obs": np.array(final).reshape(-1, STACK, *SHAPE)}
    before = store.stream_rows(np.arange(batch))[1]
    rows = store.append(np.arange(batch), columns, ended=ended, final=finals)
    extra = np.cumsum(ended, axis=0) - ended
    np.testing.assert_array_equal(rows, before + np.arange(steps)[:, None] + extra)


@pytest.mark.parametrize("chunk_rows", [1, 3, 64])
@pytest.mark.parametrize("time_major", [False, True])
def test_gathers_equal_a_slow_gather(chunk_rows: int, time_major: bool) -> None:
    store = _native.ReplayStore(
        COLUMNS, [table(max_size=60)], num_streams=3, chunk_rows=chunk_rows, num_threads=2
    )
    envs = [StackedEnv(seed, STACK, SHAPE) for seed in range(3)]
    models = [StreamModel() for _ in range(3)]
    for env in envs:
        env.reset()
    fields = [
        ("obs", "obs", 0, 0),
        ("next_obs", "obs", -1, 0),
        ("obs_sequence", "obs", 1, 4),
        ("vector", "vector", -2, 3),
        ("reward", "reward", 0, 4),
    ]
    plan = _native.GatherPlan(
        store,
        [*fields, ("valid", "@valid", 0, 4), ("row", "@row", 0, 4), ("final", "@final", 0, 4)],
        time_major=time_major,
    )
    random = np.random.default_rng(0)
    for round_steps in (1, 7, 30, 2, 40, 1):
        play(store, envs, models, round_steps)
        oldest, following = store.stream_rows([0, 1, 2])
        stream = random.integers(0, 3, 12)
        length = np.minimum(random.integers(1, 6, 12), (following - oldest)[stream])
        start = random.integers(oldest[stream], following[stream] - length + 1)
        store.insert("t", stream, start, length)
        batch = store.sample("t", plan, 20)
        for i in range(20):
            model = models[batch["stream_id"][i]]
            run = (int(batch["start"][i]), int(batch["length"][i]))
            for name, column, offset, count in fields:
                got = batch[name][:, i] if time_major and count else batch[name][i]
                wanted = model.gather(*run, column, offset, count)
                for value, expected in zip(got if count else [got], wanted, strict=True):
                    np.testing.assert_array_equal(value, 0 if expected is None else expected)
            valid, row, final = (
                batch[name][:, i] if time_major else batch[name][i]
                for name in ("valid", "row", "final")
            )
            places = np.arange(4)
            np.testing.assert_array_equal(valid, places < run[1])
            np.testing.assert_array_equal(row, np.where(places < run[1], run[0] + places, -1))
            marks = [bool(value) for value in model.gather(*run, "final", 0, 4)]
            np.testing.assert_array_equal(final, marks)


@pytest.mark.parametrize("pad", ["zero", "repeat"])
def test_single_frames_are_stacked_with_padding(pad: str) -> None:
    store = _native.ReplayStore([("obs", "uint8", (2,), 3, pad)], [table()], num_streams=1)
    plan = _native.GatherPlan(store, [("obs", "obs", 0, 0)])
    frames = np.array([[i, i] for i in (1, 2, 3, 9)], np.uint8)
    ended = np.array([[False], [False], [True], [False]])
    final = {"obs": np.array([[4, 4]], np.uint8)}
    rows = store.append([0], {"obs": frames[:, None]}, ended=ended, final=final)
    assert rows.ravel().tolist() == [0, 1, 2, 4]
    keys = store.insert("t", [0] * 5, np.arange(5), 1)
    obs = store.gather("t", plan, keys)["obs"][..., 0].tolist()
    p, q = (0, 0) if pad == "zero" else (1, 9)
    assert obs == [[p, p, 1], [p, 1, 2], [1, 2, 3], [2, 3, 4], [q, q, 9]]


def test_a_transition_takes_a_quarter_of_two_stacks() -> None:
    steps, frame, stack = 512, (84, 84), 4
    store = _native.ReplayStore(
        [("obs", "uint8", frame, stack, "zero"), ("action", "int64", (), 1, "zero")],
        [table(max_size=steps)],
        num_streams=1,
        history_rows=steps,
    )
    random = np.random.default_rng(0)
    frames = random.integers(0, 255, (steps + stack, *frame), np.uint8)
    obs = np.lib.stride_tricks.sliding_window_view(frames, stack, axis=0)[:steps]
    obs = np.ascontiguousarray(np.moveaxis(obs, -1, 1))[:, None]
    store.append([0], {"obs": obs})
    keys = store.insert("t", [0] * (steps - 1), np.arange(steps - 1), 2)
    plan = _native.GatherPlan(store, [("obs", "obs", 0, 0), ("next_obs", "obs", -1, 0)])
    batch = store.gather("t", plan, keys)
    np.testing.assert_array_equal(batch["obs"], obs[:-1, 0])
    np.testing.assert_array_equal(batch["next_obs"], obs[1:, 0])
    stacked_bytes = (steps - 1) * 2 * stack * frame[0] * frame[1]
    assert store.memory()["used_bytes"] <= stacked_bytes / 4


@pytest.mark.parametrize("in_file", [False, True])
def test_memory_is_bounded_by_what_items_need(tmp_path: Path, in_file: bool) -> None:
    path = tmp_path / "columns"
    store, plan = counting_store(
        0, table(max_size=50), chunk_rows=4, history_rows=2, path=str(path) if in_file else ""
    )
    for first in range(0, 4000, 10):
        rows = store.append([0], {"x": np.arange(first, first + 10)[:, None]})
        store.insert("t", [0] * 10, rows[:, 0], 1)
    memory = store.memory()
    # 50 items, the last append, and a chunk more at either end
    assert memory["num_chunks"] <= (50 + 10) // 4 + 2
    assert memory["allocated_bytes"] <= 20 * memory["chunk_bytes"]
    assert set(store.sample("t", plan, 99)["x"].tolist()) <= set(range(3950, 4000))
    store.reset("t")
    assert store.memory()["num_chunks"] <= 4
    assert path.exists() == in_file
    del store, plan
    assert not path.exists()


def test_a_full_store_refuses_and_keeps_what_it_had() -> None:
    store, plan = counting_store(10, chunk_rows=4, history_rows=10, max_bytes=64 * 2 * 4)
    keys = store.insert("t", [0] * 10, np.arange(10), 1)
    with pytest.raises(MemoryError, match="raise max_bytes"):
        store.append([0], {"x": np.arange(10, 40)[:, None]})
    assert store.stream_rows([0])[1].tolist() == [10]
    assert store.append([0], {"x": np.array([10])}).tolist() == [10]
    keys = np.append(keys, store.insert("t", [0], [10], 1))
    assert store.gather("t", plan, keys)["x"].tolist() == list(range(11))


def test_rows_out_of_reach_are_refused() -> None:
    store, _ = counting_store(10, history_rows=3)
    store.append([0], {"x": np.array([10])})
    assert [rows.tolist() for rows in store.stream_rows([0])] == [[7], [11]]
    for start, length in [(6, 1), (10, 2), (11, 1), (-1, 1), (8, 0)]:
        with pytest.raises(SpecError, match="insert: item 1 has"):
            store.insert("t", [0, 0], [8, start], [1, length])
    assert store.info("t")["size"] == 0
    store.end_streams([0])
    with pytest.raises(SpecError, match="insert: item 0 has"):
        store.insert("t", [0], [10], 1)


def test_rows_that_are_not_valid_are_left_out() -> None:
    store = _native.ReplayStore([("x", "int32", (), 1, "zero")], [table()], num_streams=2)
    valid = np.array([[True, False], [True, True]])
    ended = np.array([[False, True], [True, False]])
    x = np.array([[1, 2], [3, 4]], np.int32)
    final = {"x": np.array([20, 30], np.int32)}
    rows = store.append([0, 1], {"x": x}, valid=valid, ended=ended, final=final)
    assert rows.tolist() == [[0, -1], [1, 0]]
    plan = _native.GatherPlan(store, [("x", "x", 0, 0), ("first", "@first", 0, 0)])
    batch = store.gather("t", plan, store.insert("t", [0, 0, 0, 1], [0, 1, 2, 0], 1))
    assert batch["x"].tolist() == [1, 3, 30, 4]
    assert batch["first"].tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("stream_id", "columns", "options", "error", "message"),
    [
        ([0], {"x": np.zeros(1, np.float32)}, {}, DTypeError, "expected int64"),
        ([0], {"x": np.zeros(2, np.int64)}, {}, SpecError, r"expected \(1,\)"),
        ([0], {"x": [0]}, {}, DTypeError, "must be a NumPy array"),
        ([0], {"y": np.zeros(1)}, {}, SpecError, "none of the store's columns"),
        ([0], {"x": np.zeros(1, np.int64), "y": np.zeros(1)}, {}, SpecError, "'y'"),
        ([1], {"x": np.zeros(1, np.int64)}, {}, SpecError, "no stream 1, expected 0 to 0"),
        ([0, 0], {"x": np.zeros(2, np.int64)}, {}, ProtocolError, "stream 0 is given twice"),
        ([0.5], {"x": np.zeros(1, np.int64)}, {}, DTypeError, "stream_id"),
        ([0], {"x": np.zeros(1, np.int64)}, {"ended": np.ones(2, bool)}, SpecError, "ended is"),
    ],
)
def test_wrong_appends_are_refused(
    stream_id: Any, columns: Any, options: Any, error: type[Exception], message: str
) -> None:
    store, _ = counting_store(0)
    with pytest.raises(error, match=message):
        store.append(stream_id, columns, **options)
    assert store.stream_rows([0])[1].tolist() == [0]


def test_arrays_are_aligned_and_used_again_when_nobody_holds_them() -> None:
    store, plan = counting_store(9, table(sampler="fifo"))
    store.insert("t", [0] * 9, np.arange(9), 1)
    batch = store.sample("t", plan, 3)
    assert all(array.ctypes.data % 64 == 0 for array in batch.values())
    address, held = batch["x"].ctypes.data, batch["x"][1:]
    del batch
    assert store.sample("t", plan, 3)["x"].ctypes.data != address
    del held
    assert store.sample("t", plan, 3)["x"].ctypes.data == address


def test_out_receives_the_rows() -> None:
    store, plan = counting_store(9, table(sampler="fifo"))
    store.insert("t", [0], [7], 1)
    out = np.zeros(2, np.int64)
    assert store.sample("t", plan, 2, out={"x": out})["x"] is out
    assert out.tolist() == [7, 7]
    with pytest.raises(SpecError, match=r"expected \(3,\)"):
        store.sample("t", plan, 3, out={"x": out})
