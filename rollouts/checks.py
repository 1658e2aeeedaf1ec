# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments of a VectorEnv, and conversion of results to Gymnasium's layout."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rollouts.errors import DTypeError, SpecError
from rollouts.specs import OptionValue

Array = npt.NDArray[Any]
Info = dict[str, Any]

_AUTORESET_MODES = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}


def add_errors(info: Info, env_id: Array, failures: Sequence[tuple[int, str]]) -> None:
    """Adds env_error in Gymnasium's layout if an environment failed."""
    if not failures:
        return
    errors = np.full(len(env_id), None, dtype=object)
    for failed, message in failures:
        errors[env_id == failed] = message
    info["env_error"] = errors
    info["_env_error"] = np.isin(env_id, [failed for failed, _ in failures])


def as_bytes(states: Sequence[bytes | bytearray | memoryview]) -> list[bytes]:
    """Copies saved states that may change while they are loaded."""
    if isinstance(states, (bytes, bytearray, memoryview)):
        raise DTypeError("state is a single state, expected a sequence of one per environment")
    if not isinstance(states, Iterable) or _is_scalar(states):
        raise DTypeError(
            f"state must be a sequence of one saved state per environment, got {states!r}"
        )
    result = []
    for index, state in enumerate(states):
        try:
            # a copy, because the state may change while it is loaded
            result.append(state if type(state) is bytes else memoryview(state).tobytes())
        except (TypeError, ValueError):  # NumPy's dates raise ValueError
            raise DTypeError(
                f"state {index} is of type {type(state).__name__}, expected bytes of get_state"
            ) from None
    return result


def option_columns(
    options: Mapping[str, Any], num_envs: int
) -> dict[str, OptionValue | list[OptionValue]]:
    """Reads options that may differ by environment: single values, and lists of num_envs.

    Raises:
      SpecError: Not num_envs values, or an array of more than one axis.
    """
    return {name: _option_column(name, value, num_envs) for name, value in options.items()}


def _option_column(name: str, value: Any, num_envs: int) -> OptionValue | list[OptionValue]:
    expected = f"expected a single value or one for each of the {num_envs} environments"
    if isinstance(value, np.ndarray):
        if value.ndim > 1:
            raise SpecError(f"option {name!r} has shape {value.shape}, {expected}")
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        return _plain(value)
    if len(value) != num_envs:
        raise SpecError(f"option {name!r} has {len(value)} values, {expected}")
    # a single value steps faster than a list
    return _plain(value[0]) if len(value) == 1 else [_plain(each) for each in value]


def option_array(column: Sequence[OptionValue | None]) -> OptionValue | Array | None:
    """The value that all share, else an array of them; with dtype object if some are None."""
    if all(value == column[0] for value in column):
        return column[0]
    return np.array(column, dtype=object if None in column else None)


def first_value(name: str, value: Any) -> OptionValue:
    """The first environment's value of an option that may be given per environment.

    Raises:
      SpecError: A sequence without values, or an array of more than one axis.
    """
    count = max(1, len(value)) if isinstance(value, (list, tuple)) else max(1, np.size(value))
    column = _option_column(name, value, count)
    return column[0] if isinstance(column, list) else column


def _plain(value: Any) -> OptionValue:
    # the native core checks the type, and takes Python's bool but not NumPy's
    return value.item() if isinstance(value, np.generic) else value  # type: ignore[no-any-return]


def _is_scalar(value: object) -> bool:
    # NumPy's arrays without axes raise in len(), although their class defines it
    return not hasattr(value, "__len__") or getattr(value, "shape", None) == ()


def whole_number(name: str, value: object, low: int, high: int | None = None) -> int:
    """Returns `value` as an int; SpecError names the argument if it is not an int in the range.

    True and False are refused, and so is 2.0.
    """
    try:
        number = low - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = low - 1
    if number < low or (high is not None and number > high):
        bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise SpecError(f"{name} is {value!r}, expected a whole number {bounds}")
    return number


def share(name: str, value: object, least: float = 0) -> None:
    """Raises SpecError unless `value` is a number from `least` to 1."""
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if isinstance(value, bool) or not is_number or not least <= value <= 1:  # type: ignore[operator]
        raise SpecError(f"{name} is {value!r}, expected a share from {least} to 1")


def one_of(name: str, value: object, choices: Sequence[str]) -> int:
    """Returns the index of `value` in `choices`; raises SpecError if it is none of them."""
    if isinstance(value, str) and value in choices:
        return choices.index(value)
    raise SpecError(f"{name} must be one of {list(choices)}, got {value!r}")


def seed_value(value: object) -> int:
    """Returns a seed for the native core: 64 bits, not negative."""
    return whole_number("seed", value, 0, 2**64 - 1)


def seed_list(seed: int | Sequence[int | None] | None, num_envs: int) -> list[int | None]:
    """Reads the seed of `reset`: one for each environment, or None for each."""
    if seed is None:
        return []
    if hasattr(seed, "__index__") and not isinstance(seed, Sequence) and _is_scalar(seed):
        return [seed_value(seed)] * num_envs
    expected = f"expected an int or one entry for each of the {num_envs} environments"
    if not isinstance(seed, (Sequence, np.ndarray)) or _is_scalar(seed):
        raise SpecError(f"seed is {seed!r}, {expected}")
    if len(seed) != num_envs:
        raise SpecError(f"seed has {len(seed)} entries, {expected}")
    return [None if one is None else seed_value(one) for one in seed]


def options_dict(options: object) -> Mapping[Any, Any]:
    """Returns the options of `reset`, empty for None; raises DTypeError for anything but a dict."""
    if options is None:
        return {}
    if isinstance(options, Mapping):
        return options
    raise DTypeError(f"reset's options must be a dict such as {{'gravity': 12.0}}, got {options!r}")


def seconds(name: str, value: object) -> float | None:
    """Returns a time to wait; raises DTypeError unless it is a number or None."""
    if value is None:
        return None
    if isinstance(value, (int, float, np.integer, np.floating)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    raise DTypeError(f"{name} must be a number of seconds, or None to wait for ever, got {value!r}")


def flag(name: str, value: object) -> bool:
    """Returns `value` as a bool; DTypeError names the argument if it is not one."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise DTypeError(f"{name} must be True or False, got {value!r}")


def check_source(source: object) -> None:
    """Raises DTypeError if a source of batches cannot be called."""
    if not callable(source):
        hint = ": give its collect" if hasattr(source, "collect") else ""
        raise DTypeError(
            f"source is {source!r}, expected a function of timeout_s that returns the next "
            f"batch{hint}"
        )


def to_autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """Reads Gymnasium's enum, or the name or value of one of its members."""
    if isinstance(mode, AutoresetMode):
        return mode
    if isinstance(mode, str):
        if mode.lower() in _AUTORESET_MODES:
            return _AUTORESET_MODES[mode.lower()]
        for member in AutoresetMode:
            if mode == member.value:
                return member
    raise SpecError(f"autoreset_mode must be one of {sorted(_AUTORESET_MODES)}, got {mode!r}")


def check_collects(policy: Any, arrays: Any, why_not: str) -> None:
    """Raises SpecError if a pool has no `collect`, or gets no native policy or no arrays."""
    if not hasattr(policy, "refresh"):
        raise SpecError(
            f"policy is {policy!r}, expected a rollouts.NativePolicy: rollouts.Collector calls "
            "collect, and takes any policy"
        )
    missing = [name for name in ("obs", "reward") if name not in (arrays or ())]
    if missing:
        raise SpecError(f"arrays lack {missing[0]!r}, expected those that collect describes")
    if why_not:
        raise SpecError(f"this pool does not collect by itself: {why_not}")
