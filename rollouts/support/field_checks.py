# SPDX-License-Identifier: Apache-2.0
"""Checks of the fields of options: numbers, choices, what Ray reserves for an actor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

from rollouts.errors import SpecError

Options = TypeVar("Options")

# Ray's placement of actors: on few nodes or on many; the STRICT_ forms fail where that is
# impossible
Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


def check_type(name: str, value: object, expected: type[Options], example: str) -> None:
    """Raises SpecError unless an argument is an `expected`; `example` shows how to write one."""
    if not isinstance(value, expected):
        article = "an" if expected.__name__[0] in "AEIOU" else "a"
        raise SpecError(
            f"{name} is {value!r}, expected {article} {expected.__name__} such as {name}={example}"
        )


def check_seconds(name: str, value: Any, minimum: float) -> None:
    """Raises SpecError unless `value` is a number of seconds of at least `minimum`."""
    if not (is_number(value) and value >= minimum):
        raise SpecError(f"{name} is {value!r} s, expected at least {minimum:g} s")


def check_one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raises SpecError unless `value` is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise SpecError(f"{name} is {value!r}, expected one of {choices}")


def check_cpus(name: str, value: Any) -> None:
    """Raises SpecError unless `value` is a number of CPUs that Ray can reserve."""
    if not (is_number(value) and 0 <= value < math.inf):
        raise SpecError(f"{name} is {value!r}, expected at least 0")


def check_gpus(name: str, value: Any) -> None:
    """Raises SpecError unless `value` is a number of GPUs that Ray can reserve."""
    if not (is_number(value) and 0 <= value < math.inf) or (value > 1 and value % 1):
        raise SpecError(
            f"{name} is {value!r}, expected a fraction below 1 or a whole number of GPUs"
        )


def check_nodes(owner: str, strategy: object, node_labels: object) -> None:
    """Raises SpecError unless `strategy` is one of Ray's and `node_labels` is a dict."""
    if strategy is not None and (
        not isinstance(strategy, str) or strategy not in get_args(Strategy)
    ):
        raise SpecError(
            f"{owner}.strategy is {strategy!r}, expected None or one of {get_args(Strategy)}"
        )
    if not isinstance(node_labels, Mapping):
        raise SpecError(
            f"{owner}.node_labels is {node_labels!r}, expected a dict of labels such as "
            "{'zone': 'b'}"
        )


def is_number(value: object) -> bool:
    """Tells if `value` is a real number, of Python or NumPy; True and False do not count."""
    return (
        not isinstance(value, bool)
        and (hasattr(value, "__float__") or hasattr(value, "__index__"))
        and getattr(value, "shape", ()) == ()
    )
