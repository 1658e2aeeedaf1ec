# SPDX-License-Identifier: Apache-2.0
"""Shares of shards in a batch, and batches of several shards joined to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollouts.replay.sampling import ReplayBatch, SequenceBatch, importance_weights
from rollouts.replay.shards.keys import KeyLayout

Array = NDArray[Any]

# fields of a SequenceBatch; everything else has the items along axis 0
_TIME_MAJOR = (
    *("obs", "action", "reward", "terminated", "truncated", "valid", "first"),
    *("policy_version", "extras"),
)


def share_out(batch_size: int, share: Array, credit: Array) -> tuple[Array, Array]:
    """Divides a batch in proportion to shares; remainders are carried over to later batches.

    Args:
      batch_size: Items B.
      share (S,) float64: Sums to 1.
      credit (S,) float64: Items that earlier batches owe each shard.

    Returns:
      counts (S,) int64, which sum to B, and credit (S,) float64 for the next batch.
    """
    due = np.where(share > 0, credit + batch_size * share, 0.0)
    counts = np.maximum(np.floor(due), 0).astype(np.int64)
    # largest remainders first; equal ones in the order of the shards
    while (missing := batch_size - int(counts.sum())) > 0:
        order = np.argsort(counts - due, kind="stable")
        order = order[share[order] > 0][:missing]
        counts[order] += 1
    while (excess := int(counts.sum()) - batch_size) > 0:
        order = np.argsort(due - counts, kind="stable")
        order = order[counts[order] > 0][:excess]
        counts[order] -= 1
    return counts, np.clip(due - counts, -1.0, 1.0)


class Drawn(NamedTuple):
    """The part of a batch that one shard sampled; `share` is the shard's part of all draws."""

    shard_id: int
    incarnation: int
    share: float
    batch: ReplayBatch


def join_drawn(drawn: Sequence[Drawn], size: int, *, keys: KeyLayout, beta: float) -> ReplayBatch:
    """Joins parts as `join_batches` does, with keys that are unique over all shards."""
    batches = []
    for part in drawn:
        key = keys.join(part.batch.key, part.shard_id, part.incarnation)
        batches.append(replace(part.batch, key=key))
    return join_batches(batches, [part.share for part in drawn], size, beta=beta)


def join_batches(
    batches: Sequence[ReplayBatch], shares: Sequence[float], size: int, *, beta: float
) -> ReplayBatch:
    """Joins the samples of several shards into the sample of one table.

    Args:
      batches: One or more per shard.
      shares: The shard's part of all draws, for each batch.
      size: Items in all shards.
      beta: Exponent of the importance weights.
    """
    first = batches[0]
    joined: dict[str, Any] = {}
    for field in fields(first):
        values = [getattr(batch, field.name) for batch in batches]
        axis = int(isinstance(first, SequenceBatch) and field.name in _TIME_MAJOR)
        joined[field.name] = _join(values, axis)
    # a draw chooses a shard first, then an item in it
    share = np.repeat(np.asarray(shares, np.float64), [len(batch.key) for batch in batches])
    probability = joined["probability"] * share
    table_size = np.full(len(probability), size, np.int64)
    weight = importance_weights(probability, table_size, beta)
    batch: ReplayBatch = type(first)(**joined)
    return replace(batch, probability=probability, table_size=table_size, weight=weight)


def _join(values: list[Any], axis: int) -> Any:
    match values[0]:
        case dict() as first:
            return {name: _concatenate([v[name] for v in values], axis) for name in first}
        case tuple():
            return tuple(_concatenate(list(column), 0) for column in zip(*values, strict=True))
        case np.ndarray():
            return _concatenate(values, axis)
        case same:
            return same


def _concatenate(arrays: list[Array], axis: int) -> Array:
    if len(arrays) == 1:
        return arrays[0]
    if axis == 0:
        return np.concatenate(arrays)
    # truncated sequences are as long as the longest one of their shard
    length = max(len(array) for array in arrays)
    columns = sum(array.shape[1] for array in arrays)
    result = np.zeros((length, columns, *arrays[0].shape[2:]), arrays[0].dtype)
    begin = 0
    for array in arrays:
        result[: len(array), begin : begin + array.shape[1]] = array
        begin += array.shape[1]
    return result
