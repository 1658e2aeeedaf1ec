# SPDX-License-Identifier: Apache-2.0
"""Action masks on logits of torch."""

from __future__ import annotations

from math import inf
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from rollouts.errors import SpecError


def mask_logits(logits: Tensor, action_mask: Tensor) -> Tensor:
    """Sets the probability of actions that are not allowed to 0, as policies do and learners must.

    Args:
      logits: (..., A).
      action_mask: (..., A) bool, such as extras["action_mask"] of a rollout.
    Returns:
      (..., A): -inf where actions are not allowed.
    Raises:
      SpecError: Shapes differ.
    """
    if logits.shape != action_mask.shape:
        raise SpecError(
            f"action_mask has shape {tuple(action_mask.shape)}, expected that of the logits, "
            f"{tuple(logits.shape)}"
        )
    return logits.masked_fill(~action_mask, -inf)


def check_masks(action_mask: Tensor, action_space: gymnasium.Space[Any]) -> None:
    """Raises SpecError where a row (B, A), or an element of its action, has no allowed action."""
    if not isinstance(action_space, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete):
        raise SpecError(f"actions of {action_space} cannot be masked: leave action_mask out")
    sizes = np.ravel(getattr(action_space, "nvec", action_mask.shape[-1])).tolist()
    if sum(sizes) != action_mask.shape[-1]:
        return  # the check of the logits' shape reports it
    if not all(bool(part.any(-1).all()) for part in torch.split(action_mask, sizes, -1)):
        raise SpecError("action_mask allows no action, expected at least one")
