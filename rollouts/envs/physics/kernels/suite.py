# SPDX-License-Identifier: Apache-2.0
"""Tasks of the DeepMind Control Suite; see `runners.py` for what kernels are.

Rewards are those of native/include/rollouts/envs/dm_control/. What a task looks at stands in
`sim.first`, `sim.second`, `sim.third` (bodies, geoms, or places of sensors) and `sim.goal`.
"""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import Outcome, Simulation
from rollouts.envs.physics.kernels.task_math import put_outcome

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})

_LOG_OF_TENTH = wp.constant(-2.302585092994046)
_UPRIGHT = wp.constant(0.9902680687415704)  # cos(8 degrees)
_FIRST_POLE = wp.constant(2)  # a body, after the world and the cart
_INF = wp.constant(wp.inf)


@wp.func
def beyond(x: float, low: float, high: float) -> float:
    """How far a number is outside its bounds."""
    return wp.max(wp.max(low - x, x - high), 0.0)


@wp.func
def gaussian(x: float) -> float:
    """1 at 0, a tenth at 1."""
    return wp.exp(_LOG_OF_TENTH * x * x)


@wp.func
def linear(x: float, at_1: float) -> float:
    return wp.max(1.0 - x * (1.0 - at_1), 0.0)


@wp.func
def quadratic(x: float) -> float:
    """1 at 0, 0 from 1 on."""
    return wp.max(1.0 - x * x, 0.0)


@wp.func
def is_within(x: float, low: float, high: float) -> float:
    if low <= x and x <= high:
        return 1.0
    return 0.0


@wp.func
def cosine(sim: Simulation, w: int, body: int) -> float:
    """Of a body's angle to upright."""
    turned = sim.xmat[w, body]
    return turned[2, 2]


@wp.func
def small_control(sim: Simulation, w: int) -> float:
    """1 without controls, 0 where all are at a bound of -1 or 1."""
    total = float(0.0)
    for i in range(sim.ctrl.shape[1]):
        total += quadratic(wp.abs(sim.ctrl[w, i]))
    return total / float(sim.ctrl.shape[1])


@wp.kernel
def acrobot(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: the target's radius, of sites `first` and `second`. `third`: 1 where sparse."""
    w = wp.tid()
    if not marked[w] or is_start:
        return
    distance = wp.length(sim.site_xpos[w, sim.first] - sim.site_xpos[w, sim.second])
    reward = is_within(distance, 0.0, sim.goal)
    if sim.third == 0:
        reward = gaussian(beyond(distance, 0.0, sim.goal))
    put_outcome(outcome, w, reward, False)


@wp.kernel
def point_mass(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: the target's radius, of geoms `first` and `second`."""
    w = wp.tid()
    if not marked[w] or is_start:
        return
    distance = wp.length(sim.geom_xpos[w, sim.first] - sim.geom_xpos[w, sim.second])
    near = gaussian(beyond(distance, 0.0, sim.goal) / sim.goal)
    put_outcome(outcome, w, near * ((small_control(sim, w) + 4.0) / 5.0), False)


@wp.kernel
def cartpole(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w] or is_start:
        return
    num_bodies = sim.xmat.shape[1]
    upright = float(0.0)
    for body in range(_FIRST_POLE, num_bodies):
        upright += (cosine(sim, w, body) + 1.0) / 2.0
    upright = upright / float(num_bodies - _FIRST_POLE)
    centered = (1.0 + gaussian(wp.abs(sim.qpos[w, 0]) / 2.0)) / 2.0
    small_force = (4.0 + quadratic(wp.abs(sim.ctrl[w, 0]))) / 5.0
    small_velocity = float(1.0)
    for i in range(1, sim.qvel.shape[1]):
        small_velocity = wp.min(small_velocity, gaussian(sim.qvel[w, i] / 5.0))
    reward = upright * small_force * ((1.0 + small_velocity) / 2.0) * centered
    put_outcome(outcome, w, reward, False)


@wp.kernel
def cartpole_sparse(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w] or is_start:
        return
    reward = is_within(sim.qpos[w, 0], -0.25, 0.25)
    for body in range(_FIRST_POLE, sim.xmat.shape[1]):
        reward = reward * is_within(cosine(sim, w, body), 0.995, 1.0)
    put_outcome(outcome, w, reward, False)


@wp.kernel
def pendulum(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if marked[w] and not is_start:
        put_outcome(outcome, w, is_within(cosine(sim, w, sim.first), _UPRIGHT, 1.0), False)


@wp.kernel
def suite_reacher(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: the radii of target and finger, geoms `first` and `second`."""
    w = wp.tid()
    if not marked[w] or is_start:
        return
    apart = sim.geom_xpos[w, sim.first] - sim.geom_xpos[w, sim.second]
    distance = wp.sqrt(apart[0] * apart[0] + apart[1] * apart[1])
    put_outcome(outcome, w, is_within(distance, 0.0, sim.goal), False)


@wp.kernel
def walker(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: m/s, 0: it is to stand. `first`: the torso, `second`: its velocity's sensor."""
    w = wp.tid()
    if not marked[w] or is_start:
        return
    place = sim.xpos[w, sim.first]
    standing = gaussian(beyond(place[2], 1.2, _INF) / 0.6)
    upright = (1.0 + cosine(sim, w, sim.first)) / 2.0
    reward = (3.0 * standing + upright) / 4.0
    if sim.goal > 0.0:
        slow = beyond(sim.sensordata[w, sim.second], sim.goal, _INF)
        reward = reward * (5.0 * linear(slow / (sim.goal / 2.0), 0.5) + 1.0) / 6.0
    put_outcome(outcome, w, reward, False)


@wp.kernel
def suite_hopper(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: m/s, 0: it is to stand. Torso, foot, and the velocity's sensor."""
    w = wp.tid()
    if not marked[w] or is_start:
        return
    torso = sim.xipos[w, sim.first]
    foot = sim.xipos[w, sim.second]
    reward = is_within(torso[2] - foot[2], 0.6, 2.0)
    if sim.goal > 0.0:
        slow = beyond(sim.sensordata[w, sim.third], sim.goal, _INF)
        reward = reward * linear(slow / (sim.goal / 2.0), 0.5)
    else:
        reward = reward * ((small_control(sim, w) + 4.0) / 5.0)
    put_outcome(outcome, w, reward, False)


@wp.kernel
def cheetah(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: m/s. `first`: the velocity's sensor."""
    w = wp.tid()
    if not marked[w] or is_start:
        return
    slow = beyond(sim.sensordata[w, sim.first], sim.goal, _INF)
    put_outcome(outcome, w, linear(slow / sim.goal, 0.0), False)
