# SPDX-License-Identifier: Apache-2.0
"""The launch of a MuJoCo task's kernel, as a ctypes structure.

It mirrors `TaskLaunch` of native/include/rollouts/device/task_kernel.h.
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
    DRAW = 4
    PLACE = 5
    FINISH = 6


class TaskRows(ctypes.Structure):
    """`rollouts::TaskRows`: an array with a row for each world, or with one for all."""

    _fields_: ClassVar = [("first", ctypes.c_void_p), ("stride", ctypes.c_int64)]


# sizes of a model, arrays that all worlds share, and arrays with rows
MODEL_SIZES = (
    *("nq", "nv", "nu", "na", "nbody", "ngeom", "nsite", "ntendon", "njnt", "nsensordata"),
)
MODEL_SHARED = ("jnt_type", "jnt_qposadr", "jnt_dofadr", "jnt_limited", "geom_bodyid")
MODEL_ROWS = (
    *("qpos0", "gravity", "body_mass", "body_subtreemass", "body_pos", "body_quat", "jnt_range"),
    *("jnt_stiffness", "geom_size", "geom_pos", "geom_quat", "site_size", "site_pos"),
    "actuator_ctrlrange",
)
DATA_ROWS = (
    *("qpos", "qvel", "act", "ctrl", "xpos", "xquat", "xmat", "xipos", "geom_xpos", "geom_xmat"),
    *("site_xpos", "site_xmat", "sensordata", "subtree_com", "cinert", "cvel", "cfrc_ext"),
    *("qfrc_actuator", "qfrc_constraint", "ten_length", "ten_velocity"),
)


class TaskModelArrays(ctypes.Structure):
    """Sizes and arrays of models."""

    _fields_: ClassVar = [
        *((name, ctypes.c_int32) for name in MODEL_SIZES),
        *pointers(*MODEL_SHARED, "start_qpos"),
        ("start_qpos_stride", ctypes.c_int64),
        *((name, TaskRows) for name in MODEL_ROWS),
    ]


class TaskDataArrays(ctypes.Structure):
    """Arrays of simulations, by their names."""

    _fields_: ClassVar = [(name, TaskRows) for name in DATA_ROWS]


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
        *pointers("draws", "broken", "placed"),
        ("results", TaskResults),
        ("phase", ctypes.c_int32),
        ("frame_skip", ctypes.c_int32),
        ("num_infos", ctypes.c_int32),
        ("obs_size", ctypes.c_int32),
    ]
