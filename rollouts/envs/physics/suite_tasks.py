# SPDX-License-Identifier: Apache-2.0
"""Tasks of the DeepMind Control Suite, of the names in its models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rollouts.envs.physics.kernels import (
    observing,
    suite,
    suite_hands,
    suite_humanoids,
    suite_starts,
    suite_swimmers,
)
from rollouts.envs.physics.suite_animals import dog, quadruped
from rollouts.envs.physics.suite_arms import manipulator
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
from rollouts.families.dm_control import control_timestep

# of the target, metres
_RADII = {
    "FingerTurnEasy-v1": 0.07,
    "FingerTurnHard-v1": 0.03,
    "ReacherEasy-v1": 0.05,
    "ReacherHard-v1": 0.015,
}
_WALKER_SPEEDS = {"WalkerStand-v1": 0.0, "WalkerWalk-v1": 1.0, "WalkerRun-v1": 8.0}  # m/s
_HOPPER_SPEEDS = {"HopperStand-v1": 0.0, "HopperHop-v1": 2.0}  # m/s
_HUMANOID_SPEEDS = {"Stand": 0.0, "Walk": 1.0, "Run": 10.0}  # m/s


def _acrobot(id: str, host: Any) -> Task:
    arms = [body(host, name) for name in ("upper_arm", "lower_arm")]
    # what is horizontal of their z axes, then what is vertical
    rotations = [part for element in (2, 8) for arm in arms for part in turned(arm, (element,))]
    target, tip = (number_of(host, OBJECTS.mjOBJ_SITE, name) for name in ("target", "tip"))
    return make_task(
        suite.acrobot,
        [*rotations, Part("qvel")],
        start=suite_starts.ANY_ANGLES,
        goal=float(host.site_size[target, 0]),
        places=(target, tip, int("Sparse" in id)),
    )


def _point_mass(id: str, host: Any) -> Task:
    target, mass = (number_of(host, OBJECTS.mjOBJ_GEOM, name) for name in ("target", "pointmass"))
    return make_task(
        suite.point_mass,
        [Part("qpos"), Part("qvel")],
        start=suite_starts.JOINTS,
        goal=float(host.geom_size[target, 0]),
        places=(target, mass),
    )


def _cartpole(id: str, host: Any) -> Task:
    poles = range(2, host.nbody)
    parts = [Part("qpos", 0, 1), *(part for body in poles for part in turned(body, (8, 2)))]
    is_balanced = id.startswith("CartpoleBalance")
    return make_task(
        suite.cartpole_sparse if "Sparse" in id else suite.cartpole,
        [*parts, Part("qvel")],
        start=suite_starts.BALANCED if is_balanced else suite_starts.HANGING,
    )


def _pendulum(id: str, host: Any) -> Task:
    pole = body(host, "pole")
    parts = [*turned(pole, (8, 2)), Part("qvel")]
    return make_task(suite.pendulum, parts, start=suite_starts.ANY_ANGLES, places=(pole,))


def _reacher(id: str, host: Any) -> Task:
    target, finger = (number_of(host, OBJECTS.mjOBJ_GEOM, name) for name in ("target", "finger"))
    host.geom_size[target, 0] = _RADII[id]
    to_target = Part("geom_xpos", 3 * target, 2, kind=observing.DIFFERENCE, other=3 * finger)
    return make_task(
        suite.suite_reacher,
        [Part("qpos"), to_target, Part("qvel")],
        start=suite_starts.TARGET,
        goal=float(host.geom_size[target, 0] + host.geom_size[finger, 0]),
        places=(target, finger),
        target=target,
        own_fields=("geom_pos",),
    )


def _walker(id: str, host: Any) -> Task:
    torso = body(host, "torso")
    rotations = [part for body in range(1, host.nbody) for part in turned(body, (0, 2))]
    return make_task(
        suite.walker,
        [*rotations, Part("xpos", 3 * torso + 2, 1), Part("qvel")],
        start=suite_starts.JOINTS,
        goal=_WALKER_SPEEDS[id],
        places=(torso, sensor(host, "torso_subtreelinvel")),
    )


def _hopper(id: str, host: Any) -> Task:
    touches = [
        Part("sensordata", sensor(host, name), 1, kind=observing.LOG_1_PLUS)
        for name in ("touch_toe", "touch_heel")
    ]
    places = (body(host, "torso"), body(host, "foot"), sensor(host, "torso_subtreelinvel"))
    return make_task(
        suite.suite_hopper,
        [Part("qpos", 1), Part("qvel"), *touches],
        start=suite_starts.JOINTS,
        goal=_HOPPER_SPEEDS[id],
        places=places,
    )


def _fish(id: str, host: Any) -> Task:
    torso = body(host, "torso")
    # of the root the quaternion is not shown, and what follows are all other joints
    parts = [Part("qpos", 7), *turned(torso, (8,))]
    if id == "FishUpright-v1":
        start, places = suite_starts.FISH, (torso,)
        return make_task(
            suite_swimmers.fish_upright, [*parts, Part("qvel")], start=start, places=places
        )
    target, mouth = (number_of(host, OBJECTS.mjOBJ_GEOM, name) for name in ("target", "mouth"))
    return make_task(
        suite_swimmers.fish_swim,
        [*parts, Part("shown"), Part("qvel")],
        start=suite_starts.FISH,
        goal=float(host.geom_size[target, 0] + host.geom_size[mouth, 0]),
        places=(torso, target, mouth),
        target=target,
        num_shown=3,
        own_fields=("geom_pos",),
    )


def _swimmer(id: str, host: Any) -> Task:
    target, nose = (number_of(host, OBJECTS.mjOBJ_GEOM, name) for name in ("target", "nose"))
    first = sensor(host, "head_vel")
    return make_task(
        suite_swimmers.suite_swimmer,
        [Part("qpos", 3), Part("shown")],
        start=suite_starts.NEAR_OR_FAR,
        goal=float(host.geom_size[target, 0]),
        places=(body(host, "head"), target, first, nose),
        target=target,
        num_shown=2 + (host.nsensordata - first) // 2,
        own_fields=("geom_pos",),
    )


def _cheetah(id: str, host: Any) -> Task:
    return make_task(
        suite.cheetah,
        [Part("qpos", 1), Part("qvel")],
        start=suite_starts.LIMITED_JOINTS,
        goal=10.0,
        places=(sensor(host, "torso_subtreelinvel"),),
        # it falls to the ground and comes to rest
        num_resting=200,
    )


def _ball_in_cup(id: str, host: Any) -> Task:
    target = number_of(host, OBJECTS.mjOBJ_SITE, "target")
    ball = number_of(host, OBJECTS.mjOBJ_GEOM, "ball")
    room = host.site_size[target] - host.geom_size[ball, 0]
    assert room[0] == room[2]
    return make_task(
        suite_hands.ball_in_cup,
        [Part("qpos"), Part("qvel")],
        start=suite_starts.BALL,
        goal=float(room[0]),
        places=(target, body(host, "ball")),
        drawn=tuple(position(host, name) for name in ("ball_x", "ball_z")),
        is_apart=True,
    )


def _finger(id: str, host: Any) -> Task:
    def sensed(name: str, kind: int = observing.COPY) -> Part:
        return Part("sensordata", sensor(host, name), 1, kind=kind)

    def from_spinner(name: str) -> list[Part]:
        first, other = sensor(host, name), sensor(host, "spinner")
        return [
            Part("sensordata", first + axis, 1, kind=observing.DIFFERENCE, other=other + axis)
            for axis in (0, 2)
        ]

    velocities = ("proximal_velocity", "distal_velocity", "hinge_velocity")
    parts = [
        *(sensed(name) for name in ("proximal", "distal")),
        *from_spinner("tip"),
        *(sensed(name) for name in velocities),
        *(sensed(name, observing.LOG_1_PLUS) for name in ("touchtop", "touchbottom")),
    ]
    if id == "FingerSpin-v1":
        hinge = number_of(host, OBJECTS.mjOBJ_JOINT, "hinge")
        host.dof_damping[host.jnt_dofadr[hinge]] = 0.03
        return make_task(
            suite_hands.finger_spin,
            parts,
            start=suite_starts.JOINTS,
            places=(sensor(host, "hinge_velocity"),),
            is_apart=True,
        )
    target = number_of(host, OBJECTS.mjOBJ_SITE, "target")
    host.site_size[target, 0] = _RADII[id]
    return make_task(
        suite_hands.finger_turn,
        [*parts, *from_spinner("target"), Part("shown")],
        start=suite_starts.ON_CIRCLE,
        goal=_RADII[id],
        places=(sensor(host, "target"), sensor(host, "tip")),
        target=target,
        num_shown=1,
        own_fields=("site_pos",),
        drawn=(body(host, "spinner"),),
        radius=float(host.geom_size[number_of(host, OBJECTS.mjOBJ_GEOM, "cap1")].sum()),
        is_apart=True,
    )


def _humanoid(id: str, host: Any) -> Task:
    is_cmu = id.startswith("HumanoidCMU")
    torso, up = ("thorax", 1) if is_cmu else ("torso", 2)
    sides = ("l", "r") if is_cmu else ("left_", "right_")
    limbs = [body(host, side + limb) for side in sides for limb in ("hand", "foot")]
    head, velocity = body(host, "head"), sensor(host, f"{torso}_subtreelinvel")
    parts = [
        Part("qpos", 7),
        Part("xpos", 3 * head + 2, 1),
        Part("shown"),
        Part("xmat", 9 * body(host, torso) + 6, 3),
        Part("sensordata", velocity, 3),
    ]
    if id == "HumanoidRunPureState-v1":
        parts = [Part("qpos")]
    return make_task(
        suite_humanoids.suite_humanoid,
        [*parts, Part("qvel")],
        start=suite_starts.JOINTS,
        goal=next(speed for name, speed in _HUMANOID_SPEEDS.items() if name in id),
        places=(body(host, torso), head, velocity, *limbs, up),
        num_shown=3 * len(limbs),
        is_apart=True,
        # random poses have up to 55 contacts, and a body on the ground 74 rows
        memory={"nconmax": 96, "njmax": 192} if is_cmu else {},
    )


def _lqr(id: str, host: Any) -> Task:
    return make_task(
        suite_swimmers.lqr,
        [Part("qpos"), Part("qvel")],
        start=suite_starts.SPRINGS,
        own_fields=("jnt_stiffness",),
    )


# what ids begin with -> the domain's module and its task
_DOMAINS: dict[str, tuple[str, Callable[[str, Any], Task]]] = {
    "Acrobot": ("acrobot", _acrobot),
    "BallInCup": ("ball_in_cup", _ball_in_cup),
    "Cartpole": ("cartpole", _cartpole),
    "Cheetah": ("cheetah", _cheetah),
    "Dog": ("dog", dog),
    "Finger": ("finger", _finger),
    "Fish": ("fish", _fish),
    "Hopper": ("hopper", _hopper),
    "HumanoidCMU": ("humanoid_cmu", _humanoid),
    "Humanoid": ("humanoid", _humanoid),
    "Lqr": ("lqr", _lqr),
    "Manipulator": ("manipulator", manipulator),
    "Pendulum": ("pendulum", _pendulum),
    "PointMass": ("point_mass", _point_mass),
    "Quadruped": ("quadruped", quadruped),
    "Reacher": ("reacher", _reacher),
    "Swimmer": ("swimmer", _swimmer),
    "Walker": ("walker", _walker),
}


def suite_task(id: str, host: Any) -> Task:
    """Makes a task; it may change sizes in MuJoCo's model, which is put on a device afterwards."""
    module, make = next(one for name, one in _DOMAINS.items() if id.startswith(name))
    seconds = control_timestep(f"{module}.h")
    # a task without its own: one step of physics
    substeps = 1 if seconds is None else round(seconds / host.opt.timestep)
    return replace(make(id, host), frame_skip=substeps)
