# SPDX-License-Identifier: Apache-2.0
"""Where episodes begin: the C++ pool's draws, rounded to 32 bits."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.philox import normal, uniform_in
from rollouts.envs.physics.kernels.structs import Clock

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})

# how positions and velocities are drawn
UNIFORM = wp.constant(0)
NORMAL_VELOCITIES = wp.constant(1)
REACHER = wp.constant(2)
PUSHER = wp.constant(3)

_REACH = wp.constant(wp.float64(0.2))  # metres; of Reacher's target from the middle
_LEAST_DISTANCE = wp.constant(wp.float64(0.17))  # metres; of Pusher's cylinder from its goal


@wp.func
def noise(seed: wp.uint64, env_id: int, episode: int, draw: int, scale: wp.float64) -> wp.float64:
    return uniform_in(seed, env_id, episode, draw, -scale, scale)


@wp.func
def begin_clock(clock: Clock, w: int) -> int:
    """Sets a clock for an episode; its number."""
    episode = clock.next_episode[w]
    clock.next_episode[w] = episode + 1
    clock.elapsed_steps[w] = 0
    clock.episode_return[w] = wp.float64(0.0)
    clock.ended[w] = False
    clock.broken[w] = False
    return episode


@wp.func
def add(value: float, more: wp.float64) -> float:
    return float(wp.float64(value) + more)


@wp.kernel
def start_episodes(
    kind: int,
    clock: Clock,
    noise_scale: wp.array[wp.float64],
    draws: wp.array[int],
    qpos0: wp.array2d[wp.float64],
    qvel0: wp.array[wp.float64],
    beginning: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Draws positions and velocities of those who begin, and sets their clocks.

    What episodes begin around: `qpos0`, one row for all worlds or one for each. `draws` have been
    taken of their streams before.
    """
    w = wp.tid()
    if not beginning[w]:
        return
    seed = clock.seed[w]
    id = clock.stream_id[w]
    episode = begin_clock(clock, w)

    nq = qpos.shape[1]
    nv = qvel.shape[1]
    draw = draws[w]
    row = w % qpos0.shape[0]
    scale = noise_scale[w]
    velocity_scale = scale
    if kind == REACHER:
        scale = wp.float64(0.1)
    if kind == REACHER or kind == PUSHER:
        velocity_scale = wp.float64(0.005)

    for i in range(nq):
        qpos[w, i] = float(qpos0[row, i])
        if kind != PUSHER:
            qpos[w, i] = float(qpos0[row, i] + noise(seed, id, episode, draw, scale))
            draw += 1
    if kind == REACHER:
        # the target rests anywhere in a disc
        x = noise(seed, id, episode, draw, _REACH)
        y = noise(seed, id, episode, draw + 1, _REACH)
        draw += 2
        while wp.sqrt(x * x + y * y) >= _REACH:
            x = noise(seed, id, episode, draw, _REACH)
            y = noise(seed, id, episode, draw + 1, _REACH)
            draw += 2
        qpos[w, nq - 2] = float(x)
        qpos[w, nq - 1] = float(y)
    if kind == PUSHER:
        # the cylinder not too near to the goal, which is the middle
        x = uniform_in(seed, id, episode, draw, wp.float64(-0.3), wp.float64(0.0))
        y = noise(seed, id, episode, draw + 1, wp.float64(0.2))
        draw += 2
        while wp.sqrt(x * x + y * y) <= _LEAST_DISTANCE:
            x = uniform_in(seed, id, episode, draw, wp.float64(-0.3), wp.float64(0.0))
            y = noise(seed, id, episode, draw + 1, wp.float64(0.2))
            draw += 2
        qpos[w, nq - 4] = float(x)
        qpos[w, nq - 3] = float(y)
        qpos[w, nq - 2] = 0.0
        qpos[w, nq - 1] = 0.0

    for i in range(nv):
        if kind == NORMAL_VELOCITIES:
            qvel[w, i] = float(qvel0[i] + velocity_scale * normal(seed, id, episode, draw))
            draw += 2
        else:
            qvel[w, i] = float(qvel0[i] + noise(seed, id, episode, draw, velocity_scale))
            draw += 1
    # what is no joint of the arm rests
    if kind == REACHER:
        for i in range(nv - 2, nv):
            qvel[w, i] = 0.0
    if kind == PUSHER:
        for i in range(nv - 4, nv):
            qvel[w, i] = 0.0
