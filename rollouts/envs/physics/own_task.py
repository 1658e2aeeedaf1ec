# SPDX-License-Identifier: Apache-2.0
"""MuJoCo-v0 as a `Task`: what a user's model shows, by the names of MuJoCo's arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mujoco

from rollouts import _native
from rollouts.envs.physics.kernels import own_models, starts
from rollouts.envs.physics.tasks import CONTACT_FORCES, Part, Task


def own_task(model_file: str, host: Any, options: Mapping[str, Any]) -> Task:
    """The task of a model, of MuJoCo-v0's options; the native core has checked its names."""

    def parts(option: str) -> tuple[Part, ...]:
        found = _native.mujoco_parts(model_file, option, str(options[option]))
        return tuple(Part(array, first, math.prod(shape)) for _, shape, array, first in found)

    observation, infos = parts("observation"), parts("info")
    sources = {part.source for part in (*observation, *infos)}
    return Task(
        own_models.own_model,
        observation,
        start=starts.NORMAL_VELOCITIES if options["qvel_noise"] == "normal" else starts.UNIFORM,
        after_start="forward",
        infos=infos,
        keyframe=_keyframe(host, str(options["keyframe"])),
        reads_contact_forces=bool(sources & {*CONTACT_FORCES}),
    )


def _keyframe(host: Any, keyframe: str) -> int:
    """Its number; -1 where none is named."""
    if not keyframe:
        return -1
    number = int(mujoco.mj_name2id(host, mujoco.mjtObj.mjOBJ_KEY, keyframe))
    return int(keyframe) if number < 0 else number
