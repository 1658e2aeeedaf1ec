# SPDX-License-Identifier: Apache-2.0
"""`BatchFunctions`: MuJoCo-v0's reward and end, which the user's functions compute from tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rollouts.envs.physics.physics_arrays import PhysicsArrays
from rollouts.errors import DTypeError, ProtocolError, SpecError
from rollouts.own_model.parts import Layout
from rollouts.own_model.step import BatchFunction, ModelStep, Parts


class TensorParts(Parts):
    """Parts that are tensors, copied for the function."""

    __slots__ = ()

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._arrays = tensors


class BatchFunctions:
    """Calls the user's functions after the dynamics of a step, before its end, on torch's stream.

    Attributes:
      broken: The name of the function that raised, until a reset; "": none.
    """

    def __init__(
        self,
        functions: Mapping[str, BatchFunction],
        layout: Layout,
        arrays: PhysicsArrays,
        timestep: Tensor,
        frame_skip: int,
    ) -> None:
        """Takes functions by option; `timestep` (N,) are seconds of a substep."""
        self._functions, self._layout, self._arrays = functions, layout, arrays
        self._timestep, self._frame_skip = timestep, frame_skip
        self._before: Parts = TensorParts({})
        self.broken = ""

    def check(self) -> None:
        """Raises ProtocolError where a function has raised."""
        if self.broken:
            raise ProtocolError(
                f"{self.broken} raised an exception and its batch is lost: call reset() first"
            )

    def look(self) -> None:
        """Keeps the observations and infos of the environments before a step."""
        self._before = self._views()

    def score(self, actions: Tensor) -> None:
        """Writes reward and end of a step after its dynamics.

        Raises:
          SpecError, DTypeError: A function returned another kind of value. Errors of a function
            pass
            through.
        """
        arrays = self._arrays
        stepped = arrays.stepping.clone()
        step = ModelStep(
            now=self._views(),
            previous=self._before,
            actions=actions.clone(),  # type: ignore[arg-type]
            dt=(self._timestep * self._frame_skip).float(),  # type: ignore[arg-type]
            env_ids=arrays.clock["env_id"].clone(),  # type: ignore[arg-type]
            episode_length=arrays.clock["elapsed_steps"] + stepped,  # type: ignore[arg-type]
            stepped=stepped,  # type: ignore[arg-type]
        )
        for name, function in self._functions.items():
            self.broken = name
            value = _read(name, function(step), arrays)
            arrays.outcomes[name].copy_(value)
        self.broken = ""

    def _views(self) -> Parts:
        arrays = self._arrays
        views: Any = self._layout.views(arrays.obs.clone(), arrays.infos.clone())  # type: ignore[arg-type]
        return TensorParts(views)


def _read(name: str, value: Any, arrays: PhysicsArrays) -> Tensor:
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(np.asarray(value)).to(arrays.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DTypeError(
                f"{name} returned {type(value).__name__}, expected a tensor: {error}"
            ) from error
    expected = (arrays.num_envs,)
    if tuple(value.shape) != expected or value.device != arrays.device:
        raise SpecError(
            f"{name} returned shape {tuple(value.shape)} on {value.device}, expected {expected} on "
            f"{arrays.device}: one number for each environment"
        )
    if name == "terminated" and value.dtype != torch.bool:
        raise DTypeError(
            f"terminated returned {value.dtype}, expected torch.bool, such as the result of a "
            "comparison"
        )
    if name == "reward" and value.is_complex():
        raise DTypeError(f"reward returned {value.dtype}, expected real numbers")
    found: Tensor = value.detach()
    return found
