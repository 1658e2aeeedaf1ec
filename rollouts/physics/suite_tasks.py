# SPDX-License-Identifier: Apache-2.0
"""Tasks of the DeepMind Control Suite, of the names in its models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mujoco

from rollouts.families.dm_control import control_timestep
from rollouts.physics.kernels import observing, small_tasks, suite, suite_starts, suite_swimmers
from rollouts.physics.tasks import Part, SuiteTask, Task

_OBJECTS = mujoco.mjtObj
_RADII = {"ReacherEasy-v1": 0.05, "ReacherHard-v1": 0.015}  # of the target, metres
_WALKER_SPEEDS = {"WalkerStand-v1": 0.0, "WalkerWalk-v1": 1.0, "WalkerRun-v1": 8.0}  # m/s
_HOPPER_SPEEDS = {"HopperStand-v1": 0.0, "HopperHop-v1": 2.0}  # m/s


def _task(
    kernel: Any,
    observation: list[Part],
    *,
    start: int,
    goal: float = 0.0,
    places: tuple[int, ...] = (),
    target: int = -1,
    num_shown: int = 0,
    own_fields: tuple[str, ...] = (),
) -> Task:
    return Task(
        kernel,
        small_tasks.NoOptions,
        lambda _, __: observation,
        start=start,
        after_start="forward",
        suite=SuiteTask(goal, places, target, num_shown, own_fields),
    )


def _id(host: Any, kind: Any, name: str) -> int:
    found = int(mujoco.mj_name2id(host, kind, name))
    assert found >= 0, name
    return found


def _body(host: Any, name: str) -> int:
    return _id(host, _OBJECTS.mjOBJ_BODY, name)


def _sensor(host: Any, name: str) -> int:
    """Where its numbers are."""
    return int(host.sensor_adr[_id(host, _OBJECTS.mjOBJ_SENSOR, name)])


def _turned(body: int, elements: tuple[int, ...]) -> list[Part]:
    """Elements of a body's rotation."""
    return [Part("xmat", 9 * body + element, 1) for element in elements]


def _acrobot(env_id: str, host: Any) -> Task:
    arms = [_body(host, name) for name in ("upper_arm", "lower_arm")]
    # what is horizontal of their z axes, then what is vertical
    turned = [part for element in (2, 8) for arm in arms for part in _turned(arm, (element,))]
    target, tip = (_id(host, _OBJECTS.mjOBJ_SITE, name) for name in ("target", "tip"))
    return _task(
        suite.acrobot,
        [*turned, Part("qvel")],
        start=suite_starts.ANY_ANGLES,
        goal=float(host.site_size[target, 0]),
        places=(target, tip, int("Sparse" in env_id)),
    )


def _point_mass(env_id: str, host: Any) -> Task:
    target, mass = (_id(host, _OBJECTS.mjOBJ_GEOM, name) for name in ("target", "pointmass"))
    return _task(
        suite.point_mass,
        [Part("qpos"), Part("qvel")],
        start=suite_starts.JOINTS,
        goal=float(host.geom_size[target, 0]),
        places=(target, mass),
    )


def _cartpole(env_id: str, host: Any) -> Task:
    poles = range(2, host.nbody)
    parts = [Part("qpos", 0, 1), *(part for body in poles for part in _turned(body, (8, 2)))]
    is_balanced = env_id.startswith("CartpoleBalance")
    return _task(
        suite.cartpole_sparse if "Sparse" in env_id else suite.cartpole,
        [*parts, Part("qvel")],
        start=suite_starts.BALANCED if is_balanced else suite_starts.HANGING,
    )


def _pendulum(env_id: str, host: Any) -> Task:
    pole = _body(host, "pole")
    parts = [*_turned(pole, (8, 2)), Part("qvel")]
    return _task(suite.pendulum, parts, start=suite_starts.ANY_ANGLES, places=(pole,))


def _reacher(env_id: str, host: Any) -> Task:
    target, finger = (_id(host, _OBJECTS.mjOBJ_GEOM, name) for name in ("target", "finger"))
    host.geom_size[target, 0] = _RADII[env_id]
    to_target = Part("geom_xpos", 3 * target, 2, kind=observing.DIFFERENCE, other=3 * finger)
    return _task(
        suite.suite_reacher,
        [Part("qpos"), to_target, Part("qvel")],
        start=suite_starts.TARGET,
        goal=float(host.geom_size[target, 0] + host.geom_size[finger, 0]),
        places=(target, finger),
        target=target,
        own_fields=("geom_pos",),
    )


def _walker(env_id: str, host: Any) -> Task:
    torso = _body(host, "torso")
    turned = [part for body in range(1, host.nbody) for part in _turned(body, (0, 2))]
    return _task(
        suite.walker,
        [*turned, Part("xpos", 3 * torso + 2, 1), Part("qvel")],
        start=suite_starts.JOINTS,
        goal=_WALKER_SPEEDS[env_id],
        places=(torso, _sensor(host, "torso_subtreelinvel")),
    )


def _hopper(env_id: str, host: Any) -> Task:
    touches = [
        Part("sensordata", _sensor(host, name), 1, kind=observing.LOG_1_PLUS)
        for name in ("touch_toe", "touch_heel")
    ]
    places = (_body(host, "torso"), _body(host, "foot"), _sensor(host, "torso_subtreelinvel"))
    return _task(
        suite.suite_hopper,
        [Part("qpos", 1), Part("qvel"), *touches],
        start=suite_starts.JOINTS,
        goal=_HOPPER_SPEEDS[env_id],
        places=places,
    )


def _fish(env_id: str, host: Any) -> Task:
    torso = _body(host, "torso")
    # of the root the quaternion is not shown, and what follows are all other joints
    parts = [Part("qpos", 7), *_turned(torso, (8,))]
    if env_id == "FishUpright-v1":
        start, places = suite_starts.FISH, (torso,)
        return _task(
            suite_swimmers.fish_upright, [*parts, Part("qvel")], start=start, places=places
        )
    target, mouth = (_id(host, _OBJECTS.mjOBJ_GEOM, name) for name in ("target", "mouth"))
    return _task(
        suite_swimmers.fish_swim,
        [*parts, Part("shown"), Part("qvel")],
        start=suite_starts.FISH,
        goal=float(host.geom_size[target, 0] + host.geom_size[mouth, 0]),
        places=(torso, target, mouth),
        target=target,
        num_shown=3,
        own_fields=("geom_pos",),
    )


def _swimmer(env_id: str, host: Any) -> Task:
    target, nose = (_id(host, _OBJECTS.mjOBJ_GEOM, name) for name in ("target", "nose"))
    first = _sensor(host, "head_vel")
    return _task(
        suite_swimmers.suite_swimmer,
        [Part("qpos", 3), Part("shown")],
        start=suite_starts.NEAR_OR_FAR,
        goal=float(host.geom_size[target, 0]),
        places=(_body(host, "head"), target, first, nose),
        target=target,
        num_shown=2 + (host.nsensordata - first) // 2,
        own_fields=("geom_pos",),
    )


def _lqr(env_id: str, host: Any) -> Task:
    return _task(
        suite_swimmers.lqr,
        [Part("qpos"), Part("qvel")],
        start=suite_starts.SPRINGS,
        own_fields=("jnt_stiffness",),
    )


# what ids begin with -> the domain's module and its task
_DOMAINS: dict[str, tuple[str, Callable[[str, Any], Task]]] = {
    "Acrobot": ("acrobot", _acrobot),
    "Cartpole": ("cartpole", _cartpole),
    "Fish": ("fish", _fish),
    "Hopper": ("hopper", _hopper),
    "Lqr": ("lqr", _lqr),
    "Pendulum": ("pendulum", _pendulum),
    "PointMass": ("point_mass", _point_mass),
    "Reacher": ("reacher", _reacher),
    "Swimmer": ("swimmer", _swimmer),
    "Walker": ("walker", _walker),
}


def suite_task(env_id: str, host: Any) -> Task:
    """A task, which may write its own sizes into MuJoCo's model before it is put on a device."""
    module, make = next(one for name, one in _DOMAINS.items() if env_id.startswith(name))
    seconds = control_timestep(f"{module}.h")
    # a task without its own: one step of physics
    substeps = 1 if seconds is None else round(seconds / host.opt.timestep)
    return replace(make(env_id, host), frame_skip=substeps)
