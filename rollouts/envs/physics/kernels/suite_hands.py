# SPDX-License-Identifier: Apache-2.0
"""Tasks of the DeepMind Control Suite that move an object; see `suite.py`."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import Outcome, Simulation
from rollouts.envs.physics.kernels.task_math import put_outcome

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})

_SPIN = wp.constant(-15.0)  # rad/s


@wp.kernel
def ball_in_cup(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: how far the ball, a body (`second`), may be from the middle of the target, a site
    (`first`), in x and in z.
    """
    w = wp.tid()
    if not marked[w] or is_start:
        return
    apart = sim.site_xpos[w, sim.first] - sim.xpos[w, sim.second]
    reward = float(0.0)
    if wp.abs(apart[0]) < sim.goal and wp.abs(apart[2]) < sim.goal:
        reward = 1.0
    put_outcome(outcome, w, reward, False)


@wp.kernel
def finger_spin(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.first`: the sensor of the hinge's velocity."""
    w = wp.tid()
    if not marked[w] or is_start:
        return
    reward = float(0.0)
    if sim.sensordata[w, sim.first] <= _SPIN:
        reward = 1.0
    put_outcome(outcome, w, reward, False)


@wp.kernel
def finger_turn(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: the target's radius. `first`, `second`: sensors of its place and the tip's.

    Shows how far the tip is from the target's edge.
    """
    w = wp.tid()
    if not marked[w]:
        return
    x = sim.sensordata[w, sim.first] - sim.sensordata[w, sim.second]
    z = sim.sensordata[w, sim.first + 2] - sim.sensordata[w, sim.second + 2]
    distance = wp.sqrt(x * x + z * z) - sim.goal
    outcome.shown[w, 0] = distance
    if is_start:
        return
    reward = float(0.0)
    if distance <= 0.0:
        reward = 1.0
    put_outcome(outcome, w, reward, False)
