# SPDX-License-Identifier: Apache-2.0
"""Quadruped and dog of the DeepMind Control Suite; see `suite.py`."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import Outcome, Simulation
from rollouts.envs.physics.kernels.suite import beyond, cosine, gaussian, linear
from rollouts.envs.physics.kernels.task_math import put_outcome

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})

_INF = wp.constant(wp.inf)
_DOG_UPRIGHT = wp.constant(0.8660254037844387)  # cos(30 degrees)
_NUM_SOLES = wp.constant(4)


@wp.func
def upright(sim: Simulation, w: int, body: int, least: float) -> float:
    """1 where the cosine to upright is `least` or more, 0 upside down."""
    return linear(beyond(cosine(sim, w, body), least, _INF) / (1.0 + least), 0.0)


@wp.func
def show(outcome: Outcome, w: int, at: int, seen: wp.vec3):
    for i in range(3):
        outcome.shown[w, at + i] = seen[i]


@wp.func
def horizontal(vector: wp.vec3) -> float:
    return wp.sqrt(vector[0] * vector[0] + vector[1] * vector[1])


@wp.func
def reciprocal(x: float) -> float:
    """1 at 0, a tenth at 1."""
    return 1.0 / (9.0 * x + 1.0)


@wp.func
def velocity_at(sim: Simulation, w: int, body: int, place: wp.vec3) -> wp.vec3:
    """Of a body's point."""
    both = sim.cvel[w, body]
    turning = wp.vec3(both[0], both[1], both[2])
    moving = wp.vec3(both[3], both[4], both[5])
    return moving + wp.cross(turning, place - sim.subtree_com[w, sim.body_rootid[body]])


@wp.kernel
def quadruped_move(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: m/s. `first`: the torso, `second`: its velocimeter."""
    w = wp.tid()
    if not marked[w] or is_start:
        return
    slow = beyond(sim.sensordata[w, sim.second], sim.goal, _INF)
    reward = upright(sim, w, sim.first, 1.0) * linear(slow / sim.goal, 0.5)
    put_outcome(outcome, w, reward, False)


@wp.kernel
def quadruped_fetch(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: how large the arena is. `first`: the torso, `second` and `third`: workspace and
    target, sites. `others`: the ball, a body, and its first velocity. `sizes`: how near the ball is
    reached, and the target's radius.

    Shows, as the torso sees it, where the ball is, how it moves and turns, and the target.
    """
    w = wp.tid()
    if not marked[w]:
        return
    torso = sim.xpos[w, sim.first]
    seen = wp.transpose(sim.xmat[w, sim.first])
    ball = sim.xpos[w, sim.others[0]]
    at = sim.others[1]
    moving = wp.vec3(sim.qvel[w, at], sim.qvel[w, at + 1], sim.qvel[w, at + 2])
    turning = wp.vec3(sim.qvel[w, at + 3], sim.qvel[w, at + 4], sim.qvel[w, at + 5])
    own = wp.vec3(sim.qvel[w, 0], sim.qvel[w, 1], sim.qvel[w, 2])
    target = sim.site_xpos[w, sim.third]
    show(outcome, w, 0, seen * (ball - torso))
    show(outcome, w, 3, seen * (moving - own))
    show(outcome, w, 6, seen * turning)
    show(outcome, w, 9, seen * (target - torso))
    if is_start:
        return
    away = horizontal(sim.site_xpos[w, sim.second] - ball)
    reached = linear(beyond(away, 0.0, sim.sizes[0]) / sim.goal, 0.0)
    left = horizontal(target - ball)
    fetched = linear(beyond(left, 0.0, sim.sizes[1]) / sim.goal, 0.0)
    reward = upright(sim, w, sim.first, 1.0) * (reached * (0.5 + 0.5 * fetched))
    put_outcome(outcome, w, reward, False)


@wp.func
def see_own_speed(sim: Simulation, w: int) -> wp.vec3:
    """Of a dog's centre of mass, as the torso sees it."""
    at = sim.others[0]
    moving = wp.vec3(sim.sensordata[w, at], sim.sensordata[w, at + 1], sim.sensordata[w, at + 2])
    return wp.transpose(sim.xmat[w, sim.first]) * moving


@wp.func
def dog_stands(sim: Simulation, w: int) -> float:
    torso = sim.xpos[w, sim.first]
    pelvis = sim.xpos[w, sim.second]
    reward = gaussian(beyond(torso[2], sim.sizes[1], _INF) / sim.sizes[1])
    reward = reward * gaussian(beyond(pelvis[2], sim.sizes[2], _INF) / sim.sizes[2])
    reward = reward * upright(sim, w, sim.first, _DOG_UPRIGHT)
    reward = reward * upright(sim, w, sim.second, _DOG_UPRIGHT)
    reward = reward * upright(sim, w, sim.third, _DOG_UPRIGHT)
    touch = float(0.0)
    for i in range(_NUM_SOLES):
        touch += sim.sensordata[w, sim.others[1] + i]
    return reward * linear(beyond(touch, sim.sizes[0], _INF) / sim.sizes[0], 0.9)


@wp.kernel
def dog(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: m/s, 0: it is to stand. Torso, pelvis and skull; `others`: the sensors of the
    velocity and of soles and palms. `sizes`: its weight, and least heights of torso and pelvis.

    Shows its velocity as the torso sees it.
    """
    w = wp.tid()
    if not marked[w]:
        return
    moving = see_own_speed(sim, w)
    show(outcome, w, 0, moving)
    if is_start:
        return
    reward = dog_stands(sim, w)
    if sim.goal > 0.0:
        off = beyond(moving[0], sim.goal, 2.0 * sim.goal) / wp.max(1.0, sim.goal)
        reward = reward * (4.0 * linear(off, 0.0) + 1.0) / 5.0
    put_outcome(outcome, w, reward, False)


@wp.kernel
def dog_fetch(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """As `dog`; `sim.goal`: how large the arena is. `others` go on with the head, a site, and its
    body; ball and target, geoms, and the ball's body; then the sites that bite. `sizes`: also the
    radii of a bite and the target.

    Shows also, as the head sees it, where the ball is, how it moves, and the target.
    """
    w = wp.tid()
    if not marked[w]:
        return
    show(outcome, w, 0, see_own_speed(sim, w))
    head = sim.site_xpos[w, sim.others[2]]
    seen = wp.transpose(sim.site_xmat[w, sim.others[2]])
    ball = sim.geom_xpos[w, sim.others[4]]
    target = sim.geom_xpos[w, sim.others[5]]
    moving = velocity_at(sim, w, sim.others[6], ball) - velocity_at(sim, w, sim.others[3], head)
    show(outcome, w, 3, seen * (ball - head))
    show(outcome, w, 6, seen * moving)
    show(outcome, w, 9, seen * (target - head))
    if is_start:
        return
    to_mouth = float(0.0)
    for i in range(2):
        to_mouth += 0.5 * wp.length(ball - sim.site_xpos[w, sim.others[7 + i]])
    to_target = wp.length(ball - target)
    reach = (6.0 * reciprocal(beyond(to_mouth, 0.0, sim.sizes[3]) / 2.0) + 1.0) / 7.0
    fetch = (reciprocal(beyond(to_target, 0.0, sim.sizes[4]) / sim.goal) + 1.0) / 2.0
    # it may let go of a ball that it has brought
    if to_target < 2.0 * sim.sizes[4]:
        reach = 1.0
    put_outcome(outcome, w, dog_stands(sim, w) * reach * fetch, False)
