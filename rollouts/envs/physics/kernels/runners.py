# SPDX-License-Identifier: Apache-2.0
"""Tasks that run in the direction of x: HalfCheetah, Swimmer, Hopper, Walker2d, Ant.

Each kernel looks at the marked worlds, after a step or at an episode's start (`is_start`). Options
are those of the header of the same name in native/include/rollouts/envs/mujoco/, one for each
world.
"""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import Outcome, Simulation
from rollouts.envs.physics.kernels.task_math import (
    is_inside,
    put_outcome,
    put_start,
    resting,
    speed,
    sum_of_squares,
)

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})


@wp.struct
class RunnerOptions:
    """Of HalfCheetah and Swimmer."""

    forward_reward_weight: wp.array[float]
    ctrl_cost_weight: wp.array[float]


@wp.kernel
def half_cheetah(
    options: RunnerOptions,
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w]:
        return
    x = sim.qpos[w, 0]
    outcome.infos[w, 0] = x
    if is_start:
        put_start(outcome, w, 1)
    else:
        x_velocity = speed(outcome, sim, w, 0, wp.float64(x))
        forward = options.forward_reward_weight[w] * x_velocity
        cost = options.ctrl_cost_weight[w] * sum_of_squares(sim.ctrl, w)
        outcome.infos[w, 1] = x_velocity
        outcome.infos[w, 2] = forward
        outcome.infos[w, 3] = -cost
        put_outcome(outcome, w, forward - cost, False)
    outcome.before[w, 0] = wp.float64(x)


@wp.kernel
def swimmer(
    options: RunnerOptions,
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w]:
        return
    x = sim.qpos[w, 0]
    y = sim.qpos[w, 1]
    outcome.infos[w, 0] = x
    outcome.infos[w, 1] = y
    outcome.infos[w, 2] = wp.sqrt(x * x + y * y)
    if is_start:
        put_start(outcome, w, 3)
    else:
        x_velocity = speed(outcome, sim, w, 0, wp.float64(x))
        forward = options.forward_reward_weight[w] * x_velocity
        cost = options.ctrl_cost_weight[w] * sum_of_squares(sim.ctrl, w)
        outcome.infos[w, 3] = x_velocity
        outcome.infos[w, 4] = speed(outcome, sim, w, 1, wp.float64(y))
        outcome.infos[w, 5] = forward
        outcome.infos[w, 6] = -cost
        put_outcome(outcome, w, forward - cost, False)
    outcome.before[w, 0] = wp.float64(x)
    outcome.before[w, 1] = wp.float64(y)


@wp.struct
class UprightOptions:
    """Of Hopper and Walker2d; the latter has no healthy_state."""

    forward_reward_weight: wp.array[float]
    ctrl_cost_weight: wp.array[float]
    healthy_reward: wp.array[float]
    terminate_when_unhealthy: wp.array[float]
    healthy_state_min: wp.array[float]
    healthy_state_max: wp.array[float]
    healthy_z_min: wp.array[float]
    healthy_z_max: wp.array[float]
    healthy_angle_min: wp.array[float]
    healthy_angle_max: wp.array[float]


@wp.func
def is_upright(options: UprightOptions, sim: Simulation, w: int) -> bool:
    z = sim.qpos[w, 1]
    angle = sim.qpos[w, 2]
    # positions and velocities without x and z
    for i in range(2, sim.qpos.shape[1]):
        if not is_inside(
            sim.qpos[w, i], options.healthy_state_min[w], options.healthy_state_max[w]
        ):
            return False
    for i in range(sim.qvel.shape[1]):
        if not is_inside(
            sim.qvel[w, i], options.healthy_state_min[w], options.healthy_state_max[w]
        ):
            return False
    return is_inside(z, options.healthy_z_min[w], options.healthy_z_max[w]) and is_inside(
        angle, options.healthy_angle_min[w], options.healthy_angle_max[w]
    )


@wp.kernel
def upright_runner(
    options: UprightOptions,
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w]:
        return
    x = sim.qpos[w, 0]
    outcome.infos[w, 0] = x
    outcome.infos[w, 1] = sim.qpos[w, 1] - resting(sim, w, 1)
    if is_start:
        put_start(outcome, w, 2)
    else:
        x_velocity = speed(outcome, sim, w, 0, wp.float64(x))
        forward = options.forward_reward_weight[w] * x_velocity
        cost = options.ctrl_cost_weight[w] * sum_of_squares(sim.ctrl, w)
        healthy = is_upright(options, sim, w)
        survive = float(0.0)
        if healthy:
            survive = options.healthy_reward[w]
        outcome.infos[w, 2] = x_velocity
        outcome.infos[w, 3] = forward
        outcome.infos[w, 4] = -cost
        outcome.infos[w, 5] = survive
        terminated = not healthy and options.terminate_when_unhealthy[w] > 0.0
        put_outcome(outcome, w, forward + survive - cost, terminated)
    outcome.before[w, 0] = wp.float64(x)


@wp.struct
class AntOptions:
    forward_reward_weight: wp.array[float]
    ctrl_cost_weight: wp.array[float]
    contact_cost_weight: wp.array[float]
    healthy_reward: wp.array[float]
    terminate_when_unhealthy: wp.array[float]
    healthy_z_min: wp.array[float]
    healthy_z_max: wp.array[float]
    contact_force_min: wp.array[float]
    contact_force_max: wp.array[float]


@wp.func
def contact_cost(options: AntOptions, sim: Simulation, w: int) -> float:
    total = float(0.0)
    for i in range(sim.cfrc_ext.shape[1]):
        force = wp.min(
            wp.max(sim.cfrc_ext[w, i], options.contact_force_min[w]), options.contact_force_max[w]
        )
        total += force * force
    return options.contact_cost_weight[w] * total


@wp.kernel
def ant(
    options: AntOptions,
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w]:
        return
    x = sim.qpos[w, 0]
    y = sim.qpos[w, 1]
    outcome.infos[w, 0] = x
    outcome.infos[w, 1] = y
    outcome.infos[w, 2] = wp.sqrt(x * x + y * y)
    # speeds are the main body's
    place = sim.xpos[w, sim.first]
    if is_start:
        put_start(outcome, w, 3)
    else:
        x_velocity = speed(outcome, sim, w, 0, wp.float64(place[0]))
        z = sim.qpos[w, 2]
        healthy = options.healthy_z_min[w] <= z and z <= options.healthy_z_max[w]
        survive = float(0.0)
        if healthy:
            survive = options.healthy_reward[w]
        forward = options.forward_reward_weight[w] * x_velocity
        cost = options.ctrl_cost_weight[w] * sum_of_squares(sim.ctrl, w)
        of_contacts = contact_cost(options, sim, w)
        outcome.infos[w, 3] = x_velocity
        outcome.infos[w, 4] = speed(outcome, sim, w, 1, wp.float64(place[1]))
        outcome.infos[w, 5] = forward
        outcome.infos[w, 6] = -cost
        outcome.infos[w, 7] = -of_contacts
        outcome.infos[w, 8] = survive
        terminated = not healthy and options.terminate_when_unhealthy[w] > 0.0
        put_outcome(outcome, w, forward + survive - (cost + of_contacts), terminated)
    outcome.before[w, 0] = wp.float64(place[0])
    outcome.before[w, 1] = wp.float64(place[1])
