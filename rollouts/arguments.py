# SPDX-License-Identifier: Apache-2.0
"""Checks of what users pass to a VectorEnv, and the layout of what Gymnasium expects back."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rollouts.errors import DTypeError, SpecError

Array = npt.NDArray[Any]
Info = dict[str, Any]

_AUTORESET_MODES = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}


def add_final(info: Info, final_obs: Array, ended: Array) -> None:
    """Adds final_obs and final_info in Gymnasium's layout; rows without an end are empty."""
    # an object array, because Gymnasium's wrappers expect None where no episode ended
    rows = np.full(len(ended), None, dtype=object)
    for row in np.flatnonzero(ended):
        rows[row] = final_obs[row]
    final_info: Info = {}
    for name, values in info.items():
        final_info[name] = np.where(ended, values, np.zeros((), values.dtype))
        final_info[f"_{name}"] = ended
    info["final_obs"], info["_final_obs"] = rows, ended
    info["final_info"], info["_final_info"] = final_info, ended


def as_bytes(states: Sequence[bytes | bytearray | memoryview]) -> list[bytes]:
    """Copies saved states that may change while they are loaded."""
    if isinstance(states, (bytes, bytearray, memoryview)):
        raise DTypeError("state is a single state, expected a sequence of one per environment")
    result = []
    for index, state in enumerate(states):
        try:
            # a copy of what may change while it is loaded
            result.append(state if type(state) is bytes else memoryview(state).tobytes())
        except TypeError:
            raise DTypeError(
                f"state {index} is of type {type(state).__name__}, expected bytes of get_state"
            ) from None
    return result


def int_between(name: str, value: object, low: int, high: int) -> int:
    """Returns `value` as an int; SpecError names the argument when it is none or outside."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise SpecError(f"{name} must be an int from {low} to {high}, got {value!r}") from None
    if not low <= number <= high:
        raise SpecError(f"{name} must be from {low} to {high}, got {number}")
    return number


def seed_value(value: object) -> int:
    """Returns a seed of the native core: 64 bits, not negative."""
    return int_between("seed", value, 0, 2**64 - 1)


def to_autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """Reads Gymnasium's enum or the name of one of its members."""
    if isinstance(mode, AutoresetMode):
        return mode
    if isinstance(mode, str) and mode.lower() in _AUTORESET_MODES:
        return _AUTORESET_MODES[mode.lower()]
    raise SpecError(f"autoreset_mode must be one of {sorted(_AUTORESET_MODES)}, got {mode!r}")
