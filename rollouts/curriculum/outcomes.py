# SPDX-License-Identifier: Apache-2.0
"""Checks of the scores that schedulers get."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollouts.errors import SpecError


def read_outcomes(
    level: ArrayLike, score: ArrayLike, num_levels: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns levels (K,) and scores (K,) as arrays.

    Raises:
      SpecError: Different numbers of levels and scores, no such level, or a score that is not
        finite.
    """
    numbers: NDArray[Any] = np.asarray(level)
    scores = np.asarray(score, np.float64)
    whole = numbers.dtype.kind in "iu" or not numbers.size
    if not whole or numbers.ndim != 1 or numbers.shape != scores.shape:
        raise SpecError(
            f"level has shape {numbers.shape} and dtype {numbers.dtype} and score shape "
            f"{scores.shape}, expected (K,) whole numbers and (K,) numbers"
        )
    if ((numbers < 0) | (numbers >= num_levels)).any():
        raise SpecError(f"level is {numbers.tolist()}, expected numbers from 0 to {num_levels - 1}")
    if not np.isfinite(scores).all():
        raise SpecError(f"score is {scores.tolist()}, expected finite numbers")
    return numbers.astype(np.int64), scores
