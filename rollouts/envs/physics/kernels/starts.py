# SPDX-License-Identifier: Apache-2.0
"""Starts of episodes: the draws of the C++ pool, rounded to 32 bits."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.philox import normal, uniform_in
from rollouts.envs.physics.kernels.structs import Clock

# gradients are not needed, and would double the code to compile
wp.set_module_options({"enable_backward": False})

# how positions and velocities are drawn
UNIFORM = wp.constant(0)
NORMAL_VELOCITIES = wp.constant(1)


@wp.func
def noise(seed: wp.uint64, env_id: int, episode: int, draw: int, scale: wp.float64) -> wp.float64:
    return uniform_in(seed, env_id, episode, draw, -scale, scale)


@wp.func
def begin_clock(clock: Clock, w: int) -> int:
    """Sets a clock for a new episode; returns the episode's number."""
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
    """Draws positions and velocities of worlds that begin, and sets their clocks.

    Episodes begin around `qpos0`, one row for all worlds or one for each. `draws` is the count of
    numbers that were already taken from their streams.
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

    for i in range(nq):
        qpos[w, i] = float(qpos0[row, i] + noise(seed, id, episode, draw, scale))
        draw += 1
    for i in range(nv):
        if kind == NORMAL_VELOCITIES:
            qvel[w, i] = float(qvel0[i] + scale * normal(seed, id, episode, draw))
            draw += 2
        else:
            qvel[w, i] = float(qvel0[i] + noise(seed, id, episode, draw, scale))
            draw += 1
