# SPDX-License-Identifier: Apache-2.0
"""`Sources`: the arrays behind a torch module's weights, without calls of torch each time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts.errors import SpecError
from rollouts.policies.output_checks import check_names
from rollouts.support.extras import needs

with needs("torch", "rollouts.policies.sources"):
    import torch
    from torch import Tensor, nn

Array = NDArray[Any]


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Returns a module's parameters and buffers that are not None; persistent or not.

    The names are those of its state_dict.
    """
    found: dict[str, Any] = dict(module.named_buffers(remove_duplicate=False))
    found |= module.state_dict(keep_vars=True)
    return {name: t for name, t in found.items() if isinstance(t, Tensor) and t.numel() > 0}


def _is_float32(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32 and value.numel() > 0


def _kinds_of(module: nn.Module) -> list[tuple[type, str, bool]]:
    """Layers' types, settings and hooks, which can change without a change of weights."""
    return [
        (type(layer), "" if layer._parameters else layer.extra_repr(), any(_hooks(layer)))
        for layer in module.modules()
    ]


def _hooks(layer: nn.Module) -> tuple[dict[Any, Any], ...]:
    return layer._forward_hooks, layer._forward_pre_hooks


def state_of(module: nn.Module) -> tuple[Tensor, ...]:
    """The memory of a module for one environment at an episode's start: its `initial_state`.

    Empty for a module without memory.

    Raises:
      SpecError: It is no tuple of float32 tensors.
    """
    if not hasattr(module, "initial_state"):
        return ()
    with torch.inference_mode():
        state: Any = module.initial_state()  # type: ignore[operator]
    if not isinstance(state, tuple | list) or not state or not all(map(_is_float32, state)):
        many = isinstance(state, tuple | list)
        got = [getattr(each, "dtype", type(each)) for each in state] if many else type(state)
        raise SpecError(
            f"{type(module).__name__}.initial_state() returned {got}, expected a tuple of float32 "
            "tensors, which native code has; use engine='torch'"
        )
    return tuple(state)


class Sources:
    """Views of a module's parameters and buffers.

    A tensor on the CPU is read through an array that shares its memory, which stays valid until the
    module gets another tensor or another layer; both are noticed. Tensors on other devices are
    copied at each read.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._kinds = _kinds_of(module)
        self._views: dict[str, Array] = {}
        # where the module keeps each tensor or layer: a dict, a key, and the object found there
        self._places: list[tuple[dict[str, Any], str, Any]] = []
        self._tensors: dict[str, Tensor] = {}
        self._addresses: list[tuple[Tensor, int]] = []
        self._hooks: list[dict[Any, Any]] = []
        self._are_views = False

    def arrays(self) -> dict[str, Array]:
        """Returns the arrays by name, C-contiguous.

        Raises:
          SpecError: A layer was replaced by one of another kind, or got hooks, since the module
            was read.
        """
        if not (self._are_views and self._is_as_seen()):
            self._look()
            self._view()
        return self._views

    def tensors(self) -> dict[str, Tensor]:
        """Returns the tensors themselves by name, wherever they lie.

        Raises:
          SpecError: As `arrays`.
        """
        self._check_kinds()
        if not (self._addresses and self._is_as_seen()):
            self._look()
        return self._tensors

    def initial_state(self) -> list[Array]:
        """Returns the module's memory at an episode's start, read anew; often empty.

        Raises:
          SpecError: It is no tuple of float32 tensors, or has NaN or infinity.
        """
        state = [each.detach().cpu().numpy() for each in state_of(self.module)]
        if not all(np.isfinite(each).all() for each in state):
            raise SpecError(f"{type(self.module).__name__}.initial_state() is not finite")
        return [np.ascontiguousarray(each).reshape(each.shape) for each in state]

    def _is_as_seen(self) -> bool:
        return (
            all(place.get(key) is seen for place, key, seen in self._places)
            and all(tensor.data_ptr() == address for tensor, address in self._addresses)
            and not any(self._hooks)
        )

    def _check_kinds(self) -> None:
        if _kinds_of(self.module) != self._kinds:
            raise SpecError(
                f"a layer of {type(self.module).__name__} was replaced by one of another kind or "
                "got hooks since the module was read: make a new policy of it"
            )

    def _look(self) -> None:
        """Finds the tensors; views of earlier ones are no longer valid."""
        self._check_kinds()
        self._are_views = False
        self._tensors = tensors_of(self.module)
        self._addresses = [(tensor, tensor.data_ptr()) for tensor in self._tensors.values()]
        self._hooks = [hooks for layer in self.module.modules() for hooks in _hooks(layer)]
        self._places = [
            (place, key, place[key])
            for layer in self.module.modules()
            for place in (layer._parameters, layer._buffers, layer._modules)
            for key in place
        ]

    def _view(self) -> None:
        """Makes the arrays of the tensors that were found."""
        self._views = {
            # ascontiguousarray turns a single number into a row, which reshape undoes
            name: np.ascontiguousarray(tensor.detach().cpu().numpy()).reshape(tensor.shape)
            for name, tensor in self._tensors.items()
        }
        self._are_views = all(
            tensor.data_ptr() == self._views[name].ctypes.data
            for name, tensor in self._tensors.items()
        )

    def copy(self) -> dict[str, Array]:
        """Returns a copy of the state_dict."""
        state = self.module.state_dict()
        return {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in state.items()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the names and shapes that `load` takes."""
        return {name: tuple(tensor.shape) for name, tensor in self.module.state_dict().items()}

    def load(self, weights: Mapping[str, Array | Tensor]) -> None:
        """Copies arrays, or tensors on any device, of these names into the module.

        Raises:
          SpecError: They have other names or shapes. DTypeError: They are no mapping.
        """
        check_names(weights, self.shapes())
        state = {
            name: value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
            for name, value in weights.items()
        }
        self.module.load_state_dict(state)
