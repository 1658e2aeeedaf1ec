# SPDX-License-Identifier: Apache-2.0
"""Humanoid and HumanoidStandup; see `runners.py` for what kernels and options are."""

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
class HumanoidOptions:
    forward_reward_weight: wp.array[float]
    ctrl_cost_weight: wp.array[float]
    contact_cost_weight: wp.array[float]
    contact_cost_min: wp.array[float]
    contact_cost_max: wp.array[float]
    healthy_reward: wp.array[float]
    terminate_when_unhealthy: wp.array[float]
    healthy_z_min: wp.array[float]
    healthy_z_max: wp.array[float]


@wp.func
def mass_center(sim: Simulation, w: int, axis: int) -> wp.float64:
    total = wp.float64(0.0)
    mass = wp.float64(0.0)
    row = w % sim.body_mass.shape[0]
    for body in range(sim.body_mass.shape[1]):
        place = sim.xipos[w, body]
        total += wp.float64(sim.body_mass[row, body]) * wp.float64(place[axis])
        mass += wp.float64(sim.body_mass[row, body])
    return total / mass


@wp.func
def put_tendons(outcome: Outcome, sim: Simulation, w: int, first: int) -> int:
    """Writes lengths and speeds from `first` on; where they end."""
    count = sim.ten_length.shape[1]
    for i in range(count):
        outcome.infos[w, first + i] = sim.ten_length[w, i]
        outcome.infos[w, first + count + i] = sim.ten_velocity[w, i]
    return first + 2 * count


@wp.func
def cost_of_contacts(
    sim: Simulation, w: int, weight: wp.array[float], low: wp.array[float], high: wp.array[float]
) -> float:
    cost = weight[w] * sum_of_squares(sim.cfrc_ext, w)
    return wp.min(wp.max(cost, low[w]), high[w])


@wp.kernel
def humanoid(
    options: HumanoidOptions,
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
    at = put_tendons(outcome, sim, w, 2)
    outcome.infos[w, at] = wp.sqrt(x * x + y * y)
    center_x = mass_center(sim, w, 0)
    center_y = mass_center(sim, w, 1)
    if is_start:
        put_start(outcome, w, at + 1)
    else:
        x_velocity = speed(outcome, sim, w, 0, center_x)
        healthy = is_inside(sim.qpos[w, 2], options.healthy_z_min[w], options.healthy_z_max[w])
        survive = float(0.0)
        if healthy:
            survive = options.healthy_reward[w]
        forward = options.forward_reward_weight[w] * x_velocity
        cost = options.ctrl_cost_weight[w] * sum_of_squares(sim.ctrl, w)
        of_contacts = cost_of_contacts(
            sim,
            w,
            options.contact_cost_weight,
            options.contact_cost_min,
            options.contact_cost_max,
        )
        outcome.infos[w, at + 1] = x_velocity
        outcome.infos[w, at + 2] = speed(outcome, sim, w, 1, center_y)
        outcome.infos[w, at + 3] = survive
        outcome.infos[w, at + 4] = forward
        outcome.infos[w, at + 5] = -cost
        outcome.infos[w, at + 6] = -of_contacts
        terminated = not healthy and options.terminate_when_unhealthy[w] > 0.0
        put_outcome(outcome, w, forward + survive - (cost + of_contacts), terminated)
    outcome.before[w, 0] = center_x
    outcome.before[w, 1] = center_y


@wp.struct
class StandupOptions:
    ctrl_cost_weight: wp.array[float]
    impact_cost_weight: wp.array[float]
    impact_cost_min: wp.array[float]
    impact_cost_max: wp.array[float]
    uph_cost_weight: wp.array[float]  # taken by Gymnasium's class and not used there either


@wp.kernel
def humanoid_standup(
    options: StandupOptions,
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w]:
        return
    z = sim.qpos[w, 2]
    outcome.infos[w, 0] = sim.qpos[w, 0]
    outcome.infos[w, 1] = sim.qpos[w, 1]
    outcome.infos[w, 2] = z - resting(sim, w, 2)
    at = put_tendons(outcome, sim, w, 3)
    if is_start:
        put_start(outcome, w, at)
        return
    up = z / float(sim.timestep[w])
    cost = options.ctrl_cost_weight[w] * sum_of_squares(sim.ctrl, w)
    of_impacts = cost_of_contacts(
        sim, w, options.impact_cost_weight, options.impact_cost_min, options.impact_cost_max
    )
    outcome.infos[w, at] = up
    outcome.infos[w, at + 1] = -cost
    outcome.infos[w, at + 2] = -of_impacts
    put_outcome(outcome, w, up - cost - of_impacts + 1.0, False)
