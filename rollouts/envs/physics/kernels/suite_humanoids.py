# SPDX-License-Identifier: Apache-2.0
"""Humanoids of the DeepMind Control Suite; see `suite.py`."""

from __future__ import annotations

import warp as wp

from rollouts.envs.physics.kernels.structs import Outcome, Simulation
from rollouts.envs.physics.kernels.suite import beyond, gaussian, linear, small_control
from rollouts.envs.physics.kernels.task_math import put_outcome

# nobody takes gradients, which are half of what would be compiled
wp.set_module_options({"enable_backward": False})

_INF = wp.constant(wp.inf)
_HEIGHT = wp.constant(1.4)  # metres, of the head of who stands
_NUM_LIMBS = wp.constant(4)


@wp.kernel
def suite_humanoid(
    sim: Simulation,
    outcome: Outcome,
    marked: wp.array[wp.bool],
    is_start: bool,
):
    """`sim.goal`: m/s, 0: it is to stand. `first`: the torso, `second`: the head, `third`: the
    velocity's sensor. `others`: hands and feet, then the torso's axis that points up: 1 or 2.

    Shows where hands and feet are as the torso sees them.
    """
    w = wp.tid()
    if not marked[w]:
        return
    torso = sim.xpos[w, sim.first]
    turned = sim.xmat[w, sim.first]
    for limb in range(_NUM_LIMBS):
        seen = wp.transpose(turned) * (sim.xpos[w, sim.others[limb]] - torso)
        for i in range(3):
            outcome.shown[w, 3 * limb + i] = seen[i]
    if is_start:
        return
    head = sim.xpos[w, sim.second]
    standing = gaussian(beyond(head[2], _HEIGHT, _INF) / (_HEIGHT / 4.0))
    upright = linear(beyond(turned[2, sim.others[_NUM_LIMBS]], 0.9, _INF) / 1.9, 0.0)
    x = sim.sensordata[w, sim.third]
    y = sim.sensordata[w, sim.third + 1]
    moving = (gaussian(x / 2.0) + gaussian(y / 2.0)) / 2.0
    if sim.goal > 0.0:
        slow = beyond(wp.sqrt(x * x + y * y), sim.goal, _INF)
        moving = (5.0 * linear(slow / sim.goal, 0.0) + 1.0) / 6.0
    small = (4.0 + small_control(sim, w)) / 5.0
    put_outcome(outcome, w, small * (standing * upright) * moving, False)
