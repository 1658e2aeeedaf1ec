# SPDX-License-Identifier: Apache-2.0
"""Batch buffers: reused in steady state, never changed while a view is held."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run_in_child

import rollouts


def zeros(rows: int) -> np.ndarray:
    return np.zeros(rows, dtype=np.int64)


@pytest.mark.parametrize(("num_envs", "batch_size"), [(8, 8), (2000, 2000), (8, 3)])
def test_buffers_are_reused_in_steady_state(num_envs: int, batch_size: int) -> None:
    with rollouts.make_vec(
        "CartPole-v1", num_envs, batch_size=batch_size, num_threads=2, seed=1
    ) as env:
        one_batch = None
        env.reset()
        for step in range(120):
            env.step(zeros(batch_size))
            if step == 0:
                one_batch = env.buffer_bytes
            if step == 60:
                steady = env.buffer_bytes
        assert env.buffer_bytes <= max(steady, one_batch)
        if batch_size == num_envs:
            rows_bytes = num_envs * (4 * 4 + 8 + 8 + 4 + 4 + 1 + 1)
            assert env.buffer_bytes < 3 * (rows_bytes + 8 * 64)


@pytest.mark.parametrize(
    "derive",
    [
        lambda obs: obs[1:],
        lambda obs: obs.view(np.int32),
        memoryview,
        lambda obs: np.frombuffer(obs.data, dtype=np.float32),
        lambda obs: obs[0][:2],
        lambda obs: np.asarray(obs).swapaxes(0, 1),
    ],
)
def test_whatever_is_derived_from_an_array_keeps_it_alive(derive: Callable) -> None:
    with rollouts.make_vec("CartPole-v1", 4, seed=1) as env:
        held = derive(env.reset()[0])
        before = bytes(np.ascontiguousarray(held))
        for _ in range(10):
            env.step(zeros(4))
        assert bytes(np.ascontiguousarray(held)) == before


def test_tensors_made_of_an_array_keep_it_alive() -> None:
    torch = pytest.importorskip("torch")
    with rollouts.make_vec("CartPole-v1", 4, seed=1) as env:
        tensor = torch.from_numpy(env.reset()[0])
        shared = torch.utils.dlpack.from_dlpack(env.step(zeros(4))[0])
        before = tensor.clone(), shared.clone()
        for _ in range(10):
            env.step(zeros(4))
        assert torch.equal(tensor, before[0]) and torch.equal(shared, before[1])


def test_changing_an_arrays_shape_or_flags_does_not_reach_later_batches(sync_env) -> None:
    for _ in range(6):
        obs = sync_env.step(zeros(6))[0]
        assert obs.shape == (6, 4) and obs.flags.writeable
        obs.shape = (24,)
        obs.flags.writeable = False
        del obs


@settings(max_examples=25, deadline=None)
@given(
    batch_size=st.integers(1, 5),
    same_step=st.booleans(),
    moves=st.lists(st.tuples(st.sampled_from(["step", "hold", "drop"]), st.integers(0, 7))),
)
def test_held_views_never_change_under_the_holder(
    batch_size: int, same_step: bool, moves: list[tuple[str, int]]
) -> None:
    """The slow model of a held batch is a deep copy of it."""
    mode = "same_step" if same_step else "next_step"
    held: list[tuple[list[np.ndarray], list[np.ndarray]]] = []
    with rollouts.make_vec(
        "CartPole-v1",
        5,
        batch_size=batch_size,
        num_threads=2,
        seed=1,
        autoreset_mode=mode,
        max_episode_steps=4,
    ) as env:
        env.async_reset()
        batch = env.recv_batch()
        for move, number in moves:
            if move == "step":
                env.send(zeros(batch_size) + number % 2)
                batch = env.recv_batch()
            elif move == "hold":
                arrays = [one for one in batch[:-1] if one is not None]
                # a view of some column stands for the batch: the slot must stay whole
                view = arrays[number % len(arrays)][:1]
                held.append(([view], [view.copy()]))
            elif held:
                held.pop(number % len(held))
            for views, copies in held:
                for view, copied in zip(views, copies, strict=True):
                    np.testing.assert_array_equal(view, copied)
    # closing the pool leaves them alone too
    for views, copies in held:
        np.testing.assert_array_equal(views[0], copies[0])


def test_closed_pool_frees_its_buffers_when_the_last_view_goes() -> None:
    run_in_child(close_with_views)


def close_with_views() -> None:
    process = psutil.Process()
    big = {"num_envs": 2**17, "num_threads": 1, "seed": 1}
    rollouts.make_vec("CartPole-v1", **big).close()

    def use_once() -> None:
        env = rollouts.make_vec("CartPole-v1", **big)
        obs, _ = env.reset()
        env.close()
        del obs

    use_once()
    before = process.memory_info().rss
    for _ in range(8):
        use_once()
    ctypes.CDLL(None).malloc_trim(0)
    # one batch is 5 MiB, one pool's environments 9 MiB: eight leaks would be 40 MiB or more
    assert process.memory_info().rss - before < 24 * 2**20


def test_memory_goes_back_after_many_views_were_held_and_dropped() -> None:
    run_in_child(hold_and_drop_views)


def hold_and_drop_views() -> None:
    process = psutil.Process()
    with rollouts.make_vec("CartPole-v1", 2**15, num_threads=1, seed=1) as env:
        held = [env.reset()[0]]
        env.step(zeros(2**15))
        idle, before = env.buffer_bytes, process.memory_info().rss
        for _ in range(100):
            held.append(env.step(zeros(2**15))[0])
        assert env.buffer_bytes > 50 * (idle / 2)
        held.clear()
        for _ in range(3):
            env.step(zeros(2**15))
        assert env.buffer_bytes <= 2 * idle
        # what malloc keeps for later is not the pool's; the hundred batches are 130 MiB
        ctypes.CDLL(None).malloc_trim(0)
        assert process.memory_info().rss - before < 40 * 2**20
