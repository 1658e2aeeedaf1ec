# SPDX-License-Identifier: Apache-2.0
"""Options of environments as users write them, read once for `make_vec`, `env_spec` and `reset`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rollouts.checks import first_value, option_columns
from rollouts.envs.wrappers import refuse, split_wrappers
from rollouts.errors import SpecError
from rollouts.own_model.model_options import PortableFunction, split_functions
from rollouts.rendering.frame_options import split_options
from rollouts.rendering.pixels import asks_for_pixels
from rollouts.specs import OptionValue

_RANGE = "_range"
# the ends of a range, as the native core names them
_HALVES = ("_min", "_max")


# one value for all environments, or a list with one for each
Columns = Mapping[str, OptionValue | list[OptionValue]]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of environments, grouped by the code that reads them.

    Attributes:
      native: Options of the native core: one value for all environments, or a list of N.
      functions: Options of MuJoCo-v0 that are functions, which run once per batch.
      frames: Options of frames, by Gymnasium's names.
      model: Fields of MuJoCo's model that differ from its file; None where they are not given.
      wrappers: Options of wrappers, see `rollouts.envs.wrappers`.
    """

    native: Columns
    functions: dict[str, PortableFunction]
    frames: dict[str, Any]
    model: Any = None
    wrappers: dict[str, Any] = field(default_factory=dict)

    @property
    def from_pixels(self) -> bool:
        """Tells if observations are images."""
        return asks_for_pixels(self.native)

    def as_given(self) -> dict[str, Any]:
        """Options from which `read_options` makes an equal object."""
        model = {} if self.model is None else {"model": self.model}
        return {**self.native, **self.functions, **self.frames, **model, **self.wrappers}


def read_options(given: Mapping[str, Any], num_envs: int, *, own_model: bool) -> Options:
    """Groups options by the code that reads them, each in the form that this code takes.

    Args:
      given: Options by their names in Gymnasium or EnvPool.
      num_envs: N.
      own_model: Whether they are options of MuJoCo-v0.

    Raises:
      SpecError: Not one value or N, a range that is no pair, or an option given twice.
      DTypeError: A function of MuJoCo-v0 that cannot be called, or names that are no str.
    """
    read = _by_reader(given, num_envs, own_model)
    return replace(read, native=option_columns(read.native, num_envs))


def first_options(
    given: Mapping[str, Any], *, own_model: bool
) -> tuple[dict[str, OptionValue], dict[str, Any]]:
    """The first environment's native options, and options of frames, for any num_envs.

    Otherwise as read_options.
    """
    read = _by_reader(given, None, own_model)
    return {name: first_value(name, value) for name, value in read.native.items()}, read.frames


def _by_reader(given: Mapping[str, Any], num_envs: int | None, own_model: bool) -> Options:
    wrappers, others = split_wrappers(given)
    frames, others = split_options(others)
    model = others.pop("model", None)
    plain, functions = split_functions(others, own_model)
    if own_model:
        why = "MuJoCo-v0's functions tell rewards after the step; wrap it by Gymnasium's wrappers"
        refuse(wrappers, why)
    return Options(_without_ranges(plain, num_envs), functions, frames, model, wrappers)


def _without_ranges(options: Mapping[str, Any], num_envs: int | None) -> dict[str, Any]:
    """Turns options into the form of the native core: no ranges, one value each.

    Gymnasium's `healthy_z_range=(0.2, 1.0)` becomes `healthy_z_min=0.2, healthy_z_max=1.0`, and its
    `main_body=1` becomes "1". A range is a pair (low, high), or one for each environment: an (N, 2)
    array or a sequence of N pairs.
    """
    result: dict[str, Any] = {}
    for name, value in options.items():
        if name.endswith(_RANGE):
            stem = name.removesuffix(_RANGE)
            low, high = _low_and_high(name, value, num_envs)
            check_order(name, value, low, high)
            for half, part in ((f"{stem}_min", low), (f"{stem}_max", high)):
                if half in options:
                    raise SpecError(f"options {name!r} and {half!r} say the same: leave out one")
                result[half] = part
        elif name == "main_body":
            result[name] = _as_text(value)
        else:
            result[name] = value
    return result


def check_halves(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raises SpecError where the lower end of a range, given or by default, is above the upper."""
    for low_name, high_name in sorted(set(filter(None, map(_pair_of, given)))):
        names = (low_name, high_name)
        if not all(name in given or name in defaults for name in names):
            continue
        low, high = (given.get(name, defaults.get(name)) for name in names)
        alone = [name for name in names if name in given]
        if len(alone) == 1 and _is_above(low, high):
            other = high_name if alone == [low_name] else low_name
            raise SpecError(
                f"option {alone[0]} is {given[alone[0]]!r}, and {other} is {defaults[other]!r} "
                f"where it is not given, so that the low is above the high: give {other}, too"
            )
        check_order(" and ".join(names), (low, high), low, high)


def _pair_of(name: str) -> tuple[str, str] | None:
    """Names of both ends of an option's range: x_min and x_max, or min_x and max_x."""
    if name.endswith(_HALVES):
        return name[:-3] + "min", name[:-3] + "max"
    if name.startswith(("min_", "max_")):
        return "min" + name[3:], "max" + name[3:]
    return None


def check_order(name: str, value: object, low: Any, high: Any) -> None:
    """Raises SpecError where `low` is above `high` in an environment, and no other errors."""
    if _is_above(low, high):
        raise SpecError(f"option {name} is {value!r}, whose low is above its high: turn it round")


def _is_above(low: Any, high: Any) -> bool:
    try:
        return bool(np.any(np.asarray(low, np.float64) > np.asarray(high, np.float64)))
    except (TypeError, ValueError):
        return False


def _low_and_high(name: str, value: Any, num_envs: int | None) -> tuple[Any, Any]:
    """The halves of a range, or of a range for each environment."""
    try:
        pairs = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    if pairs.shape == (2,):
        return float(pairs[0]), float(pairs[1])
    if pairs.ndim == 2 and pairs.shape[1] == 2 and num_envs in (None, len(pairs)):
        return pairs[:, 0], pairs[:, 1]
    count = "N" if num_envs is None else num_envs
    raise SpecError(
        f"option {name!r} must be a pair (low, high), or one pair for each of the {count} "
        f"environments, got {value!r}"
    )


def _as_text(value: Any) -> Any:
    """Numbers of bodies as the text that the native core reads; lists element by element."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_as_text(each) for each in value]
    is_number = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return str(value) if is_number else value
