# SPDX-License-Identifier: Apache-2.0
"""Observations, a launch for each of their parts."""

from __future__ import annotations

import warp as wp

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})

COPY = wp.constant(0)
DIFFERENCE = wp.constant(1)
LOG_1_PLUS = wp.constant(2)
ASINH = wp.constant(3)


@wp.kernel
def observe_part(
    kind: int,
    source: wp.array2d[float],
    first: int,
    other: int,
    at: int,
    marked: wp.array[wp.bool],
    broken: wp.array[wp.bool],
    obs: wp.array2d[float],
):
    """Writes elements of the marked rows from `at` on: `source`'s from `first` on, or of them.

    DIFFERENCE: less those from `other` on.
    """
    w, i = wp.tid()
    if not marked[w]:
        return
    value = source[w, first + i]
    if kind == DIFFERENCE:
        value = value - source[w, other + i]
    elif kind == LOG_1_PLUS:
        value = wp.log(1.0 + value)
    elif kind == ASINH:
        size = wp.abs(value)
        value = wp.sign(value) * wp.log(size + wp.sqrt(size * size + 1.0))
    if broken[w]:
        value = 0.0
    obs[w, at + i] = value
