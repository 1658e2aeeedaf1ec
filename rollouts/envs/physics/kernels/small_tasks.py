# SPDX-License-Identifier: Apache-2.0
"""Pendulums on carts and arms; see `runners.py` for what kernels and options are."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import Outcome, Simulation
from rollouts.envs.physics.kernels.task_math import put_outcome, put_start, sum_of_squares

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})

_MAX_ANGLE = wp.constant(0.2)  # rad from upright; Gymnasium InvertedPendulum-v5
_LOWEST_TIP = wp.constant(1.0)  # m; Gymnasium InvertedDoublePendulum-v5


@wp.struct
class NoOptions:
    unused: int


@wp.kernel
def inverted_pendulum(
    options: NoOptions,
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w]:
        return
    if is_start:
        put_start(outcome, w, 0)
        return
    terminated = wp.abs(sim.qpos[w, 1]) > _MAX_ANGLE
    reward = float(1.0)
    if terminated:
        reward = 0.0
    outcome.infos[w, 0] = reward
    put_outcome(outcome, w, reward, terminated)


@wp.struct
class DoublePendulumOptions:
    healthy_reward: wp.array[float]


@wp.kernel
def inverted_double_pendulum(
    options: DoublePendulumOptions,
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w]:
        return
    if is_start:
        put_start(outcome, w, 0)
        return
    tip = sim.site_xpos[w, 0]
    x = tip[0]
    height = tip[2]
    v1 = sim.qvel[w, 1]
    v2 = sim.qvel[w, 2]
    of_distance = 0.01 * x * x + (height - 2.0) * (height - 2.0)
    of_speed = 1.0e-3 * v1 * v1 + 5.0e-3 * v2 * v2
    terminated = height <= _LOWEST_TIP
    survive = options.healthy_reward[w]
    if terminated:
        survive = 0.0
    outcome.infos[w, 0] = survive
    outcome.infos[w, 1] = -of_distance
    outcome.infos[w, 2] = -of_speed
    put_outcome(outcome, w, survive - of_distance - of_speed, terminated)


@wp.struct
class ReacherOptions:
    reward_dist_weight: wp.array[float]
    reward_control_weight: wp.array[float]


@wp.kernel
def reacher(
    options: ReacherOptions,
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w]:
        return
    if is_start:
        put_start(outcome, w, 0)
        return
    # from fingertip to target
    apart = wp.length(sim.xpos[w, sim.first] - sim.xpos[w, sim.second])
    distance = -apart * options.reward_dist_weight[w]
    control = -options.reward_control_weight[w] * sum_of_squares(sim.ctrl, w)
    outcome.infos[w, 0] = distance
    outcome.infos[w, 1] = control
    put_outcome(outcome, w, distance + control, False)


@wp.struct
class PusherOptions:
    reward_near_weight: wp.array[float]
    reward_dist_weight: wp.array[float]
    reward_control_weight: wp.array[float]


@wp.kernel
def pusher(
    options: PusherOptions,
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    w = wp.tid()
    if not marked[w]:
        return
    if is_start:
        put_start(outcome, w, 0)
        return
    # bodies: the arm's tips, the cylinder, the goal
    cylinder = sim.xpos[w, sim.second]
    to_arm = wp.length(cylinder - sim.xpos[w, sim.first])
    to_goal = wp.length(cylinder - sim.xpos[w, sim.third])
    near = -to_arm * options.reward_near_weight[w]
    distance = -to_goal * options.reward_dist_weight[w]
    control = -options.reward_control_weight[w] * sum_of_squares(sim.ctrl, w)
    outcome.infos[w, 0] = distance
    outcome.infos[w, 1] = control
    outcome.infos[w, 2] = near
    put_outcome(outcome, w, distance + control + near, False)
