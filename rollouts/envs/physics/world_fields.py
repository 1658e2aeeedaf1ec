# SPDX-License-Identifier: Apache-2.0
"""`ModelFields`: fields in which the models of N worlds differ."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import warp as wp
from torch import Tensor

from rollouts import _native
from rollouts.envs.physics.host_models import HostModel
from rollouts.envs.physics.kernels.drawing import draw_field, make_rotations
from rollouts.envs.physics.worlds import Worlds
from rollouts.errors import SpecError
from rollouts.families.model_fields import Column

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Override:
    """Values of a field that differ from the file's, (N, *shape) each.

    Attributes:
      low, high: Bounds of a draw; equal where the value is fixed.
      given: (N,) bool: the environments with values of their own.
    """

    low: Array
    high: Array
    given: npt.NDArray[np.bool_]

    def drawn(self) -> npt.NDArray[np.bool_]:
        """(N,) bool: environments in which every episode draws the field."""
        differs = (self.high > self.low).reshape(len(self.given), -1).any(axis=1)
        return self.given & differs


class ModelFields:
    """Fields that `VectorEnv.reset(options={"model": ...})` changes, in mujoco_warp's arrays.

    Attributes:
      draws: (N,) int32: numbers that a start has taken from its stream so far, fields first.
      draws_wp: The same memory.
    """

    def __init__(self, worlds: Worlds, model_file: str, device: torch.device) -> None:
        """Changes nothing yet."""
        self._worlds, self._device = worlds, device
        self._file, self._num_envs = model_file, worlds.num_envs
        self._overrides: dict[str, Override] = {}
        # mujoco_warp's arrays of fields that differ, (N, ...) float32
        self._tensors: dict[str, Tensor] = {}
        self._bounds: dict[str, tuple[Tensor, Tensor]] = {}
        # first elements of quaternions among a world's values, for fields that are drawn
        self._rotations: dict[str, Any] = {}
        self.draws = torch.zeros(self._num_envs, dtype=torch.int32, device=device)
        self.draws_wp = wp.from_torch(self.draws)
        # timestep in seconds, in 64 bits
        self.timestep = torch.full(
            (self._num_envs,), worlds.host.opt.timestep, dtype=torch.float64, device=device
        )

    @functools.cached_property
    def _host(self) -> HostModel:
        return HostModel(self._worlds.host, self._worlds.model)

    def model_fields(self, env: int = 0) -> list[str]:
        """Names of the fields that may be changed."""
        can = {*self._host.batched}
        return [name for name in _native.mujoco_model_fields(self._file) if name in can]

    def read_model(self, env: int, field: str, of_file: bool) -> Array:
        """A world's values of a field, or those in the model's file.

        Raises:
          SpecError: There is no such field, or worlds share it.
        """
        if field not in self.model_fields():
            known = field in _native.mujoco_model_fields(self._file)
            why = "is one for all worlds of mujoco_warp" if known else "is none that can be set"
            raise SpecError(f"model field {field!r} {why}: leave device out, or set it in the file")
        value = self._host.of_file(field)
        if of_file or field not in self._tensors:
            return value
        own: Array = self._tensors[field][env].cpu().numpy().astype(np.float64)
        return own.reshape(value.shape)

    def change(self, columns: Sequence[Column], envs: Sequence[int]) -> None:
        """Changes the models of these worlds from now on; fields that are not named stay.

        Raises:
          SpecError: Values that a model cannot have. Nothing has changed then.
        """
        overrides = {**self._overrides}
        for name, by_env, low, high in columns:
            overrides[name] = self._merged(overrides.get(name), name, by_env, low, high, envs)
            self._check(name, overrides[name])
        # worlds with equal values share one computation of MuJoCo's constants
        known: dict[bytes, dict[str, Array]] = {}
        rows = {}
        for env in envs:
            values = {name: one.low[env] for name, one in overrides.items() if one.given[env]}
            key = repr([*values]).encode() + b"".join(one.tobytes() for one in values.values())
            if key not in known:
                known[key] = self._host.with_values(values)
            rows[env] = known[key]
        self._overrides = overrides
        self._put(rows)

    def _merged(
        self,
        before: Override | None,
        name: str,
        by_env: bool,
        low: Array | None,
        high: Array | None,
        envs: Sequence[int],
    ) -> Override:
        file = self._host.of_file(name)
        shape = (self._num_envs, *file.shape)
        if before is None:
            full = np.broadcast_to(file, shape)
            before = Override(full, full, np.zeros(self._num_envs, np.bool_))
        merged = Override(before.low.copy(), before.high.copy(), before.given.copy())
        index = [*envs]
        merged.given[index] = low is not None
        for bound, new in ((merged.low, low), (merged.high, low if high is None else high)):
            values = np.broadcast_to(file if new is None else new, shape)
            bound[index] = values[index]
        return merged

    def _check(self, name: str, one: Override) -> None:
        if not (np.isfinite(one.low).all() and np.isfinite(one.high).all()):
            raise SpecError(f"model field {name!r} has values that are not finite")
        if (one.low > one.high).any():
            raise SpecError(f"model field {name!r} has a low above its high")
        if name == "opt.timestep" and (one.low <= 0).any():
            raise SpecError("model field 'opt.timestep' must be positive")
        if not one.drawn().any():
            return
        if name == "opt.timestep" or self._host.makes_constants(name):
            raise SpecError(
                f"model field {name!r} cannot be drawn by every episode on a device, as MuJoCo "
                "computes others from it: give each environment its value, (N, ...), at each reset"
            )

    def _put(self, rows: dict[int, dict[str, Array]]) -> None:
        """Writes worlds' fields, or else the file's values, into mujoco_warp's arrays."""
        for name in {
            *self._tensors,
            *self._overrides,
            *(key for one in rows.values() for key in one),
        }:
            self.have_own(name)
            tensor, file = self._tensors[name], self._host.of_file(name)
            new = np.stack([one.get(name, file) for one in rows.values()])
            values = torch.from_numpy(new.astype(np.float32)).reshape(-1, *tensor.shape[1:])
            tensor[[*rows]] = values.to(self._device)
            if name == "opt.timestep":
                self.timestep[[*rows]] = torch.from_numpy(new).to(self._device)
        for name, one in self._overrides.items():
            if name in self._bounds or one.drawn().any():
                both = np.stack([one.low, one.high]).reshape(2, self._num_envs, -1)
                low, high = torch.from_numpy(both).to(self._device)
                if name in self._bounds:
                    for tensor, bound in zip(self._bounds[name], (low, high), strict=True):
                        tensor.copy_(bound)
                else:
                    self._bounds[name] = (low.contiguous(), high.contiguous())
                    firsts = _native.mujoco_quaternions(self._file, name)
                    self._rotations[name] = wp.array(firsts, dtype=int)

    def have_own(self, name: str) -> None:
        """Gives each world its own row of a field, with the values that were shared so far."""
        if name in self._tensors:
            return
        owner, key = self._place(name)
        array = getattr(owner, key)
        shared = wp.to_torch(array)[:1]
        repeats = (self._num_envs, *[1] * (shared.ndim - 1))
        self._tensors[name] = shared.repeat(repeats).contiguous()
        setattr(owner, key, wp.from_torch(self._tensors[name], dtype=array.dtype))

    def _place(self, name: str) -> tuple[Any, str]:
        model = self._worlds.model
        return (model.opt, name[4:]) if name.startswith("opt.") else (model, name)

    def start(self, keyframe: int) -> tuple[Any, Any]:
        """Positions of starts, one row for all worlds or one for each, and velocities."""
        qpos, qvel = self._worlds.start(keyframe)
        if keyframe < 0 and "qpos0" in self._tensors:
            qpos = wp.from_torch(self._tensors["qpos0"].double())
        return qpos, qvel

    def state(self) -> dict[str, Tensor]:
        """Everything in which worlds differ, (N, ...) each, in the pool's memory."""
        bounds = {f"{name} {i}": one[i] for name, one in self._bounds.items() for i in range(2)}
        return {**self._tensors, **bounds, "timestep": self.timestep}

    def launch_draws(self, clocks: Any, beginning: Any) -> Any:
        """Draws fields of worlds that begin; returns the counts of numbers drawn, for the start."""
        self.draws_wp.zero_()
        for name in self._overrides:
            if name in self._bounds:
                low, high = (wp.from_torch(one) for one in self._bounds[name])
                values = wp.from_torch(self._tensors[name].view(self._num_envs, -1))
                wp.launch(
                    draw_field,
                    self._num_envs,
                    [clocks, beginning, low, high, self.draws_wp, values],
                )
                firsts = self._rotations[name]
                if firsts.size:
                    inputs = [beginning, low, high, firsts, values]
                    wp.launch(make_rotations, (self._num_envs, firsts.size), inputs)
        return self.draws_wp
