# SPDX-License-Identifier: Apache-2.0
"""`hide_uncounted`: overwrites rows that do not count, which may even contain nan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# arrays that do not belong to single rows, or mark which rows count
_KEPT = frozenset({"counts", "ended", "states", "initial"})


def hide_uncounted(arrays: dict[str, Any]) -> dict[str, Any]:
    """Returns rows in which useless ones are replaced by the contents of a useful one.

    A useless row gets a gradient of 0, but 0 times nan is nan. With memory, a row's observation is
    useful if its state leads to a row that counts, and a state is useful if it leads to the first
    observation.

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
    """Marks rows that count, and rows whose states lead to one that counts, (T, B)."""
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
