# SPDX-License-Identifier: Apache-2.0
"""What tasks of the DeepMind Control Suite are put together of: names of a model, and parts."""

from __future__ import annotations

from typing import Any

import mujoco

from rollouts.envs.physics.tasks import Part, SuiteTask, Task

OBJECTS = mujoco.mjtObj


def make_task(
    kernel: Any,
    observation: list[Part],
    *,
    start: int,
    goal: float = 0.0,
    places: tuple[int, ...] = (),
    target: int = -1,
    **others: Any,
) -> Task:
    """A task whose options are none; `others`: of a `SuiteTask`."""
    return Task(
        kernel,
        tuple(observation),
        start=start,
        after_start="unactuated",
        suite=SuiteTask(goal, places, target, **others),
    )


def number_of(host: Any, kind: Any, name: str) -> int:
    """Of a named part of a model."""
    found = int(mujoco.mj_name2id(host, kind, name))
    assert found >= 0, name
    return found


def body(host: Any, name: str) -> int:
    """Its number."""
    return number_of(host, OBJECTS.mjOBJ_BODY, name)


def sensor(host: Any, name: str) -> int:
    """Where its numbers are."""
    return int(host.sensor_adr[number_of(host, OBJECTS.mjOBJ_SENSOR, name)])


def position(host: Any, joint: str) -> int:
    """Where its first number is."""
    return int(host.jnt_qposadr[number_of(host, OBJECTS.mjOBJ_JOINT, joint)])


def turned(body: int, elements: tuple[int, ...]) -> list[Part]:
    """Elements of a body's rotation."""
    return [Part("xmat", 9 * body + element, 1) for element in elements]
