# SPDX-License-Identifier: Apache-2.0
"""`HostModel`: MuJoCo's model of one world at a time, with constants that depend on its fields."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
import warp as wp

from rollouts.errors import SpecError

Array = npt.NDArray[Any]

# not used by a step: search trees for rays, and lengths for sleep
_UNUSED = ("bvh_", "dof_length")
# mujoco_warp leaves the term of such a field out where it is 0 in the model's file
_LEFT_OUT_WHERE_ZERO = frozenset(
    {
        *("opt.density", "opt.viscosity", "opt.wind", "tendon_armature", "actuator_armature"),
        *("tendon_stiffness", "tendon_stiffnesspoly", "tendon_damping", "tendon_dampingpoly"),
        *("actuator_damping", "actuator_dampingpoly", "jnt_springyield", "tendon_springyield"),
        *("geom_adhesion", "pair_adhesion", "geom_surfacevel"),
    }
)

_PLACES = ("geom_pos", "geom_quat", "body_pos", "body_quat")


class HostModel:
    """A model's fields by MuJoCo's names; those of its options are called "opt.gravity" and so on.

    Attributes:
      batched: Fields in which mujoco_warp's worlds may differ.
    """

    def __init__(self, host: Any, model: Any) -> None:
        """Takes MuJoCo's model and mujoco_warp's."""
        self._base, self._scratch = host, copy.copy(host)
        self._data = mujoco.MjData(self._scratch)
        self.batched: list[str] = []
        self._shared: list[str] = []
        for prefix, owner in (("", model), ("opt.", model.opt)):
            for field in dataclasses.fields(owner):
                name, array = prefix + field.name, getattr(owner, field.name)
                if not isinstance(array, wp.array) or not self._has(name):
                    continue
                # "*", of worlds, or nothing
                first = [*getattr(field.type, "shape", ()), None][0]
                is_real = array.numpy().dtype == np.float32
                (self.batched if first == "*" and is_real else self._shared).append(name)

    def _has(self, name: str) -> bool:
        owner, key = _place(self._base, name)
        return hasattr(owner, key)

    def of_file(self, name: str) -> Array:
        """A field's values in the file, 64-bit."""
        return _read(self._base, name)

    def with_values(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """All batched fields that differ from the file's once `values` are set, constants included.

        Raises:
          SpecError: A field that depends on them differs, too, but mujoco_warp's worlds share it.
        """
        for name, value in values.items():
            self._check_present(name, value)
            _write(self._scratch, name, value)
        changed: list[str] = []
        try:
            mujoco.mj_setConst(self._scratch, self._data)
            self._check_inertia(values)
            changed = [name for name in (*self.batched, *self._shared) if self._differs(name)]
            for name in changed:
                if name in self._shared and not name.startswith(_UNUSED):
                    raise SpecError(
                        f"model fields {sorted(values)} change {name!r}, too, which worlds of "
                        "mujoco_warp share: leave device out, or change the model's file"
                    )
            return {
                name: _read(self._scratch, name) for name in changed if name not in self._shared
            }
        except mujoco.FatalError as error:
            raise SpecError(f"MuJoCo refuses model fields {sorted(values)}: {error}") from error
        finally:
            for name in {*values, *changed}:
                _write(self._scratch, name, self.of_file(name))

    def _check_inertia(self, values: Mapping[str, Array]) -> None:
        warning = self._data.warning[mujoco.mjtWarning.mjWARN_INERTIA]
        if warning.number:
            warning.number = 0
            raise SpecError(
                f"MuJoCo refuses model fields {sorted(values)}: bodies that move have no inertia"
            )

    def makes_constants(self, name: str) -> bool:
        """Tells if MuJoCo computes other fields from this one."""
        value = self.of_file(name)
        return {*self.with_values({name: value * 1.01 + 1e-3})} - {name} != set()

    def _differs(self, name: str) -> bool:
        return not np.array_equal(_read(self._scratch, name), self.of_file(name))

    def _check_present(self, name: str, value: Array) -> None:
        """Refuses a value that mujoco_warp would ignore."""
        if name in _PLACES:
            base = self._base
            bodies = np.arange(base.nbody) if name.startswith("body") else base.geom_bodyid
            rests = (base.body_weldid == 0) & (base.body_mocapid[base.body_rootid] == -1)
            moved = (value != self.of_file(name)).any(axis=-1) & rests[bodies]
            if moved.any():
                raise SpecError(
                    f"model field {name!r} moves number {int(np.flatnonzero(moved)[0])}, which no "
                    "joint moves: mujoco_warp computes such places once. Leave device out, or move "
                    "it in the model's file"
                )
        is_left_out = name in _LEFT_OUT_WHERE_ZERO and not self.of_file(name).any()
        if is_left_out and value.any():
            raise SpecError(
                f"model field {name!r} is 0 in the model's file, so mujoco_warp leaves out what it "
                "stands for: give it another value there, however small"
            )


def _place(model: Any, name: str) -> tuple[Any, str]:
    return (model.opt, name[4:]) if name.startswith("opt.") else (model, name)


def _read(model: Any, name: str) -> Array:
    owner, key = _place(model, name)
    return np.array(getattr(owner, key), np.float64)


def _write(model: Any, name: str, value: Array) -> None:
    owner, key = _place(model, name)
    if isinstance(getattr(owner, key), np.ndarray):
        getattr(owner, key)[...] = value
    else:
        setattr(owner, key, float(value.reshape(())))
