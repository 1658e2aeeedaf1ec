# SPDX-License-Identifier: Apache-2.0
"""Describes a step that differs: its state, its contacts and both engines' results."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from comparisons.verify_mujoco.array_errors import Difference, relative
from comparisons.verify_mujoco.comparison import NEXT, STAGES


def describe(difference: Difference, model: Any, why: str = "") -> list[str]:
    """Lines that describe the step, with the contacts that MuJoCo found."""
    count = {name: [int(each[0]) for each in difference.evaluation[name]]
             for name in ("solver_niter", "nefc")}  # fmt: skip
    lines = [
        f"substep {difference.step} ({difference.kind}): {difference.what}{why}, error "
        f"{difference.error:.1e}; "
        f"iterations {count['solver_niter'][0]}, MuJoCo {count['solver_niter'][1]}; rows of "
        f"constraints {count['nefc'][0]}, MuJoCo {count['nefc'][1]}"
    ]
    errors = {**{f"{name}": difference.evaluation[name] for name in STAGES},
              **{f"next {name}": difference.found[name] for name in NEXT}}  # fmt: skip
    shown = []
    for name, (ours, theirs) in errors.items():
        error = float(relative(ours[None], theirs[None])[0])
        if error:
            shown.append(f"{name} {error:.1e}")
    lines.append("errors: " + (", ".join(shown) or "none"))
    return lines + [f"contact {each}" for each in _contacts(difference, model)]


def save(path: Path, id: str, difference: Difference) -> None:
    """Writes the state and both engines' arrays as a .npz file."""
    arrays: dict[str, Any] = {"id": np.array(id), "kind": np.array(difference.kind)}
    for name, array in zip(
        ("qpos", "qvel", "act", "qacc_warmstart", "ctrl"), difference.state.arrays(), strict=True
    ):
        arrays[f"state_{name}"] = array[0]
    for before, pairs in (("", difference.evaluation), ("next_", difference.found)):
        for name, (ours, theirs) in pairs.items():
            arrays[f"{before}{name}_lanes"] = ours
            arrays[f"{before}{name}_mujoco"] = theirs
    np.savez(path, **arrays)


def _contacts(difference: Difference, model: Any) -> list[str]:
    mujoco = importlib.import_module("mujoco")
    data = mujoco.MjData(model)
    for name in ("qpos", "qvel", "act", "qacc_warmstart", "ctrl"):
        getattr(data, name)[:] = getattr(difference.state, name)[0]
    mujoco.mj_forward(model, data)
    return [
        f"{_name(model, contact.geom[0])} and {_name(model, contact.geom[1])}: distance "
        f"{contact.dist:.3g}, {contact.dim} dimensions"
        for contact in data.contact
    ]


def _name(model: Any, geom: int) -> str:
    if geom < 0:
        return "a flexible body"
    return model.geom(geom).name or f"geom {geom}"
