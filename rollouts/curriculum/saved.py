# SPDX-License-Identifier: Apache-2.0
"""States of schedulers in the form of `Checkpoint.training`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rollouts.errors import SpecError


def random_state(generator: np.random.Generator) -> str:
    """Returns the state of a generator as text."""
    return json.dumps(generator.bit_generator.state)


def generator_of(text: Any) -> np.random.Generator:
    """Returns a generator that continues from `random_state`.

    Raises:
      SpecError: The text is something else.
    """
    generator = np.random.default_rng(0)
    try:
        generator.bit_generator.state = json.loads(text)
    except (TypeError, ValueError, KeyError) as error:
        raise SpecError(
            f"random is {str(text)[:80]!r}, expected what state_dict() of a scheduler has"
        ) from error
    return generator


def check_names(state: Any, expected: Mapping[str, Any]) -> None:
    """Raises SpecError unless a state has the entries of `expected`."""
    if not isinstance(state, Mapping) or set(state) != set(expected):
        found = sorted(state) if isinstance(state, Mapping) else type(state).__name__
        raise SpecError(
            f"state has {found}, expected {sorted(expected)}: what state_dict() of the same kind "
            "of scheduler returned"
        )


def numbers(name: str, value: Any, dtype: DTypeLike, count: int) -> NDArray[Any]:
    """Returns a copy of an entry as numbers (count,).

    Raises:
      SpecError: It has another shape.
    """
    array: NDArray[Any] = np.asarray(value, dtype).copy()
    if array.shape != (count,):
        raise SpecError(
            f"{name} has shape {array.shape}, expected ({count},): the state of a scheduler of as "
            "many levels"
        )
    return array
