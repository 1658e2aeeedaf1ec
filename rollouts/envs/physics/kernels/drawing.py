# SPDX-License-Identifier: Apache-2.0
"""Model fields that every episode draws anew, from its random stream, before its start."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.philox import uniform_in
from rollouts.envs.physics.kernels.structs import Clock

# gradients are not needed, and would double the code to compile
wp.set_module_options({"enable_backward": False})


@wp.kernel
def draw_field(
    clock: Clock,
    beginning: wp.array[wp.bool],
    low: wp.array2d[wp.float64],
    high: wp.array2d[wp.float64],
    draws: wp.array[int],
    values: wp.array2d[float],
):
    """Draws elements whose bounds differ; `draws` counts the numbers taken from each stream."""
    w = wp.tid()
    if not beginning[w]:
        return
    draw = draws[w]
    for i in range(values.shape[1]):
        if high[w, i] > low[w, i]:
            seed = clock.seed[w]
            episode = clock.next_episode[w]
            drawn = uniform_in(seed, clock.stream_id[w], episode, draw, low[w, i], high[w, i])
            values[w, i] = float(drawn)
            draw += 1
    draws[w] = draw


@wp.kernel
def make_rotations(
    beginning: wp.array[wp.bool],
    low: wp.array2d[wp.float64],
    high: wp.array2d[wp.float64],
    firsts: wp.array[int],
    values: wp.array2d[float],
):
    """Scales drawn quaternions to length 1; `firsts` has their places in a row."""
    w, q = wp.tid()
    if not beginning[w]:
        return
    first = firsts[q]
    drawn = int(0)
    square = float(0.0)
    for i in range(first, first + 4):
        square += values[w, i] * values[w, i]
        if high[w, i] > low[w, i]:
            drawn += 1
    if drawn == 0:
        return
    length = wp.sqrt(square)
    for i in range(first, first + 4):
        if length > 0.0:
            values[w, i] = values[w, i] / length
        else:
            # a quaternion of zeros becomes the identity
            values[w, i] = float(0.0)
            if i == first:
                values[w, i] = float(1.0)
