# SPDX-License-Identifier: Apache-2.0
"""The arguments of kernels, as ctypes structures.

They mirror `EnvLaunch` of native/include/rollouts/device/env_kernels.h and `WorldLaunch` of
world_launch.h.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum

MAX_INFOS = 12  # EnvSpec::kMaxInfos
MAX_GROUPS = 8  # EnvSpec::kMaxGroups


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
    LAYOUT = 4
    POLICY = 5


def pointers(*names: str) -> list[tuple[str, type[ctypes.c_void_p]]]:
    """Members of a ctypes structure that hold addresses."""
    return [(name, ctypes.c_void_p) for name in names]


class ClockColumns(ctypes.Structure):
    """Arrays of all clocks."""

    _fields_ = pointers(
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
    """Arrays for a batch's rows."""

    _fields_ = [
        *pointers(
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
    """Arrays of totals over episodes."""

    _fields_ = pointers("episodes", "lengths", "returns")


class Launch(ctypes.Structure):
    """The arguments of a launch."""

    @property
    def takes_many_steps(self) -> bool:
        """Tells if the launch calls the kernel's last entry point instead of the first."""
        return False


class EnvLaunch(Launch):
    """The arguments of a launch over light environments."""

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

    @property
    def takes_many_steps(self) -> bool:
        return bool(self.num_steps > 1)


class GroupRows(ctypes.Structure):
    """Arrays for the rows of a group of agents."""

    _fields_ = pointers(
        "obs", "final_obs", "reward", "terminated", "truncated", "active", "episode_return"
    )


class WorldRows(ctypes.Structure):
    """Arrays for the rows of worlds."""

    _fields_ = [*pointers("ended", "episode_length"), ("groups", GroupRows * MAX_GROUPS)]


class TeamMemory(ctypes.Structure):
    """The layout of a team's shared memory."""

    _fields_ = [
        (name, ctypes.c_int32) for name in ("bytes", "actions", "world", "obs", "obs_rows", "sums")
    ]


class WorldLaunch(Launch):
    """The arguments of a launch over worlds of agents."""

    _fields_ = [
        ("num_envs", ctypes.c_int64),
        ("configs", ctypes.c_void_p),
        ("config_stride", ctypes.c_int64),
        ("tables", ctypes.c_void_p),
        ("table_stride", ctypes.c_int64),
        ("worlds", ctypes.c_void_p),
        ("world_bytes", ctypes.c_int64),
        ("groups", ctypes.c_void_p),
        ("num_groups", ctypes.c_int32),
        ("num_agents", ctypes.c_int32),
        ("clock", ClockColumns),
        ("rules", StepRules),
        ("commands", ctypes.c_void_p),
        ("command", ctypes.c_int32),
        ("num_steps", ctypes.c_int32),
        ("actions", ctypes.c_void_p * MAX_GROUPS),
        ("taken", ctypes.c_void_p * MAX_GROUPS),
        ("action_bytes", ctypes.c_int32 * MAX_GROUPS),
        ("action_source", ctypes.c_int32),
        ("record_steps", ctypes.c_int32),
        ("action_seed", ctypes.c_uint64),
        ("action_step", ctypes.c_int64),
        ("action_memory", ctypes.c_void_p),
        ("rows", WorldRows),
        ("totals", EpisodeTotals),
        ("fault", ctypes.c_void_p),
        ("team_size", ctypes.c_int32),
        ("memory", TeamMemory),
    ]
