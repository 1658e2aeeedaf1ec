# SPDX-License-Identifier: Apache-2.0
"""`from_pixels=True` in threads and processes: closing, memory, exits, forks."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import psutil
import pytest
from processes import run_drawing, run_in_child

import rollouts

pytestmark = pytest.mark.system

SMALL = {"from_pixels": True, "width": 32, "height": 32}


def test_pools_are_used_and_closed_in_any_thread() -> None:
    pictures: list[np.ndarray] = []

    def play() -> None:
        with rollouts.make_vec("Hopper-v5", 2, seed=1, num_threads=1, **SMALL) as env:
            pictures.append(env.reset()[0].copy())

    threads = [threading.Thread(target=play) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    play()
    # made here, used and closed elsewhere
    env = rollouts.make_vec("Hopper-v5", 2, seed=1, num_threads=1, **SMALL)
    other = threading.Thread(target=lambda: (pictures.append(env.reset()[0].copy()), env.close()))
    other.start()
    other.join()
    assert len(pictures) == 4
    for picture in pictures[1:]:
        np.testing.assert_array_equal(picture, pictures[0])


def open_and_close(times: int) -> None:
    for _ in range(times):
        # the caller's thread draws, and threads of the pool
        with rollouts.make_vec("Hopper-v5", 3, num_threads=2, **SMALL) as env:
            env.reset()
            env.step(env.action_space.sample())
        with rollouts.make_vec("Hopper-v5", 3, batch_size=1, num_threads=2, **SMALL) as env:
            env.async_reset()
            env.recv()


def settled_rss() -> int:
    ctypes.CDLL(None).malloc_trim(0)
    return psutil.Process().memory_info().rss


def assert_memory_stays_flat(times: int) -> None:
    open_and_close(4)
    before, threads = settled_rss(), psutil.Process().num_threads()
    open_and_close(times)
    grown = settled_rss() - before
    # a context that is left behind has 64 MB, of which the depths of shadows are most
    assert grown < 16 * 2**20, f"{grown / 2**20:.1f} MiB more after {2 * times} pools"
    assert psutil.Process().num_threads() <= threads


# one context that is left behind is found among a few pools; what is lost with each, among many
@pytest.mark.parametrize("times", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_memory_stays_flat_over_pools_that_draw(times: int) -> None:
    run_in_child(assert_memory_stays_flat, times)


LEFT_OPEN = """
import rollouts
small = dict(from_pixels=True, width=32, height=32)
env = rollouts.make_vec("Hopper-v5", 4, batch_size=2, num_threads=2, **small)
env.async_reset()
obs, *_ = env.recv()
print(obs.shape)
other = rollouts.make_vec("Hopper-v5", 2, **small)
other.reset()
print(other.render()[0].shape)
"""


def test_a_process_ends_quietly_whose_pools_are_open() -> None:
    assert run_drawing(LEFT_OPEN) == ("(2, 32, 32, 3)\n(32, 32, 3)\n", "")


FORK = """
import os, warnings
warnings.simplefilter("ignore")
import rollouts
def draw():
    with rollouts.make_vec("Hopper-v5", 2, from_pixels=True, width=32, height=32) as env:
        return env.reset()[0].shape
def in_child():
    pid = os.fork()
    if pid == 0:
        try:
            print("child", draw(), flush=True)
        except rollouts.errors.EngineError as error:
            print("child", error, flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
in_child()
env = rollouts.make_vec("Hopper-v5", 2, from_pixels=True, width=32, height=32)
print("parent", env.reset()[0].shape, flush=True)
in_child()
if os.fork() == 0:
    env.close()
    print("closed", env.closed, flush=True)
    os._exit(0)
os.wait()
print("parent", env.step(env.action_space.sample())[0].shape, flush=True)
env.close()
"""


def test_a_fork_draws_if_its_parent_did_not_and_else_says_why() -> None:
    first, parent, second, third, last = run_drawing(FORK)[0].splitlines()
    assert first == "child (2, 32, 32, 3)"
    assert parent == last == "parent (2, 32, 32, 3)"
    assert "was forked from one that has drawn" in second
    assert third == "closed True"


MISSING = """
import rollouts
try:
    rollouts.make_vec("Hopper-v5", from_pixels=True)
except rollouts.errors.EngineError as error:
    print(error)
"""


def test_drawing_turned_off_is_an_error_at_once() -> None:
    out, _ = run_drawing(MISSING, MUJOCO_GL="disable")
    assert "MUJOCO_GL is 'disable'" in out and "libegl1" in out and "libosmesa6" in out


def test_a_device_that_is_not_there_is_an_error_at_once() -> None:
    out, _ = run_drawing(MISSING, MUJOCO_GL="egl", MUJOCO_EGL_DEVICE_ID="77")
    assert "MUJOCO_EGL_DEVICE_ID is 77" in out and "libegl1" in out
