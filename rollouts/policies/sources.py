# SPDX-License-Identifier: Apache-2.0
"""`Sources`: the arrays of a torch module's state_dict, without asking torch for them each time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.support.extras import needs

with needs("torch", "rollouts.policies.sources"):
    import torch
    from torch import Tensor, nn

Array = NDArray[Any]


class Sources:
    """Views of a module's parameters and buffers.

    A tensor of the CPU is seen through an array on its memory, which stays right until the module
    is given another tensor; that is noticed by its address. One of another device is copied at
    each look.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._tensors: dict[str, Tensor] = {}
        self._addresses: list[int] = []
        self._views: dict[str, Array] = {}

    def arrays(self) -> dict[str, Array]:
        """Returns the arrays by their names in the state_dict, C-contiguous."""
        if self._tensors and self._addresses == [t.data_ptr() for t in self._tensors.values()]:
            return self._views
        state = self.module.state_dict(keep_vars=True)
        tensors = {n: t for n, t in state.items() if isinstance(t, Tensor) and t.numel() > 0}
        views = {
            name: np.ascontiguousarray(tensor.detach().cpu().numpy())
            for name, tensor in tensors.items()
        }
        # what is a copy is made again next time
        are_views = all(
            tensor.data_ptr() == views[name].ctypes.data for name, tensor in tensors.items()
        )
        self._tensors = tensors if are_views else {}
        self._addresses = [tensor.data_ptr() for tensor in tensors.values()]
        self._views = views
        return views

    def copy(self) -> dict[str, Array]:
        """Returns a copy of the state_dict."""
        state = self.module.state_dict()
        return {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in state.items()}

    def load(self, weights: Mapping[str, Array]) -> None:
        """Copies arrays of these names into the module."""
        state = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
        self.module.load_state_dict(state)
