# SPDX-License-Identifier: Apache-2.0
"""Pools step without the mujoco package's timer; what users time is timed as before."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.system

# a process of its own for each case: the timer is one of the process
BEGINNING = """
import ctypes, pathlib
import mujoco, numpy as np, rollouts

library = ctypes.CDLL(str(next(pathlib.Path(mujoco.__file__).parent.glob("libmujoco.*"))))
timer = ctypes.c_void_p.in_dll(library, "mjcb_time")
packages = timer.value
assert packages
model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
)
calls = []

def count():
    calls.append(1)
    return float(len(calls))

def step_pool(env_id, **options):
    with rollouts.make_vec(env_id, 2, num_threads=1, seed=0, **options) as env:
        env.reset()
        for _ in range(3):
            env.step(np.zeros(env.action_space.shape, np.float32))

def timed():
    data = mujoco.MjData(model)
    for _ in range(10):
        mujoco.mj_step(model, data)
    return data.timer[mujoco.mjtTimer.mjTIMER_STEP].duration

"""


def run(code: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", BEGINNING + code], capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr[-3000:]


@pytest.mark.parametrize(
    "pool", ["'Hopper-v5'", "'WalkerRun-v1'", "'MuJoCo-v0', xml_file='hopper.xml'"]
)
def test_a_pool_steps_without_the_timer_of_the_package(pool: str) -> None:
    run(f"step_pool({pool})\nassert timer.value != packages")


def test_simulations_of_the_user_are_timed_beside_pools() -> None:
    run(
        "assert timed() > 0\n"
        "step_pool('Hopper-v5')\n"
        "assert timed() > 0\n"
        "assert mujoco.get_mjcb_time() is None\n"
        "with rollouts.make_vec('Hopper-v5', 64, num_threads=2, seed=0) as env:\n"
        "    env.async_reset()\n"
        "    assert timed() > 0\n"
    )


def test_a_callback_of_the_user_is_called_in_pools_and_elsewhere() -> None:
    run(
        "mujoco.set_mjcb_time(count)\n"
        "step_pool('Hopper-v5')\n"
        "before = len(calls)\n"
        "assert before > 100\n"
        "assert mujoco.get_mjcb_time() is count\n"
        "assert timed() > 0 and len(calls) > before\n"
    )


def test_a_callback_set_between_steps_is_kept_until_it_is_taken_away() -> None:
    run(
        "step_pool('Hopper-v5')\n"
        "mujoco.set_mjcb_time(count)\n"
        "step_pool('Hopper-v5')\n"
        "assert calls\n"
        "mujoco.set_mjcb_time(None)\n"
        "assert timer.value == packages\n"
        "step_pool('Hopper-v5')\n"
        "assert timer.value != packages and timed() > 0\n"
    )


def test_a_callback_that_is_there_before_the_first_pool_does_not_keep_the_timer() -> None:
    run(
        "mujoco.set_mjcb_time(count)\n"
        "step_pool('Hopper-v5')\n"
        "mujoco.set_mjcb_time(None)\n"
        "step_pool('Hopper-v5')\n"
        "assert timer.value != packages and timed() > 0\n"
    )


def test_a_function_of_another_library_is_no_timer_of_the_package() -> None:
    run(
        "own = ctypes.CFUNCTYPE(ctypes.c_double)(count)\n"
        "timer.value = address = ctypes.cast(own, ctypes.c_void_p).value\n"
        "step_pool('Hopper-v5')\n"
        "assert timer.value == address and calls\n"
    )
