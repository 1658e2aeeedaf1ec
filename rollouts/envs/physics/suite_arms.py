# SPDX-License-Identifier: Apache-2.0
"""Manipulator of the DeepMind Control Suite."""

from __future__ import annotations

from typing import Any

from rollouts.envs.physics.kernels import observing, suite_arms, suite_starts
from rollouts.envs.physics.suite_parts import OBJECTS, body, make_task, number_of, position, sensor
from rollouts.envs.physics.tasks import Part, Task

_JOINTS = (
    *("arm_root", "arm_shoulder", "arm_elbow", "arm_wrist"),
    *("finger", "fingertip", "thumb", "thumbtip"),
)
# sites that are to meet
_BALL_PAIRS = ("ball", "target_ball")
_PEG_PAIRS = (
    *("peg_grasp", "grasp", "peg_pinch", "pinch"),
    *("peg", "target_peg", "target_peg_tip", "peg_tip"),
)


def _pose(one: int) -> list[Part]:
    """x, z and, as cosine and sine of half the angle, the orientation of a body."""
    places = [Part("xpos", 3 * one + axis, 1) for axis in (0, 2)]
    return [*places, *(Part("xquat", 4 * one + axis, 1) for axis in (0, 2))]


def manipulator(id: str, host: Any) -> Task:
    """Brings a ball or a peg to a target, or inserts it there."""
    is_peg = id.endswith("Peg-v1")
    name = "peg" if is_peg else "ball"
    receptacle = -1
    if "Insert" in id:
        receptacle = body(host, "slot" if is_peg else "cup")

    def joint(of: str) -> int:
        return number_of(host, OBJECTS.mjOBJ_JOINT, of)

    def site(of: str) -> int:
        return number_of(host, OBJECTS.mjOBJ_SITE, of)

    joints = [joint(one) for one in _JOINTS]
    arm = [int(adr[one]) for one in joints for adr in (host.jnt_qposadr, host.jnt_dofadr)]
    # x, z and the angle follow each other
    velocity = int(host.jnt_dofadr[joint(f"{name}_x")])
    target = body(host, f"target_{name}")
    fingers = [position(host, one) for one in ("finger", "thumb")]
    return make_task(
        suite_arms.manipulator,
        [
            Part("shown"),
            # all five
            Part("sensordata", sensor(host, "palm_touch"), 5, kind=observing.LOG_1_PLUS),
            *_pose(body(host, "hand")),
            *_pose(body(host, name)),
            Part("qvel", velocity, 3),
            *_pose(target),
        ],
        start=suite_starts.JOINTS,
        places=(
            *(int(is_peg), 0, 0),
            *arm,
            *(site(one) for one in (_PEG_PAIRS if is_peg else _BALL_PAIRS)),
        ),
        num_shown=3 * len(joints),
        own_fields=("body_pos", "body_quat"),
        drawn=(
            *(position(host, f"{name}_x"), velocity),
            *(*joints, *fingers, target, receptacle, site("grasp")),
        ),
        draw=suite_arms.draw_manipulator,
        place=suite_arms.hold,
        moves_geoms=True,
        is_apart=True,
    )
