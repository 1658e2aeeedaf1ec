# SPDX-License-Identifier: Apache-2.0
"""`EnvLaunch` of native/include/rollouts/device/env_kernels.h, as ctypes has it."""

from __future__ import annotations

import ctypes
from enum import IntEnum

MAX_INFOS = 12  # EnvSpec::kMaxInfos


class Command(IntEnum):
    """`rollouts::Command`."""

    STEP = 0
    RESET = 1
    OBSERVE = 2


class ActionSource(IntEnum):
    """`rollouts::ActionSource`."""

    GIVEN = 0
    SEQUENCE = 1
    RANDOM = 2


class Fault(IntEnum):
    """`rollouts::Fault`."""

    NOT_FINITE = 1
    NO_SUCH_ACTION = 2
    ENDED = 3


def _pointers(*names: str) -> list[tuple[str, type[ctypes.c_void_p]]]:
    return [(name, ctypes.c_void_p) for name in names]


class ClockColumns(ctypes.Structure):
    """Arrays of all clocks."""

    _fields_ = _pointers(
        "seed",
        "env_id",
        "next_episode",
        "draws",
        "elapsed_steps",
        "episode_return",
        "ended",
        "stream_id",
    )


class StepRules(ctypes.Structure):
    """`rollouts::StepRules`."""

    _fields_ = [("autoreset", ctypes.c_int32), ("max_episode_steps", ctypes.c_int32)]


class DeviceRows(ctypes.Structure):
    """Arrays that rows are written to."""

    _fields_ = [
        *_pointers(
            "obs",
            "final_obs",
            "reward",
            "terminated",
            "truncated",
            "episode_return",
            "episode_length",
        ),
        ("infos", ctypes.c_void_p * MAX_INFOS),
        ("begun_infos", ctypes.c_void_p * MAX_INFOS),
    ]


class EpisodeTotals(ctypes.Structure):
    """Arrays of what episodes came to."""

    _fields_ = _pointers("episodes", "lengths", "returns")


class EnvLaunch(ctypes.Structure):
    """What a launch does."""

    _fields_ = [
        ("num_envs", ctypes.c_int64),
        ("configs", ctypes.c_void_p),
        ("config_stride", ctypes.c_int64),
        ("states", ctypes.c_void_p),
        ("clock", ClockColumns),
        ("rules", StepRules),
        ("commands", ctypes.c_void_p),
        ("command", ctypes.c_int32),
        ("num_steps", ctypes.c_int32),
        ("actions", ctypes.c_void_p),
        ("action_bytes", ctypes.c_int32),
        ("action_source", ctypes.c_int32),
        ("action_seed", ctypes.c_uint64),
        ("action_step", ctypes.c_int64),
        ("taken", ctypes.c_void_p),
        ("record_steps", ctypes.c_int64),
        ("rows", DeviceRows),
        ("totals", EpisodeTotals),
        ("fault", ctypes.c_void_p),
    ]
