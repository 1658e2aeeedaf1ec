# SPDX-License-Identifier: Apache-2.0
"""The launch of a MuJoCo task's kernel, as ctypes has it.

`TaskLaunch` of native/include/rollouts/device/task_kernel.h.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import ClassVar

from rollouts.envs.kernel.launch_args import ClockColumns, Launch, pointers


class TaskPhase(IntEnum):
    """`rollouts::TaskPhase`."""

    START = 0
    RESET = 1
    STEP = 2
    OBSERVE = 3


class TaskModelArrays(ctypes.Structure):
    """Sizes and arrays of models."""

    _fields_: ClassVar = [
        *((name, ctypes.c_int32) for name in ("nq", "nv", "nu", "nbody", "nsite", "ntendon")),
        *pointers("start_qpos", "qpos0", "body_mass"),
        *(
            (name, ctypes.c_int64)
            for name in ("start_qpos_stride", "qpos0_stride", "body_mass_stride")
        ),
    ]


class TaskDataArrays(ctypes.Structure):
    """Arrays of simulations, by their names."""

    _fields_ = pointers(
        *("qpos", "qvel", "ctrl", "xpos", "xipos", "site_xpos", "cinert", "cvel", "cfrc_ext"),
        *("qfrc_actuator", "qfrc_constraint", "ten_length", "ten_velocity"),
    )


class TaskResults(ctypes.Structure):
    """Arrays that a task writes."""

    _fields_ = pointers("before", "reward", "terminated", "infos", "obs")


class TaskLaunch(Launch):
    """A launch over a task's worlds."""

    _fields_: ClassVar = [
        ("num_envs", ctypes.c_int64),
        *pointers("marked", "task", "configs", "timestep", "starts"),
        ("model", TaskModelArrays),
        ("data", TaskDataArrays),
        ("clock", ClockColumns),
        *pointers("draws", "broken"),
        ("results", TaskResults),
        ("phase", ctypes.c_int32),
        ("frame_skip", ctypes.c_int32),
        ("num_infos", ctypes.c_int32),
        ("obs_size", ctypes.c_int32),
    ]
