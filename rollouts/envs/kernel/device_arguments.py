# SPDX-License-Identifier: Apache-2.0
"""Reads and checks the arguments that users pass to a pool of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rollouts.checks import one_of
from rollouts.errors import DTypeError, SpecError

EMULATION = "cpu-emulation"
# (allowed (dtype, bytes of an element), shape, device) of a step's actions
ActionForm = tuple[list[tuple[torch.dtype, int]], tuple[int, ...], torch.device]
_FLOATS = ("float32", "float16", "bfloat16")


def read_device(device: str | torch.device) -> tuple[torch.device, bool]:
    if device == EMULATION:
        return torch.device("cpu"), True
    try:
        read = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise SpecError(
            f"device is {device!r}, expected 'cuda', 'cuda:1' or {EMULATION!r}"
        ) from error
    if read.type != "cuda":
        raise SpecError(
            f"device is {device!r}, expected 'cuda', 'cuda:1' or {EMULATION!r}; without device the "
            "C++ pool steps on the CPU"
        )
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        if read.index is None:
            read = torch.device("cuda", torch.cuda.current_device())
        elif read.index >= count:
            raise SpecError(
                f"device is {str(device)!r}, expected 'cuda:0' to 'cuda:{count - 1}', which exist"
            )
    return read, False


def read_obs_dtype(given: str | torch.dtype, space: spaces.Space[Any]) -> str:
    name = _FLOATS[one_of("obs_dtype", str(given).removeprefix("torch."), _FLOATS)]
    own = np.dtype(space.dtype or np.float32).name
    if own in _FLOATS:
        return name
    if name != "float32":
        raise SpecError(f"obs_dtype is {name}, and observations are {own}, which stay as they are")
    return own


def read_mask(mask: Any, num_envs: int, device: torch.device) -> Tensor | None:
    if mask is None:
        return None
    tensor = mask if isinstance(mask, Tensor) else torch.as_tensor(np.asarray(mask))
    if tensor.dtype != torch.bool or tensor.shape != (num_envs,):
        raise SpecError(
            f"reset_mask is {tensor.dtype} {tuple(tensor.shape)}, expected torch.bool ({num_envs},)"
        )
    return tensor.to(device)


class ActionReader:
    """Converts actions of N environments, or of N times A agents, to tensors for kernels."""

    def __init__(
        self,
        space: spaces.Space[Any],
        rows: tuple[int, ...],
        device: torch.device,
        name: str = "actions",
    ) -> None:
        """Makes a reader of actions (*rows, *action_shape), which errors call `name`."""
        self._space, self._device, self._name = space, device, name
        self._is_box = isinstance(space, spaces.Box)
        self._dtypes = (torch.float32,) if self._is_box else (torch.int64, torch.int32)
        self._rows = (*rows, *(space.shape or ()))

    @property
    def form(self) -> ActionForm:
        """The form of a step's actions that a kernel reads without conversion."""
        return [(one, one.itemsize) for one in self._dtypes], self._rows, self._device

    def read(self, actions: Any) -> tuple[Tensor, int | None]:
        """Returns the actions as a tensor; and K for (K, N, ...), None for (N, ...).

        Raises:
          SpecError: Another shape, dtype or device.
        """
        if not isinstance(actions, Tensor):
            try:
                actions = torch.as_tensor(actions)
            except (TypeError, ValueError, RuntimeError) as error:
                raise DTypeError(
                    f"{self._name} is {actions!r}, expected a tensor or an array {self._rows}"
                ) from error
            if self._is_box and actions.dtype == torch.float64:
                actions = actions.float()
            actions = actions.to(self._device)
        is_sequence = actions.ndim == 1 + len(self._rows)
        rows = tuple(actions.shape[1:]) if is_sequence else tuple(actions.shape)
        if actions.dtype not in self._dtypes or rows != self._rows:
            names = " or ".join(str(dtype) for dtype in self._dtypes)
            raise SpecError(
                f"{self._name} are {actions.dtype} {tuple(actions.shape)}, expected {names} "
                f"{self._rows}"
            )
        if actions.device != self._device:
            raise SpecError(f"{self._name} are on {actions.device}, expected {self._device}")
        return actions.contiguous(), len(actions) if is_sequence else None

    def empty(self, num_steps: int) -> Tensor:
        """Returns an array (K, N, ...), which a launch fills with random actions.

        Raises:
          SpecError: The space has no bounds.
        """
        space = self._space
        if isinstance(space, spaces.Box) and not space.is_bounded("both"):
            raise SpecError(f"random actions need a bounded space, and {space} is not")
        dtype = torch.float32 if self._is_box else torch.int32
        return torch.empty((num_steps, *self._rows), dtype=dtype, device=self._device)
