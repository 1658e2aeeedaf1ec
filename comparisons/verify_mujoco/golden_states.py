# SPDX-License-Identifier: Apache-2.0
"""States and their next states by MuJoCo, kept to notice a release that steps differently."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from comparisons.verify_mujoco.array_errors import relative
from comparisons.verify_mujoco.driver import STATE, Array, Driver, ModelStates
from comparisons.verify_mujoco.models import Subject, starts_of, subject_of
from rollouts.errors import SpecError

# largest error of the next state: allows for another machine's rounding, which a step magnifies
BOUND = 1e-9
_NUM_STATES = 9
_SUBSTEPS = 120  # substeps before states are kept
_KINDS = ("random", "resting", "contact")
_NEXT = ("qpos", "qvel")


@dataclass(frozen=True, slots=True)
class Golden:
    """A file of `record`.

    release: Release of MuJoCo, such as "4.0". states, following: for each id, states and the next
    (qpos, qvel).
    """

    release: str
    states: dict[str, ModelStates]
    following: dict[str, tuple[Array, Array]]


def release() -> str:
    """The installed MuJoCo's release, without its patch number."""
    return ".".join(importlib.metadata.version("mujoco").split(".")[:2])


def record(path: Path, ids: Sequence[str], seed: int) -> None:
    """Writes states of environments' models and MuJoCo's next states to a .npz file."""
    arrays = {"release": np.array(release())}
    for env_id in ids:
        subject = subject_of(env_id)
        starts = starts_of(subject, seed)
        driver = Driver(subject.model, starts, _KINDS, _NUM_STATES, subject.frame_skip, seed + 1)
        for _ in range(_SUBSTEPS):
            driver.advance(subject.comparer.step(*driver.states.arrays()))
        found = subject.comparer.step(*driver.states.arrays())
        for name, array in zip((*STATE, "ctrl"), driver.states.arrays(), strict=True):
            arrays[f"{env_id}/{name}"] = array
        for name in _NEXT:
            arrays[f"{env_id}/next_{name}"] = found[name][1]
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read(path: Path) -> Golden:
    """Reads a file of `record`.

    Raises:
      SpecError: It is not such a file.
    """
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        ids = sorted({name.rpartition("/")[0] for name in arrays if "/" in name})
        states = {
            env_id: ModelStates(*(arrays[f"{env_id}/{name}"] for name in (*STATE, "ctrl")))
            for env_id in ids
        }
        following = {
            env_id: (arrays[f"{env_id}/next_qpos"], arrays[f"{env_id}/next_qvel"]) for env_id in ids
        }
        return Golden(str(arrays["release"]), states, following)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(f"--golden {path} has no states of --record: {error}") from error


def compare_with_golden(subject: Subject, golden: Golden) -> str | None:
    """Describes how MuJoCo's or the lanes' step differs from the file; None if neither does."""
    found = subject.comparer.step(*golden.states[subject.id].arrays())
    for number, who in ((1, f"MuJoCo {release()}"), (0, "lanes")):
        after = (found[name][number] for name in _NEXT)
        for name, errors in next_errors_of(subject, golden, *after).items():
            if number == 0:
                errors = errors[~found["handed_back"]]
            if errors.size and not errors.max() <= BOUND:
                return (
                    f"next {name} of {who}: by {errors.max():.1e} of what MuJoCo {golden.release} "
                    "made of the same state"
                )
    return None


def next_errors_of(subject: Subject, golden: Golden, qpos: Array, qvel: Array) -> dict[str, Array]:
    """Errors (N,) of next positions and velocities; at rest relative to a step's change."""
    arrays = golden.states[subject.id].arrays()
    smooth = np.abs(subject.comparer.forward(*arrays)["qacc_smooth"][1]).max(1)
    wanted_qpos, wanted_qvel = golden.following[subject.id]
    return {
        "qpos": relative(qpos, wanted_qpos),
        "qvel": relative(qvel, wanted_qvel, subject.model.opt.timestep * smooth),
    }
