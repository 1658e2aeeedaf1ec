# SPDX-License-Identifier: Apache-2.0
"""Where episodes of the DeepMind Control Suite begin: the C++ pool's draws, rounded to 32 bits."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.philox import normal, uniform, uniform_in
from rollouts.envs.physics.kernels.starts import begin_clock
from rollouts.envs.physics.kernels.structs import Clock

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})

BALANCED = wp.constant(0)  # cartpole, upright
HANGING = wp.constant(1)  # cartpole
ANY_ANGLES = wp.constant(2)  # pendulum, acrobot
JOINTS = wp.constant(3)  # all hinges and slides, within their limits
TARGET = wp.constant(4)  # those, after a target's place in a plane
NEAR_OR_FAR = wp.constant(5)  # those, after a target's place in a small or a large square
FISH = wp.constant(6)  # any rotation and small angles, after a target's place where there is one
SPRINGS = wp.constant(7)  # lqr: stiffnesses, then a place on a sphere
LIMITED_JOINTS = wp.constant(8)  # cheetah
BALL = wp.constant(9)  # ball in cup: two slides
ON_CIRCLE = wp.constant(10)  # finger: all joints, after a site's place around a body

_PI = wp.constant(wp.float64(3.141592653589793))
_FREE = wp.constant(0)  # mjJNT_FREE
_HINGE = wp.constant(3)  # mjJNT_HINGE
_ROOT = wp.constant(7)  # positions of a free joint, the quaternion from 3 on


@wp.struct
class SuiteStart:
    """What a start is drawn of."""

    kind: int
    target: int  # geom, or site of ON_CIRCLE, of the world's body; -1: none
    first: int  # BALL: the first slide's position; ON_CIRCLE: the body, a child of the world's
    second: int  # BALL: the other's; these, too, are what another kernel says
    others: wp.array[int]  # more of those
    held: wp.array[wp.bool]  # (N,): of manipulator
    radius: wp.float64  # ON_CIRCLE: metres
    qpos0: wp.array2d[wp.float64]  # this and fields: one row for all worlds, or one for each
    jnt_type: wp.array[int]
    jnt_limited: wp.array[int]
    jnt_range: wp.array2d[wp.vec2]
    jnt_qposadr: wp.array[int]
    jnt_stiffness: wp.array2d[float]
    body_pos: wp.array2d[wp.vec3]
    body_quat: wp.array2d[wp.quat]
    geom_pos: wp.array2d[wp.vec3]
    geom_quat: wp.array2d[wp.quat]
    geom_bodyid: wp.array[int]
    site_pos: wp.array2d[wp.vec3]
    geom_xpos: wp.array2d[wp.vec3]
    geom_xmat: wp.array2d[wp.mat33]
    site_xpos: wp.array2d[wp.vec3]
    site_xmat: wp.array2d[wp.mat33]
    act: wp.array2d[float]
    ctrlrange: wp.array2d[wp.vec2]
    gravity: wp.array[wp.vec3]


@wp.func
def draw_joints(
    start: SuiteStart,
    seed: wp.uint64,
    id: int,
    episode: int,
    first: int,
    w: int,
    qpos: wp.array2d[float],
) -> int:
    """Draws joints; how many numbers have been taken of the stream then."""
    draw = int(first)
    for joint in range(start.jnt_type.shape[0]):
        bounds = start.jnt_range[w % start.jnt_range.shape[0], joint]
        low = wp.float64(bounds[0])
        high = wp.float64(bounds[1])
        is_limited = start.jnt_limited[joint] != 0
        at = start.jnt_qposadr[joint]
        kind = start.jnt_type[joint]
        # slides without limits stay
        is_drawn = is_limited or (kind == _HINGE and start.kind != LIMITED_JOINTS)
        if kind == _FREE and start.kind != LIMITED_JOINTS:
            # in a cube and not on a sphere, as dm_control has it
            total = wp.float64(0.0)
            for i in range(4):
                one = uniform(seed, id, episode, draw + i)
                total += one * one
            for i in range(4):
                one = uniform(seed, id, episode, draw + i)
                qpos[w, at + 3 + i] = float(one / wp.sqrt(total))
            draw += 4
        elif is_drawn:
            if not is_limited:
                low = -_PI
                high = _PI
            qpos[w, at] = float(uniform_in(seed, id, episode, draw, low, high))
            draw += 1
    return draw


@wp.func
def put_on_sphere(
    seed: wp.uint64,
    id: int,
    episode: int,
    draw: int,
    w: int,
    first: int,
    count: int,
    radius: wp.float64,
    qpos: wp.array2d[float],
):
    """Has positions from `first` on be uniform on a sphere; takes two numbers of each."""
    total = wp.float64(0.0)
    for i in range(count):
        one = normal(seed, id, episode, draw + 2 * i)
        total += one * one
    for i in range(count):
        one = normal(seed, id, episode, draw + 2 * i)
        qpos[w, first + i] = float(radius * one / wp.sqrt(total))


@wp.kernel
def begin_suite(
    start: SuiteStart,
    clock: Clock,
    draws: wp.array[int],
    beginning: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Sets clocks of those who begin, puts them at rest, and draws what they have of the model."""
    w = wp.tid()
    if not beginning[w]:
        return
    kind = start.kind
    target = start.target
    seed = clock.seed[w]
    id = clock.stream_id[w]
    episode = begin_clock(clock, w)
    draw = draws[w]
    row = w % start.qpos0.shape[0]
    for i in range(qpos.shape[1]):
        qpos[w, i] = float(start.qpos0[row, i])
    for i in range(qvel.shape[1]):
        qvel[w, i] = 0.0

    zero = wp.float64(0.0)
    if kind == ON_CIRCLE and target >= 0:
        angle = uniform_in(seed, id, episode, draw, -_PI, _PI)
        draw += 1
        middle = start.body_pos[w % start.body_pos.shape[0], start.first]
        x = wp.float64(middle[0]) + start.radius * wp.sin(angle)
        z = wp.float64(middle[2]) + start.radius * wp.cos(angle)
        start.site_pos[w, target] = wp.vec3(float(x), start.site_pos[w, target][1], float(z))
    elif target >= 0:
        place = start.geom_pos[w, target]
        if kind == TARGET:
            angle = uniform_in(seed, id, episode, draw, zero, wp.float64(2.0) * _PI)
            radius = uniform_in(seed, id, episode, draw + 1, wp.float64(0.05), wp.float64(0.2))
            draw += 2
            place = wp.vec3(float(radius * wp.sin(angle)), float(radius * wp.cos(angle)), place[2])
        if kind == NEAR_OR_FAR:
            box = wp.float64(2.0)
            if uniform(seed, id, episode, draw) < wp.float64(0.2):
                box = wp.float64(0.3)
            x = uniform_in(seed, id, episode, draw + 1, -box, box)
            y = uniform_in(seed, id, episode, draw + 2, -box, box)
            draw += 3
            place = wp.vec3(float(x), float(y), place[2])
        if kind == FISH:
            x = uniform_in(seed, id, episode, draw, -wp.float64(0.4), wp.float64(0.4))
            y = uniform_in(seed, id, episode, draw + 1, -wp.float64(0.4), wp.float64(0.4))
            z = uniform_in(seed, id, episode, draw + 2, wp.float64(0.1), wp.float64(0.3))
            draw += 3
            place = wp.vec3(float(x), float(y), float(z))
        start.geom_pos[w, target] = place
        # no joint moves it, so mujoco_warp does not look again
        start.geom_xpos[w, target] = place
    if kind == SPRINGS:
        for i in range(start.jnt_stiffness.shape[1]):
            start.jnt_stiffness[w, i] = float(
                uniform_in(seed, id, episode, draw, wp.float64(15.0), wp.float64(25.0))
            )
            draw += 1
    draws[w] = draw


@wp.kernel
def draw_suite(
    start: SuiteStart,
    clock: Clock,
    draws: wp.array[int],
    marked: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Draws positions and velocities of the marked, whose episodes have begun; others each time."""
    w = wp.tid()
    if not marked[w]:
        return
    kind = start.kind
    seed = clock.seed[w]
    id = clock.stream_id[w]
    episode = clock.next_episode[w] - 1
    draw = draws[w]
    nq = qpos.shape[1]
    if kind == ANY_ANGLES:
        for i in range(nq):
            qpos[w, i] = float(uniform_in(seed, id, episode, draw, -_PI, _PI))
            draw += 1
    elif kind == BALANCED or kind == HANGING:
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
    elif kind == FISH:
        put_on_sphere(seed, id, episode, draw, w, 3, 4, wp.float64(1.0), qpos)
        draw += 8
        for i in range(_ROOT, nq):
            qpos[w, i] = float(
                uniform_in(seed, id, episode, draw, -wp.float64(0.2), wp.float64(0.2))
            )
            draw += 1
    elif kind == SPRINGS:
        put_on_sphere(seed, id, episode, draw, w, 0, nq, wp.sqrt(wp.float64(2.0)), qpos)
        draw += 2 * nq
    elif kind == BALL:
        x = uniform_in(seed, id, episode, draw, -wp.float64(0.2), wp.float64(0.2))
        z = uniform_in(seed, id, episode, draw + 1, wp.float64(0.2), wp.float64(0.5))
        draw += 2
        qpos[w, start.first] = float(x)
        qpos[w, start.second] = float(z)
    else:
        draw = draw_joints(start, seed, id, episode, draw, w, qpos)
    draws[w] = draw
