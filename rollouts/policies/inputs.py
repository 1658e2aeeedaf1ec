# SPDX-License-Identifier: Apache-2.0
"""Inputs of a torch module: floats in the module's dtype, whole numbers as they were observed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rollouts.errors import DTypeError, SpecError

# parts of torch's messages on sizes, and on dtypes
_SIZES = ("shapes cannot be multiplied", "channels, but got", "size mismatch")
_DTYPES = ("dtype", "type (", "scalar type", "Dimension out of")


def dtype_of(module: nn.Module) -> torch.dtype | None:
    """The dtype of the module's first floating-point parameter; None without one."""
    for parameter in module.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return None


def check_module(module: object) -> None:
    """Raises DTypeError for an object that is no torch module."""
    if isinstance(module, nn.Module):
        return
    if isinstance(module, type):
        what, hint = f"the class {module.__name__}", f"make one of it: {module.__name__}(...)"
    else:
        what, hint = f"a {type(module).__name__}", "a function goes into the forward of one"
    raise DTypeError(f"module is {what}, expected a torch.nn.Module: {hint}")


def as_input(module: nn.Module, obs: Tensor) -> Tensor:
    """Observations for a module: floats of any precision in the dtype of its parameters.

    Whole numbers stay as they are, because an embedding reads them, and only the module knows the
    divisor of pixels.
    """
    if not obs.is_floating_point():
        return obs
    dtype = dtype_of(module)
    return obs if dtype is None or dtype == obs.dtype else obs.to(dtype)


def call_module(module: nn.Module, obs: Tensor, *state: Any) -> Any:
    """Calls a module with observations, and with its state if it has memory.

    Raises:
      SpecError: It cannot compute with observations of this dtype or shape; the message says what
        to do.
    """
    try:
        return module(as_input(module, obs), *state)
    except (RuntimeError, IndexError, ValueError) as error:
        sentence = explained(module, obs, error)
        if sentence is None:
            raise
        raise SpecError(sentence) from error


def explained(module: nn.Module, obs: Tensor, error: Exception) -> str | None:
    """Explains why a module failed for its observations; None if the cause is unknown.

    Raises:
      SpecError: The message of a layer, passed on.
    """
    if isinstance(error, SpecError):
        raise error
    said = str(error).partition("\n")[0]
    is_size = any(word in said for word in _SIZES)
    if not is_size and not any(word in said for word in _DTYPES):
        return None
    what = (
        f"the module fails for observations of shape {tuple(obs.shape)} and {obs.dtype}: "
        f"{type(error).__name__}: {said}"
    )
    if is_size:
        found = _first_size(module)
        wanted = f", its first linear layer {found[0]!r} reads {found[1]}" if found else ""
        return (
            f"{what}; an observation has {obs[0].numel()} numbers{wanted}: make the network for "
            "env.single_observation_space"
        )
    if obs.is_floating_point():
        return f"{what}; are all of its layers of one dtype?"
    if obs.dtype == torch.uint8:
        return (
            f"{what}. Bytes stay as they are: divide pixels in forward, as in "
            "self.network(obs / 255), and make small whole numbers floats by obs.float(); the "
            "option obs_dtype is of observations that are floats"
        )
    return (
        f"{what}. Whole numbers stay as they are: make them floats in forward by obs.float(), or "
        "give them to nn.Embedding or one_hot"
    )


def _first_size(module: nn.Module) -> tuple[str, int] | None:
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            return name, layer.in_features
    return None
