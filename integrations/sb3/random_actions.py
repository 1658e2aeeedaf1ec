# SPDX-License-Identifier: Apache-2.0
"""Random actions for many environments at once, equal to those drawn one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Array = NDArray[Any]


def can_sample_rows(space: Any) -> bool:
    """Tells if `sample_rows` draws what as many calls of `space.sample` would."""
    if type(space) is spaces.Discrete:
        return True
    return type(space) is spaces.Box and np.dtype(space.dtype).kind == "f" and space.is_bounded()


def sample_rows(space: Any, num_rows: int) -> Array:
    """Draws (num_rows, ...) random actions: the numbers of that many calls of `space.sample`."""
    if isinstance(space, spaces.Discrete):
        drawn = space.np_random.integers(int(space.n), size=num_rows)
        actions: Array = (drawn + int(space.start)).astype(space.dtype)
        return actions
    drawn = space.np_random.uniform(space.low, space.high, size=(num_rows, *space.shape))
    rows: Array = drawn.astype(space.dtype)
    return rows
