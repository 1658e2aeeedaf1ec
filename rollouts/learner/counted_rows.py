# SPDX-License-Identifier: Apache-2.0
"""`hide_uncounted`: lets rows that do not count hold anything, also what is nan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# what is not of one row alone, or says which rows count
_KEPT = frozenset({"counts", "ended", "states", "initial"})


def hide_uncounted(arrays: dict[str, Any]) -> dict[str, Any]:
    """Returns rows in which those of no use hold what another one holds.

    A gradient of 0 times a number that is nan is nan. With memory the observation of a row is of
    use where it leads to one that counts, and a state where it leads to the first observation.

    Args:
      arrays: Rows and states by the names of native code.
    """
    steps, burn_in = arrays.get("num_steps", 1), arrays.get("burn_in", 0)
    if "counts" not in arrays:
        return arrays
    counts = arrays["counts"].reshape(steps, -1) != 0
    counts[:burn_in] = False
    if counts.all() or not counts.any():
        return arrays
    leads = _leads(counts, arrays)
    used = {name: leads if name == "obs" else counts for name in _names_of_rows(arrays)}
    number, first = np.arange(counts.size), counts.argmax()
    found = {
        name: arrays[name][np.where(each.ravel(), number, first)] for name, each in used.items()
    }
    if "states" in arrays:
        found["states"] = np.where(leads[0][:, None], arrays["states"], arrays["initial"])
    return arrays | found


def _leads(counts: NDArray[np.bool_], arrays: dict[str, Any]) -> NDArray[np.bool_]:
    """Marks rows that count, and those whose states go into one that does, (T, B)."""
    leads = counts.copy()
    if "ended" in arrays:
        goes_on = arrays["ended"].reshape(counts.shape) == 0
        for step in range(len(leads) - 2, -1, -1):
            leads[step] |= leads[step + 1] & goes_on[step]
    return leads


def _names_of_rows(arrays: dict[str, Any]) -> list[str]:
    return [
        name for name, each in arrays.items() if isinstance(each, np.ndarray) and name not in _KEPT
    ]
