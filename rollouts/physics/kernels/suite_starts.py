# SPDX-License-Identifier: Apache-2.0
"""Where episodes of the DeepMind Control Suite begin: the C++ pool's draws, rounded to 32 bits."""

from __future__ import annotations

import warp as wp

from rollouts.physics.kernels.philox import normal, uniform_in
from rollouts.physics.kernels.starts import begin_clock
from rollouts.physics.kernels.structs import Clock

BALANCED = wp.constant(0)  # cartpole, upright
HANGING = wp.constant(1)  # cartpole
ANY_ANGLES = wp.constant(2)  # pendulum, acrobot
JOINTS = wp.constant(3)  # all hinges and slides, within their limits
TARGET = wp.constant(4)  # those, after a target's place in a plane

_PI = wp.constant(wp.float64(3.141592653589793))
_SLIDE = wp.constant(2)  # mjJNT_SLIDE


@wp.kernel
def start_suite(
    kind: int,
    clock: Clock,
    draws: wp.array[int],
    qpos0: wp.array2d[wp.float64],
    jnt_type: wp.array[int],
    jnt_limited: wp.array[int],
    jnt_range: wp.array2d[wp.vec2],
    target: int,
    geom_pos: wp.array2d[wp.vec3],
    geom_xpos: wp.array2d[wp.vec3],
    beginning: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Draws positions and velocities of those who begin, and sets their clocks.

    Each joint has one position. `target` is a geom of the world's body, in its own place.
    """
    w = wp.tid()
    if not beginning[w]:
        return
    seed = clock.seed[w]
    id = clock.stream_id[w]
    episode = begin_clock(clock, w)
    draw = draws[w]
    row = w % qpos0.shape[0]
    nq = qpos.shape[1]
    for i in range(nq):
        qpos[w, i] = float(qpos0[row, i])
        qvel[w, i] = 0.0

    if kind == TARGET:
        zero = wp.float64(0.0)
        angle = uniform_in(seed, id, episode, draw, zero, wp.float64(2.0) * _PI)
        radius = uniform_in(seed, id, episode, draw + 1, wp.float64(0.05), wp.float64(0.2))
        draw += 2
        place = geom_pos[w, target]
        place = wp.vec3(float(radius * wp.sin(angle)), float(radius * wp.cos(angle)), place[2])
        geom_pos[w, target] = place
        # no joint moves it, so mujoco_warp does not look again
        geom_xpos[w, target] = place
    if kind == ANY_ANGLES:
        for i in range(nq):
            qpos[w, i] = float(uniform_in(seed, id, episode, draw, -_PI, _PI))
            draw += 1
    if kind == BALANCED or kind == HANGING:
        for i in range(nq):
            value = wp.float64(0.0)
            if kind == HANGING:
                value = normal(seed, id, episode, draw)
                draw += 2
                if i == 0:
                    value = wp.float64(0.01) * value
                elif i == 1:
                    value = _PI + wp.float64(0.01) * value
                else:
                    value = wp.float64(0.1) * value
            else:
                size = wp.float64(0.034)
                if i == 0:
                    size = wp.float64(0.1)
                value = uniform_in(seed, id, episode, draw, -size, size)
                draw += 1
            qpos[w, i] = float(value)
        for i in range(nq):
            qvel[w, i] = float(wp.float64(0.01) * normal(seed, id, episode, draw))
            draw += 2
    if kind == JOINTS or kind == TARGET:
        for i in range(nq):
            bounds = jnt_range[w % jnt_range.shape[0], i]
            low = wp.float64(bounds[0])
            high = wp.float64(bounds[1])
            # slides without limits stay
            if jnt_limited[i] != 0 or jnt_type[i] != _SLIDE:
                if jnt_limited[i] == 0:
                    low = -_PI
                    high = _PI
                qpos[w, i] = float(uniform_in(seed, id, episode, draw, low, high))
                draw += 1
