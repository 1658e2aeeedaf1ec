# SPDX-License-Identifier: Apache-2.0
"""Quadruped and dog of the DeepMind Control Suite."""

from __future__ import annotations

import math
from typing import Any

import mujoco

from rollouts.envs.physics.kernels import (
    observing,
    suite_animal_starts,
    suite_animals,
    suite_starts,
)
from rollouts.envs.physics.suite_parts import (
    OBJECTS,
    body,
    make_task,
    number_of,
    position,
    sensor,
    turned,
)
from rollouts.envs.physics.tasks import Part, Task

_QUADRUPED_SPEEDS = {"QuadrupedWalk-v1": 0.5, "QuadrupedRun-v1": 5.0}  # m/s
_DOG_SPEEDS = {  # m/s
    "DogStand-v1": 0.0,
    "DogWalk-v1": 1.0,
    "DogTrot-v1": 3.0,
    "DogRun-v1": 9.0,
    "DogFetch-v1": 0.0,
}
# on the ground it has up to 40 contacts and 255 rows
_DOG_MEMORY = {"nconmax": 96, "njmax": 512}
# a root's positions and velocities come first
_ROOT_POSITIONS, _ROOT_VELOCITIES = 7, 6


def _hinges(host: Any) -> list[Part]:
    """Positions and velocities; they follow the root."""
    count = int((host.jnt_type == mujoco.mjtJoint.mjJNT_HINGE).sum())
    return [Part("qpos", _ROOT_POSITIONS, count), Part("qvel", _ROOT_VELOCITIES, count)]


def _ball(host: Any) -> tuple[int, int]:
    """Where its position and velocity are."""
    root = number_of(host, OBJECTS.mjOBJ_JOINT, "ball_root")
    return position(host, "ball_root"), int(host.jnt_dofadr[root])


def _geom(host: Any, name: str) -> int:
    return number_of(host, OBJECTS.mjOBJ_GEOM, name)


def _site(host: Any, name: str) -> int:
    return number_of(host, OBJECTS.mjOBJ_SITE, name)


def quadruped(id: str, host: Any) -> Task:
    """Walks, runs, or fetches a ball."""
    torso, velocity = body(host, "torso"), sensor(host, "velocimeter")
    forces = sensor(host, "force_toe_front_left")
    parts = [
        *_hinges(host),
        Part("act"),
        Part("sensordata", velocity, 3),
        *turned(torso, (8,)),
        # an accelerometer and a gyroscope, then forces and torques at four toes
        Part("sensordata", sensor(host, "imu_accel"), 6),
        Part("sensordata", forces, 24, kind=observing.ASINH),
    ]
    if id != "QuadrupedFetch-v1":
        return make_task(
            suite_animals.quadruped_move,
            parts,
            start=suite_starts.JOINTS,
            goal=_QUADRUPED_SPEEDS[id],
            places=(torso, velocity),
            begin=suite_animal_starts.turn_quadruped,
            draw=suite_animal_starts.lift,
            is_apart=True,
        )
    ball, floor = _ball(host), float(host.geom_size[_geom(host, "floor"), 0])
    workspace, target = _site(host, "workspace"), _site(host, "target")
    reach = host.site_size[workspace, 0] + host.geom_size[_geom(host, "ball"), 0]
    return make_task(
        suite_animals.quadruped_fetch,
        [*parts, Part("shown")],
        start=suite_starts.JOINTS,
        goal=floor * math.sqrt(2),
        places=(torso, workspace, target, body(host, "ball"), ball[1]),
        sizes=(float(reach), float(host.site_size[target, 0])),
        num_shown=12,
        drawn=ball,
        radius=0.9 * floor,
        begin=suite_animal_starts.place_quadruped,
        draw=suite_animal_starts.lift,
        finish=suite_animal_starts.drop_ball,
        is_apart=True,
    )


def dog(id: str, host: Any) -> Task:
    """Stands, walks, trots, runs, or fetches a ball."""
    torso, pelvis, skull = (body(host, name) for name in ("torso", "pelvis", "skull"))
    touch = sensor(host, "palm_L")
    parts = [
        *_hinges(host),
        *(Part("xpos", 3 * one + 2, 1) for one in (torso, pelvis)),
        *(Part("xmat", 9 * one + 6, 3) for one in (skull, torso, pelvis)),
        Part("shown", 0, 3),
        # an accelerometer, a velocimeter and a gyroscope, forces at feet and hands, touch
        Part("sensordata", sensor(host, "accelerometer"), 9),
        Part("sensordata", sensor(host, "foot_L"), 12),
        Part("sensordata", touch, 4),
        Part("act"),
    ]
    # heights of the model's own pose count as standing, nearly
    data = mujoco.MjData(host)
    mujoco.mj_kinematics(host, data)
    weight = -host.opt.gravity[2] * host.body_subtreemass[torso]
    sizes = [float(one) for one in (weight, *(0.9 * data.xpos[[torso, pelvis], 2]))]
    places = [torso, pelvis, skull, sensor(host, "torso_linvel"), touch]
    if id != "DogFetch-v1":
        return make_task(
            suite_animals.dog,
            parts,
            start=suite_starts.JOINTS,
            goal=_DOG_SPEEDS[id],
            places=tuple(places),
            sizes=tuple(sizes),
            num_shown=3,
            draw=suite_animal_starts.draw_dog,
            memory=_DOG_MEMORY,
        )
    head, ball, target = _site(host, "head"), _geom(host, "ball"), _geom(host, "target")
    bites = [_site(host, name) for name in ("upper_bite", "lower_bite")]
    places += [head, int(host.site_bodyid[head]), ball, target, body(host, "ball"), *bites]
    sizes += [float(host.site_size[bites[0], 0]), float(host.geom_size[target, 0])]
    floor = float(host.geom_size[_geom(host, "floor"), 0])
    return make_task(
        suite_animals.dog_fetch,
        [*parts, Part("shown", 3)],
        start=suite_starts.JOINTS,
        goal=floor,
        places=tuple(places),
        sizes=tuple(sizes),
        num_shown=12,
        drawn=_ball(host),
        radius=0.75 * floor,
        draw=suite_animal_starts.draw_dog,
        finish=suite_animal_starts.throw_ball,
        memory=_DOG_MEMORY,
    )
