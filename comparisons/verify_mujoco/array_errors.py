# SPDX-License-Identifier: Apache-2.0
"""Errors of arrays, and steps in which they are too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from comparisons.verify_mujoco.driver import Array, ModelStates

BOUND = 1e-11  # largest error of the next state, relative to the vector's largest entry
_TINY = 1e-300
_BINS = 400  # bins of a histogram of exponents
_LEAST, _MOST = -20.0, 4.0


class Errors:
    """Quantiles and maximum of many numbers that are not negative."""

    def __init__(self) -> None:
        """Starts without a number."""
        self._counts = np.zeros(_BINS, np.int64)
        self.max = 0.0

    def add(self, errors: Array) -> None:
        """Adds numbers; one that is not finite counts as the largest."""
        if not errors.size:
            return
        finite = np.nan_to_num(errors, nan=np.inf)
        self.max = max(self.max, float(finite.max()))
        exponents = np.log10(np.clip(finite, 10**_LEAST, 10**_MOST))
        bins = ((exponents - _LEAST) / (_MOST - _LEAST) * (_BINS - 1)).astype(np.int64)
        self._counts += np.bincount(bins, minlength=_BINS)

    def quantile(self, part: float) -> float:
        """The upper edge of the quantile's bin, or the maximum."""
        if self.max == 0:
            return 0.0
        sums = np.cumsum(self._counts)
        at = int(np.searchsorted(sums, part * sums[-1]))
        edge = 10 ** (_LEAST + (at + 1) * (_MOST - _LEAST) / (_BINS - 1))
        # the lowest bin contains the zeros
        return 0.0 if at == 0 else min(float(edge), self.max)


@dataclass(slots=True)
class Difference:
    """A step that differs: its state and the results of both engines."""

    kind: str
    step: int
    what: str
    error: float
    state: ModelStates  # one row
    evaluation: dict[str, Any]
    found: dict[str, Any]


def relative(ours: Array, theirs: Array, floor: Array | None = None) -> Array:
    """Errors (N,) of rows, relative to the largest entry of theirs, at least `floor`.

    Rows whose entries are all zero have the absolute error.
    """
    if ours.shape[1] == 0:
        return np.zeros(len(ours))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(ours - theirs).max(1)
        scale = np.abs(theirs).max(1)
        if floor is not None:
            scale = np.maximum(scale, floor)
        return np.where(error == 0, 0, error / np.where(scale > _TINY, scale, 1.0))
