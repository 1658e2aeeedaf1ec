# SPDX-License-Identifier: Apache-2.0
"""Tasks of the DeepMind Control Suite in water, and lqr; see `suite.py`.

What they observe that is no array of mujoco_warp's is in `outcome.shown`.
"""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import Outcome, Simulation
from rollouts.envs.physics.kernels.suite import beyond, cosine, gaussian
from rollouts.envs.physics.kernels.task_math import put_outcome, sum_of_squares

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})

_AT_REST = wp.constant(1.0e-6)
_CONTROL_COST = wp.constant(0.1)
_OF_LINK = wp.constant(6)  # numbers of a velocimeter and a gyroscope


@wp.func
def long_tail(x: float) -> float:
    """1 at 0, a tenth at 1."""
    return 1.0 / (9.0 * x * x + 1.0)


@wp.kernel
def fish_upright(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.first`: the torso."""
    w = wp.tid()
    if marked[w] and not is_start:
        put_outcome(outcome, w, gaussian(beyond(cosine(sim, w, sim.first), 1.0, 1.0)), False)


@wp.kernel
def fish_swim(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: the radii of target and mouth, geoms `second` and `third`; `first`: the torso.

    Shows the way to the target as the mouth sees it.
    """
    w = wp.tid()
    if not marked[w]:
        return
    way = sim.geom_xpos[w, sim.second] - sim.geom_xpos[w, sim.third]
    seen = wp.transpose(sim.geom_xmat[w, sim.third]) * way
    for i in range(3):
        outcome.shown[w, i] = seen[i]
    if is_start:
        return
    near = gaussian(beyond(wp.length(seen), 0.0, sim.goal) / (2.0 * sim.goal))
    reward = (7.0 * near + 0.5 * (cosine(sim, w, sim.first) + 1.0)) / 8.0
    put_outcome(outcome, w, reward, False)


@wp.kernel
def suite_swimmer(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: the radius of the target, geom `second`. `first`: the head, a body; `third`: its
    velocimeter; `others`: the nose, a geom.

    Shows the way to the target as the head sees it, and each link's velocities in the plane.
    """
    w = wp.tid()
    if not marked[w]:
        return
    way = sim.geom_xpos[w, sim.second] - sim.geom_xpos[w, sim.others[0]]
    seen = wp.transpose(sim.xmat[w, sim.first]) * way
    outcome.shown[w, 0] = seen[0]
    outcome.shown[w, 1] = seen[1]
    num_links = (sim.sensordata.shape[1] - sim.third) // _OF_LINK
    for i in range(num_links):
        at = sim.third + _OF_LINK * i
        outcome.shown[w, 2 + 3 * i] = sim.sensordata[w, at]
        outcome.shown[w, 3 + 3 * i] = sim.sensordata[w, at + 1]
        outcome.shown[w, 4 + 3 * i] = sim.sensordata[w, at + 5]
    if is_start:
        return
    distance = wp.sqrt(seen[0] * seen[0] + seen[1] * seen[1])
    near = long_tail(beyond(distance, 0.0, sim.goal) / (5.0 * sim.goal))
    put_outcome(outcome, w, near, False)


@wp.kernel
def lqr(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w] or is_start:
        return
    position = sum_of_squares(sim.qpos, w)
    cost = 0.5 * position + 0.5 * _CONTROL_COST * sum_of_squares(sim.ctrl, w)
    size = wp.sqrt(position + sum_of_squares(sim.qvel, w))
    put_outcome(outcome, w, 1.0 - cost, size < _AT_REST)
