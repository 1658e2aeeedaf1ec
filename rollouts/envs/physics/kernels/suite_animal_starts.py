# SPDX-License-Identifier: Apache-2.0
"""Where episodes of quadruped and dog begin; see `suite_starts.py`. The body's root comes first."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.philox import normal, uniform_in
from rollouts.envs.physics.kernels.structs import Clock
from rollouts.envs.physics.kernels.suite_starts import SuiteStart, put_on_sphere

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})

_TWO_PI = wp.constant(wp.float64(6.283185307179586))
_CENTIMETRE = wp.constant(wp.float64(0.01))
_ZERO = wp.constant(wp.float64(0.0))


@wp.func
def turn_round(seed: wp.uint64, id: int, episode: int, draw: int, w: int, qpos: wp.array2d[float]):
    """Turns the root by any angle around z; takes one number."""
    angle = uniform_in(seed, id, episode, draw, _ZERO, _TWO_PI) / wp.float64(2.0)
    qpos[w, 3] = float(wp.cos(angle))
    qpos[w, 4] = 0.0
    qpos[w, 5] = 0.0
    qpos[w, 6] = float(wp.sin(angle))


@wp.func
def within(seed: wp.uint64, id: int, episode: int, draw: int, radius: wp.float64) -> float:
    return float(uniform_in(seed, id, episode, draw, -radius, radius))


@wp.kernel
def turn_quadruped(
    start: SuiteStart,
    clock: Clock,
    draws: wp.array[int],
    marked: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Puts it in the middle, in any rotation, below the height that `lift` tries first."""
    w = wp.tid()
    if not marked[w]:
        return
    episode = clock.next_episode[w] - 1
    one = wp.float64(1.0)
    put_on_sphere(clock.seed[w], clock.stream_id[w], episode, draws[w], w, 3, 4, one, qpos)
    draws[w] = draws[w] + 8
    qpos[w, 0] = 0.0
    qpos[w, 1] = 0.0
    qpos[w, 2] = float(-_CENTIMETRE)


@wp.kernel
def place_quadruped(
    start: SuiteStart,
    clock: Clock,
    draws: wp.array[int],
    marked: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Puts it anywhere in a square, upright; `start.radius` is a half of its side."""
    w = wp.tid()
    if not marked[w]:
        return
    seed = clock.seed[w]
    id = clock.stream_id[w]
    episode = clock.next_episode[w] - 1
    draw = draws[w]
    turn_round(seed, id, episode, draw, w, qpos)
    qpos[w, 0] = within(seed, id, episode, draw + 1, start.radius)
    qpos[w, 1] = within(seed, id, episode, draw + 2, start.radius)
    qpos[w, 2] = float(-_CENTIMETRE)
    draws[w] = draw + 3


@wp.kernel
def lift(
    start: SuiteStart,
    clock: Clock,
    draws: wp.array[int],
    marked: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Lifts it by a centimetre."""
    w = wp.tid()
    if marked[w]:
        height = wp.round(wp.float64(qpos[w, 2]) / _CENTIMETRE) + wp.float64(1.0)
        qpos[w, 2] = float(_CENTIMETRE * height)


@wp.kernel
def drop_ball(
    start: SuiteStart,
    clock: Clock,
    draws: wp.array[int],
    marked: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Drops a ball anywhere in the square. `start.first`, `second`: its position and velocity."""
    w = wp.tid()
    if not marked[w]:
        return
    seed = clock.seed[w]
    id = clock.stream_id[w]
    episode = clock.next_episode[w] - 1
    draw = draws[w]
    for i in range(2):
        qpos[w, start.first + i] = within(seed, id, episode, draw, start.radius)
        draw += 1
    qpos[w, start.first + 2] = 2.0
    for i in range(2):
        speed = wp.float64(5.0) * normal(seed, id, episode, draw)
        qvel[w, start.second + i] = float(speed)
        draw += 2
    draws[w] = draw


@wp.kernel
def draw_dog(
    start: SuiteStart,
    clock: Clock,
    draws: wp.array[int],
    marked: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Turns it around z, pushes it and has its actuators be anywhere in their ranges."""
    w = wp.tid()
    if not marked[w]:
        return
    seed = clock.seed[w]
    id = clock.stream_id[w]
    episode = clock.next_episode[w] - 1
    draw = draws[w]
    turn_round(seed, id, episode, draw, w, qpos)
    draw += 1
    for i in range(3):
        at = i
        if i == 2:
            # around z
            at = 5
        qvel[w, at] = float(wp.float64(2.0) * normal(seed, id, episode, draw))
        draw += 2
    for i in range(start.act.shape[1]):
        bounds = start.ctrlrange[w % start.ctrlrange.shape[0], i]
        low = wp.float64(bounds[0])
        high = wp.float64(bounds[1])
        start.act[w, i] = float(uniform_in(seed, id, episode, draw, low, high))
        draw += 1
    draws[w] = draw


@wp.kernel
def throw_ball(
    start: SuiteStart,
    clock: Clock,
    draws: wp.array[int],
    marked: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Throws a ball from a circle of `start.radius` towards the middle, up to 3 metres high.

    `start.first`, `second`: its position and velocity.
    """
    w = wp.tid()
    if not marked[w]:
        return
    seed = clock.seed[w]
    id = clock.stream_id[w]
    episode = clock.next_episode[w] - 1
    draw = draws[w]
    angle = uniform_in(seed, id, episode, draw, _ZERO, _TWO_PI)
    height = uniform_in(seed, id, episode, draw + 1, _ZERO, wp.float64(3.0))
    speed = uniform_in(seed, id, episode, draw + 2, _ZERO, wp.float64(5.0))
    x = wp.sin(angle)
    y = wp.cos(angle)
    spread = wp.float64(0.05)
    push_x = spread * normal(seed, id, episode, draw + 3) - x
    push_y = spread * normal(seed, id, episode, draw + 5) - y
    draws[w] = draw + 7
    at = start.first
    qpos[w, at] = float(start.radius * x)
    qpos[w, at + 1] = float(start.radius * y)
    qpos[w, at + 2] = 0.05
    falls = -start.gravity[w % start.gravity.shape[0]][2]
    at = start.second
    qvel[w, at] = float(speed * push_x)
    qvel[w, at + 1] = float(speed * push_y)
    qvel[w, at + 2] = float(wp.sqrt(wp.float64(2.0) * wp.float64(falls) * height))
