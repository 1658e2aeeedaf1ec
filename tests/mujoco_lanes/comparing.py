# SPDX-License-Identifier: Apache-2.0
"""Comparisons of lanes with MuJoCo, as `rollouts verify-mujoco` makes them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comparisons.verify_mujoco.comparison import StepComparison, compare
from comparisons.verify_mujoco.driver import KINDS, Driver, ModelStates, starts_of_model
from comparisons.verify_mujoco.models import Subject, mujoco_model, starts_of, subject_of
from rollouts import _native
from rollouts.families.mujoco_engine import load_engine

USUAL = ("random", "resting", "contact")


def scene_in(folder: Path, xml: str) -> tuple[_native.LanesComparer, Any]:
    """A model of this XML in both engines."""
    load_engine()
    path = folder / "model.xml"
    path.write_text(xml)
    return _native.LanesComparer(str(path)), mujoco_model(str(path))


def compare_scene(
    comparer: _native.LanesComparer, model: Any, steps: int, kinds: Sequence[str] = KINDS
) -> StepComparison:
    """Compares substeps of a model that is of no environment."""
    starts = starts_of_model(model, 64, np.random.default_rng(0))
    return compare(comparer, model, Driver(model, starts, kinds, 64, 5, 1), steps)


def compare_subject(
    subject: Subject, steps: int, kinds: Sequence[str] = KINDS, width: int = 0
) -> StepComparison:
    """Compares substeps of an environment's model."""
    driver = driver_of(subject, kinds)
    return compare(subject.comparer, subject.model, driver, steps, width=width)


def driver_of(subject: Subject, kinds: Sequence[str] = KINDS, num_envs: int = 64) -> Driver:
    """States of an environment's model."""
    return Driver(subject.model, starts_of(subject, 0), kinds, num_envs, subject.frame_skip, 1)


@functools.cache
def loaded(env_id: str) -> Subject:
    """The model of an environment, loaded once for all tests of a process."""
    return subject_of(env_id)


def states_after(env_id: str, substeps: int, num_envs: int = 64) -> ModelStates:
    """States of all usual kinds, some substeps after their episodes began."""
    return _states_after(env_id, substeps, num_envs).rows(slice(None))


@functools.cache
def _states_after(env_id: str, substeps: int, num_envs: int) -> ModelStates:
    subject = loaded(env_id)
    driver = driver_of(subject, USUAL, num_envs)
    for _ in range(substeps):
        driver.advance(subject.comparer.step(*driver.states.arrays()))
    return driver.states


def left_to_mujoco(found: StepComparison) -> float:
    """Part of the substeps of usual states that lanes have handed back."""
    counts = np.array([found.by_kind[kind] for kind in USUAL if kind in found.by_kind])
    return float(counts[:, 1].sum() / counts[:, 0].sum())


def explained(found: StepComparison) -> str:
    """The text that a failed test prints."""
    errors = {name: f"{each.max:.1e}" for name, each in found.errors.items() if each.max > 1e-11}
    counts = {
        name: getattr(found, name)
        for name in (
            "unexplained",
            "of_rounding",
            "beyond",
            "other_iterations",
            "other_rows",
            "outputs_beyond",
            "overwritten",
            "unseen_warnings",
            "constrained",
        )
    }
    return f"{counts}, errors {errors}"
