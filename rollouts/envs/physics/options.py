# SPDX-License-Identifier: Apache-2.0
"""`OptionArrays`: options in which worlds may differ, on the device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import warp as wp
from torch import Tensor

from rollouts.errors import SpecError

NOISE = "reset_noise_scale"
# of tasks whose health has no such range
_NO_RANGE = {"healthy_state_min": -math.inf, "healthy_state_max": math.inf}


class OptionArrays:
    """Values that kernels read, one for each world, at addresses that stay.

    Attributes:
      struct: Of a task's kernel.
      noise_scale: (N,) float64: how far a start is drawn from the model's own.
      names: Options that are in here.
    """

    def __init__(
        self, kind: Any, given: Mapping[str, Any], num_envs: int, device: torch.device
    ) -> None:
        """Of a task's struct and all its options: one value, or a list of N."""
        self._num_envs, self._device = num_envs, device
        fields = [name for name in kind.vars if name != "unused"]
        self.names = frozenset({*fields, NOISE} & {*given})
        dtypes = {name: torch.float32 for name in fields} | {NOISE: torch.float64}
        self._tensors = {
            name: torch.zeros(num_envs, dtype=dtype, device=device)
            for name, dtype in dtypes.items()
        }
        self._arrays = {name: wp.from_torch(tensor) for name, tensor in self._tensors.items()}
        self.struct = kind()
        for name in fields:
            setattr(self.struct, name, self._arrays[name])
        self.noise_scale = self._arrays[NOISE]
        self._bounds: dict[float, Any] = {}
        self.unused = self.bound(0.0)
        own = {name: given[name] for name in self.names}
        self.put(self.read({**_NO_RANGE, **own}), None)

    def read(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """Values of worlds as they are stored, (N,) each.

        Raises:
          SpecError: One that is no number.
        """
        return {
            name: self._column(name, value)
            for name, value in values.items()
            if name in self._tensors
        }

    def put(self, columns: Mapping[str, Tensor], mask: Tensor | None) -> None:
        """Puts what was read in place, of the marked worlds or of all."""
        for name, column in columns.items():
            now = self._tensors[name]
            now.copy_(column if mask is None else torch.where(mask, column, now))

    def others(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options that are not in here.

        Raises:
          SpecError: Environments differ in one.
        """
        others = {name: value for name, value in given.items() if name not in self.names}
        for name, value in others.items():
            each = value if isinstance(value, list) else [value]
            if any(one != each[0] for one in each):
                raise SpecError(
                    f"option {name!r} differs between environments, which one model on a GPU "
                    "cannot: give one value, or leave device out"
                )
            others[name] = each[0]
        return others

    def bound(self, value: float | str) -> Any:
        """(N,) of a number, or of what an option says."""
        if isinstance(value, str):
            return self._arrays[value]
        if value not in self._bounds:
            tensor = torch.full((self._num_envs,), value, device=self._device)
            self._bounds[value] = wp.from_torch(tensor)
        return self._bounds[value]

    def _column(self, name: str, value: Any) -> Tensor:
        dtype = self._tensors[name].dtype
        each = value if isinstance(value, list) else [value]
        if not all(isinstance(one, (bool, int, float)) for one in each):
            raise SpecError(f"option {name!r} is {value!r}, expected numbers")
        column = torch.tensor([float(one) for one in each], dtype=dtype, device=self._device)
        return column.expand(self._num_envs)
