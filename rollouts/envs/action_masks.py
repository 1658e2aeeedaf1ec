# SPDX-License-Identifier: Apache-2.0
"""Masks of actions in the arrays that a native pool returns."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from rollouts.batch import NUM_STEP_ARRAYS

Array = npt.NDArray[Any]

NAME = "action_mask"


def masks_of(arrays: tuple[Array, ...], info_names: tuple[str, ...]) -> Array:
    """(B, A) bool: the actions that the batch's observations allow, in a new array.

    Where same-step autoreset began an episode, the mask is that of the first observation, if the
    arrays have such a mask.

    Args:
      arrays: The arrays of one batch, as the pool returns them.
      info_names: Names of its infos, NAME among them.
    """
    columns = arrays[NUM_STEP_ARRAYS:]
    place, count = info_names.index(NAME), len(info_names)
    # a copy, because a view would keep the whole batch's buffer from being reused
    masks: Array = columns[place] != 0
    for begun in columns[count + place : count + place + 1]:
        _, _, terminated, truncated = arrays[:4]
        ended = terminated | truncated
        masks[ended] = begun[ended] != 0
    return masks
