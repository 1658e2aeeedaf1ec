# SPDX-License-Identifier: Apache-2.0
"""Observations of a user's own model, a launch for each of their parts."""

from __future__ import annotations

import warp as wp

# gradients are not needed, and would double the code to compile
wp.set_module_options({"enable_backward": False})


@wp.kernel
def observe_part(
    source: wp.array2d[float],
    first: int,
    at: int,
    marked: wp.array[wp.bool],
    broken: wp.array[wp.bool],
    obs: wp.array2d[float],
):
    """Copies `source` from element `first` on into the marked rows of `obs` from column `at` on."""
    w, i = wp.tid()
    if not marked[w]:
        return
    value = source[w, first + i]
    if broken[w]:
        value = 0.0
    obs[w, at + i] = value
