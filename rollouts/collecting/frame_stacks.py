# SPDX-License-Identifier: Apache-2.0
"""Rollouts of stacked frames, each frame stored once, for transport and queues.

S - 1 of the S frames in a stack were in the stack before it, so a packed rollout has about 1 / S of
the bytes. The stacks are formed again, bit for bit, when a batch is made for the learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollouts import _native
from rollouts.batch import MultiAgentRollout, RolloutBatch

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class PackedRollout:
    """A rollout whose observations are single frames and an index.

    Attributes:
      frames  (F, *frame_shape) obs_dtype   each frame that occurs in a stack
      index   (T + 1, B, S) int32           places in `frames` of each stack; row T is last_obs
      rest    the rollout with obs (T, B, 0) and last_obs (B, 0)
    """

    frames: Array
    index: NDArray[np.int32]
    rest: RolloutBatch

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays together."""
        return self.frames.nbytes + self.index.nbytes + self.rest.nbytes

    @property
    def layout(self) -> tuple[Any, ...]:
        """Returns what must be equal in rollouts that are joined without unpacking their stacks."""
        return self.index.shape[2], self.frames.shape[1:], self.frames.dtype


# a worker's rollout: with one agent, and with any number of agents
SinglePayload = RolloutBatch | PackedRollout
Payload = SinglePayload | MultiAgentRollout


def pack(batch: RolloutBatch) -> PackedRollout:
    """Stores each frame of the batch's observations once.

    Only the shape of observations matters: bytes are compared, so a stack that does not continue
    the one before, as at the start of an episode, costs more frames and stays correct.

    Args:
      batch: obs (T, B, S, ...), the newest frame last, and last_obs (B, S, ...).
    Raises:
      SpecError: observations have no axis of frames, or there are 2**31 frames.
    """
    obs, last_obs = np.ascontiguousarray(batch.obs), np.ascontiguousarray(batch.last_obs)
    frames, index = _native.pack_frame_stacks(obs, last_obs)
    steps, rows = obs.shape[:2]
    rest = replace(
        batch,
        obs=np.empty((steps, rows, 0), obs.dtype),
        last_obs=np.empty((rows, 0), obs.dtype),
    )
    return PackedRollout(frames, index, rest)


def join(payloads: Sequence[SinglePayload]) -> RolloutBatch:
    """Concatenates rollouts like `RolloutBatch.concatenate`, and unpacks the stacks of packed ones.

    Each formed stack is written once, to its place in the result. A single rollout that is not
    packed is returned as it is.

    Raises:
      SpecError: see `RolloutBatch.concatenate`.
    """
    packed = [payload for payload in payloads if isinstance(payload, PackedRollout)]
    if packed and len(packed) == len(payloads) and len({p.layout for p in packed}) == 1:
        return _join_packed(packed)
    whole = [join([p]) if isinstance(p, PackedRollout) else p for p in payloads]
    return RolloutBatch.concatenate(whole)


def _join_packed(packed: Sequence[PackedRollout]) -> RolloutBatch:
    rest = RolloutBatch.concatenate([each.rest for each in packed])
    depth, frame_shape, dtype = packed[0].layout
    steps, rows = rest.reward.shape
    obs = np.empty((steps, rows, depth, *frame_shape), dtype)
    last_obs = np.empty((rows, depth, *frame_shape), dtype)
    start = 0
    for each in packed:
        columns = slice(start, start + each.index.shape[1])
        # row by row, because these parts of the result are contiguous
        for row, index in zip((*obs, last_obs), each.index, strict=True):
            # only the mode "clip" writes to `out` directly; the index is never out of range
            np.take(each.frames, index, axis=0, out=row[columns], mode="clip")
        start = columns.stop
    return replace(rest, obs=obs, last_obs=last_obs)
