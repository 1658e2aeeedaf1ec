# SPDX-License-Identifier: Apache-2.0
"""The checksum of a fragment, by which one that was made again is compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts import _native
from rollouts.batch import RolloutBatch

Array = npt.NDArray[Any]

# arrays that follow from states and actions; those of the policy do not
OUTCOME = ("reward", "terminated", "truncated", "last_obs")
# what adds up is compared after the last step
_ADDED_UP = ("episode_return", "episode_length")
_MIN_PICTURE_BYTES = 4096
_MAX_STACK = 8


def sum_of(batches: Mapping[str, RolloutBatch]) -> int:
    """Returns the checksum of what the environments did in a fragment.

    Stacked pictures (S, H, W) count by their newest frame, and whole before the first step and
    after the last one: each frame is the newest once.

    Args:
      batches: group -> its batch.
    """
    arrays: list[Array] = []
    for batch in batches.values():
        arrays += _observed(batch.obs)
        arrays += [getattr(batch, name) for name in OUTCOME]
        arrays += [getattr(batch, name)[-1] for name in _ADDED_UP]
        arrays += [batch.extras["active"]] if "active" in batch.extras else []
        arrays += [] if batch.final_obs is None else [batch.final_obs]
    return _native.checksum([_rows(one) for one in arrays])


def _observed(obs: Array) -> list[Array]:
    each = obs[0, 0]
    if each.ndim != 3 or each.nbytes < _MIN_PICTURE_BYTES or each.shape[0] > _MAX_STACK:
        return [obs]
    return [obs[0], obs.reshape(-1, *each.shape)[:, -1]]


def _rows(array: Array) -> Array:
    """Returns the array, or a copy where its rows do not lie together."""
    if array.flags.c_contiguous:
        return array
    inner = array[0]
    return array if inner.flags.c_contiguous else np.ascontiguousarray(array)
