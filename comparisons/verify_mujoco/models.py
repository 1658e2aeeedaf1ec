# SPDX-License-Identifier: Apache-2.0
"""The models of environments, and the states in which their episodes begin."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import rollouts
from comparisons.verify_mujoco.driver import ModelStates
from rollouts import _native
from rollouts.errors import SpecError
from rollouts.families.table import family_of
from rollouts.mujoco import integration_state

_NUM_STARTS = 256
_SUITE_FRAME_SKIP = 5  # used for frame_skip=0: the tasks' own numbers do not matter here
# the domains of DeepMind Control that lanes are to step
_SUITE = (
    "cheetah", "walker", "hopper", "humanoid", "cartpole", "pendulum", "acrobot", "reacher",
    "point_mass", "swimmer", "lqr", "ball_in_cup",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subject:
    """An environment's model in both engines."""

    id: str
    path: str
    model: Any  # mujoco.MjModel
    comparer: _native.LanesComparer
    frame_skip: int


def subject_of(id: str) -> Subject:
    """Loads the model of an environment.

    Raises:
      SpecError: The environment has no MuJoCo model.
      EngineError: MuJoCo, or the package that writes the model, is not installed.
    """
    spec = rollouts.env_spec(id)
    family = family_of(spec.header)
    if family.model_file is None or id == "MuJoCo-v0":
        raise SpecError(
            f"{id!r} has no MuJoCo model of its own: verify-mujoco compares ids such as "
            "'HalfCheetah-v5' and 'CheetahRun-v1'"
        )
    options = {**spec.options, **family.load(id, spec.header)}
    path = family.model_file(options)
    frame_skip = int(options.get("frame_skip", 0)) or _SUITE_FRAME_SKIP
    return Subject(id, path, mujoco_model(path), _native.LanesComparer(path), frame_skip)


def mujoco_model(path: str) -> Any:
    """The mujoco package's model of a file."""
    engine = importlib.import_module("mujoco").MjModel
    return engine.from_binary_path(path) if path.endswith(".mjb") else engine.from_xml_path(path)


def verified_ids() -> list[str]:
    """Gymnasium's tasks, and one task of each of the suite's domains that lanes are to step."""
    found = [entry for entry in _native.registry() if entry["header"].startswith("envs/mujoco/")]
    ids = [entry["id"] for entry in found if entry["id"] != "MuJoCo-v0"]
    known = set(rollouts.env_ids())
    for domain in _SUITE:
        header = f"envs/dm_control/{domain}.h"
        ids += [entry["id"] for entry in _native.registry() if entry["header"] == header][:1]
    return [one for one in ids if one in known]


def starts_of(subject: Subject, seed: int) -> ModelStates:
    """States with which the environment's episodes begin, drawn by its pool."""
    options: Mapping[str, Any] = {"seed": seed, "num_threads": 1}
    with rollouts.make_vec(subject.id, _NUM_STARTS, **options) as env:
        env.reset()
        saved = [integration_state(state) for state in env.get_state()]
    return states_of(subject.model, np.stack(saved))


def states_of(model: Any, numbers: Any) -> ModelStates:
    """Unpacks rows of mjSTATE_INTEGRATION."""
    mujoco = importlib.import_module("mujoco")
    data = mujoco.MjData(model)
    rows: list[list[Any]] = [[], [], [], [], []]
    for row in numbers:
        mujoco.mj_setState(model, data, row, mujoco.mjtState.mjSTATE_INTEGRATION)
        read = (data.qpos, data.qvel, data.act, data.qacc_warmstart, data.ctrl)
        for into, array in zip(rows, read, strict=True):
            into.append(array.copy())
    return ModelStates(*(np.array(each, np.float64).reshape(len(numbers), -1) for each in rows))
