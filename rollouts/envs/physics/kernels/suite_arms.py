# SPDX-License-Identifier: Apache-2.0
"""Manipulator of the DeepMind Control Suite, which moves in a plane; see `suite.py`."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.philox import uniform, uniform_in
from rollouts.envs.physics.kernels.structs import Clock, Outcome, Simulation
from rollouts.envs.physics.kernels.suite import beyond, gaussian
from rollouts.envs.physics.kernels.suite_starts import SuiteStart
from rollouts.envs.physics.kernels.task_math import put_outcome

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})

_NUM_JOINTS = wp.constant(8)  # of the arm
_CLOSE = wp.constant(0.01)  # metres
_PI = wp.constant(wp.float64(3.141592653589793))


@wp.func
def is_close(sim: Simulation, w: int, pair: int) -> float:
    """Of the sites of a pair, which come after the arm's joints."""
    at = 2 * _NUM_JOINTS + 2 * pair
    apart = sim.site_xpos[w, sim.others[at]] - sim.site_xpos[w, sim.others[at + 1]]
    return gaussian(beyond(wp.length(apart), 0.0, _CLOSE) / (2.0 * _CLOSE))


@wp.kernel
def manipulator(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.first`: 1 where it is a peg. `others`: position and velocity of each joint of the arm,
    then pairs of sites that are to meet: a ball's, or two that grasp a peg and two that bring it.

    Shows sine and cosine of the arm's joints, and their velocities.
    """
    w = wp.tid()
    if not marked[w]:
        return
    for i in range(_NUM_JOINTS):
        angle = sim.qpos[w, sim.others[2 * i]]
        outcome.shown[w, 2 * i] = wp.sin(angle)
        outcome.shown[w, 2 * i + 1] = wp.cos(angle)
        outcome.shown[w, 2 * _NUM_JOINTS + i] = sim.qvel[w, sim.others[2 * i + 1]]
    if is_start:
        return
    reward = is_close(sim, w, 0)
    if sim.first == 1:
        grasping = (reward + is_close(sim, w, 1)) / 2.0
        bringing = (is_close(sim, w, 2) + is_close(sim, w, 3)) / 2.0
        reward = wp.max(bringing, grasping / 3.0)
    put_outcome(outcome, w, reward, False)


@wp.func
def to_matrix(q: wp.quat) -> wp.mat33:
    """Of MuJoCo's order, in which the scalar comes first."""
    return wp.quat_to_matrix(wp.quat(q[1], q[2], q[3], q[0]))


@wp.func
def put_body(start: SuiteStart, w: int, body: int, x: wp.float64, z: wp.float64, angle: wp.float64):
    """Puts a child of the world's body somewhere in the plane, and its geoms."""
    half = angle / wp.float64(2.0)
    place = wp.vec3(float(x), start.body_pos[w, body][1], float(z))
    turned = wp.quat(float(wp.cos(half)), 0.0, float(wp.sin(half)), 0.0)
    start.body_pos[w, body] = place
    start.body_quat[w, body] = turned
    rotation = to_matrix(turned)
    # no joint moves them, so mujoco_warp does not look again
    for geom in range(start.geom_bodyid.shape[0]):
        if start.geom_bodyid[geom] == body:
            local = start.geom_pos[w % start.geom_pos.shape[0], geom]
            own = to_matrix(start.geom_quat[w % start.geom_quat.shape[0], geom])
            start.geom_xpos[w, geom] = place + rotation * local
            start.geom_xmat[w, geom] = rotation * own


@wp.kernel
def draw_manipulator(
    start: SuiteStart,
    clock: Clock,
    draws: wp.array[int],
    marked: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Draws arm, target and object. `start.first`, `second`: the object's position and velocity.

    `others`: the arm's joints, where finger and thumb are, the target, a body, the receptacle (-1:
    none), and the site that grasps. `held`: who has the object in the hand, where `hold` puts it.
    """
    w = wp.tid()
    if not marked[w]:
        return
    seed = clock.seed[w]
    id = clock.stream_id[w]
    episode = clock.next_episode[w] - 1
    draw = draws[w]
    for i in range(_NUM_JOINTS):
        joint = start.others[i]
        low = -_PI
        high = _PI
        if start.jnt_limited[joint] != 0:
            bounds = start.jnt_range[w % start.jnt_range.shape[0], joint]
            low = wp.float64(bounds[0])
            high = wp.float64(bounds[1])
        drawn = uniform_in(seed, id, episode, draw, low, high)
        qpos[w, start.jnt_qposadr[joint]] = float(drawn)
        draw += 1
    # the hand is symmetric
    qpos[w, start.others[_NUM_JOINTS]] = qpos[w, start.others[_NUM_JOINTS + 1]]

    receptacle = start.others[_NUM_JOINTS + 3]
    most = _PI
    if receptacle >= 0:
        # it does not stand on its head
        most = _PI / wp.float64(3.0)
    x = uniform_in(seed, id, episode, draw, -wp.float64(0.4), wp.float64(0.4))
    z = uniform_in(seed, id, episode, draw + 1, wp.float64(0.1), wp.float64(0.4))
    angle = uniform_in(seed, id, episode, draw + 2, -most, most)
    draw += 3
    if receptacle >= 0:
        put_body(start, w, receptacle, x, z, angle)
    put_body(start, w, start.others[_NUM_JOINTS + 2], x, z, angle)

    which = uniform(seed, id, episode, draw)
    draw += 1
    start.held[w] = which < wp.float64(0.1)
    if which >= wp.float64(0.2):
        # it flies
        x = uniform_in(seed, id, episode, draw, -wp.float64(0.5), wp.float64(0.5))
        z = uniform_in(seed, id, episode, draw + 1, wp.float64(0.0), wp.float64(0.7))
        angle = uniform_in(seed, id, episode, draw + 2, wp.float64(0.0), wp.float64(2.0) * _PI)
        speed = uniform_in(seed, id, episode, draw + 3, -wp.float64(5.0), wp.float64(5.0))
        qvel[w, start.second] = float(speed)
        draw += 4
    qpos[w, start.first] = float(x)
    qpos[w, start.first + 1] = float(z)
    qpos[w, start.first + 2] = float(angle)
    draws[w] = draw


@wp.kernel
def hold(
    start: SuiteStart,
    clock: Clock,
    draws: wp.array[int],
    marked: wp.array[wp.bool],
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
):
    """Puts objects that are held where the hand is."""
    w = wp.tid()
    if not (marked[w] and start.held[w]):
        return
    site = start.others[_NUM_JOINTS + 4]
    place = start.site_xpos[w, site]
    turned = start.site_xmat[w, site]
    angle = _PI - wp.atan2(wp.float64(turned[2, 0]), wp.float64(turned[0, 0]))
    qpos[w, start.first] = place[0]
    qpos[w, start.first + 1] = place[2]
    qpos[w, start.first + 2] = float(angle)
