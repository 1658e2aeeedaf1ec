# SPDX-License-Identifier: Apache-2.0
"""The arguments of a policy's kernel, as ctypes structures.

They mirror native/include/rollouts/policy/policy_launch.h, which describes the members.
"""

from __future__ import annotations

import ctypes
from typing import ClassVar

from rollouts.envs.kernel.launch_args import ClockColumns, Launch, pointers


class HeadArgs(ctypes.Structure):
    """`policy::Head`."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("deterministic", ctypes.c_bool),
        ("epsilon", ctypes.c_float),
        ("damping", ctypes.c_float),
        ("seed", ctypes.c_uint64),
    ]


class OutputPlace(ctypes.Structure):
    """The rows of scratch memory that an output takes."""

    _fields_ = [("row", ctypes.c_int32), ("size", ctypes.c_int32)]


class DenseLayerArgs(ctypes.Structure):
    """A linear layer of a network on tensor cores."""

    _fields_ = [
        ("reads_obs", ctypes.c_int32),
        ("input", ctypes.c_int32),
        ("in_blocks", ctypes.c_int32),
        ("out_blocks", ctypes.c_int32),
        ("output", ctypes.c_int32),
        ("output_row", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("activation", ctypes.c_int32),
    ]


class DenseNetworkArgs(ctypes.Structure):
    """`policy::DenseNetwork`: all layers of a network on tensor cores."""

    _fields_ = [
        *pointers("layers", "weights", "biases"),
        ("num_layers", ctypes.c_int32),
        ("hidden_blocks", ctypes.c_int32),
        ("num_outputs", ctypes.c_int32),
        ("warp_bytes", ctypes.c_int32),
    ]


class KernelPolicy(ctypes.Structure):
    """The policy: its program and its head."""

    _fields_ = [
        *pointers("instructions", "params", "nvec", "states", "initial", "bounds"),
        ("head", HeadArgs),
        ("num_instructions", ctypes.c_int32),
        ("num_rows", ctypes.c_int32),
        ("num_elements", ctypes.c_int32),
        ("num_states", ctypes.c_int32),
        ("obs_size", ctypes.c_int32),
        ("state_size", ctypes.c_int32),
        ("first", OutputPlace),
        ("second", OutputPlace),
        ("value", OutputPlace),
        ("dense", DenseNetworkArgs),
    ]


class KernelAgents(ctypes.Structure):
    """The agents for which the policy acts."""

    _fields_ = [
        ("num_agents", ctypes.c_int32),
        ("first_agent", ctypes.c_int32),
        ("all_agents", ctypes.c_int32),
    ]


class SeenRows(ctypes.Structure):
    """The results of the last step."""

    _fields_ = pointers(
        "terminated", "truncated", "active", "ended", "final_obs", "bootstrap_value"
    )


class ChosenRows(ctypes.Structure):
    """The arrays that get the next actions."""

    _fields_ = pointers(
        "action",
        "env_action",
        "low",
        "high",
        "log_prob",
        "value",
        "entropy",
        "inputs",
        "policy_state",
    )


class FragmentArrays(ctypes.Structure):
    """`rollouts::Fragment<float>` of all rows."""

    _fields_ = [
        ("steps", ctypes.c_int64),
        ("envs", ctypes.c_int64),
        *pointers("reward", "value", "terminated", "truncated", "bootstrap_value", "last_value"),
        ("row", ctypes.c_int64),
    ]


class ReturnsRows(ctypes.Structure):
    """Returns of a whole rollout, and the rule by which they are estimated."""

    _fields_ = [
        ("fragment", FragmentArrays),
        *pointers("advantage", "target"),
        ("gamma", ctypes.c_double),
        ("gae_lambda", ctypes.c_double),
        ("n", ctypes.c_int64),
    ]


class PolicyLaunch(Launch):
    """The arguments of a launch over a policy's rows."""

    _fields_: ClassVar = [
        ("num_rows", ctypes.c_int64),
        ("policy", KernelPolicy),
        ("agents", KernelAgents),
        ("clock", ClockColumns),
        *pointers("obs", "state", "begins", "scratch"),
        ("scratch_rows", ctypes.c_int64),
        ("seen", SeenRows),
        ("chosen", ChosenRows),
        *pointers("last_value"),
        ("returns", ReturnsRows),
        *pointers("fault"),
    ]
