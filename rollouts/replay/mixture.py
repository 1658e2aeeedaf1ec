# SPDX-License-Identifier: Apache-2.0
"""`Mixture`: batches with a fixed share from each of several replays."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rollouts.errors import SpecError
from rollouts.replay.arguments import as_batch_size
from rollouts.replay.faces import SampledReplay, on_device
from rollouts.replay.sampling import ReplayBatch, SampleInfo, TransitionBatch

if TYPE_CHECKING:
    import torch


class Mixture(SampledReplay):
    """Samples batches that mix recorded and fresh data.

    Every batch has the same number of rows from each replay, in the order of the replays: the
    shares of B rows, rounded so that they sum to B. Importance weights are computed within each
    replay.

    Example:
      offline = ReplayBuffer.from_minari("D4RL/pen/human-v2")
      mixture = Mixture([(offline, 0.5), (online, 0.5)])  # Ball et al. 2023
      batch = mixture.sample(256)
      mixture.update_priorities(batch.key, td_error)

    Attributes:
      parts: The replays.
      shares: Their shares, which sum to 1.
    """

    def __init__(self, parts: Sequence[tuple[Any, float]]) -> None:
        """Takes replays and their shares of a batch.

        Raises:
          SpecError: No replays, or shares that are not above 0 and sum to 1.
        """
        shares = np.array([share for _, share in parts], np.float64)
        if not len(parts) or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-6:
            raise SpecError(
                f"the shares are {shares.tolist()}, expected one above 0 for each replay, which "
                "sum to 1"
            )
        self.parts: list[Any] = [part for part, _ in parts]
        self.shares: list[float] = shares.tolist()
        self.tables = self.parts[0].tables

    def counts(self, batch_size: int) -> list[int]:
        """Rows from each replay in a batch of this size."""
        ends = np.rint(np.cumsum(self.shares) * batch_size).astype(int)
        found: list[int] = np.diff(ends, prepend=0).tolist()
        return found

    def sample(
        self,
        batch_size: int,
        *,
        table: str | None = None,
        beta: float = 0.4,
        timeout_s: float | None = None,
        device: str | torch.device | None = None,
    ) -> ReplayBatch:
        """Draws a batch; arguments and errors are those of `ReplayBuffer.sample`.

        Raises:
          SpecError: The replays' batches differ in shapes, kinds or names of extras.
        """
        counts = self.counts(as_batch_size(batch_size))
        drawn = [
            part.sample(count, table=table, beta=beta, timeout_s=timeout_s)
            for part, count in zip(self.parts, counts, strict=True)
            if count
        ]
        return on_device(_joined(drawn), device)

    def update_priorities(
        self, keys: ArrayLike, priorities: ArrayLike, *, table: str | None = None
    ) -> int:
        """Sets the priorities of a whole batch's items; as `ReplayBuffer.update_priorities`."""
        keys, priorities = np.asarray(keys), np.asarray(priorities)
        ends = np.cumsum(self.counts(len(keys)))[:-1]
        pairs = zip(np.split(keys, ends), np.split(priorities, ends), strict=True)
        return sum(
            part.update_priorities(*pair, table=table)
            for part, pair in zip(self.parts, pairs, strict=True)
            if len(pair[0])
        )

    def close(self) -> None:
        """Closes all replays."""
        for part in self.parts:
            part.close()

    def _sample_ahead(
        self, batch_size: int, table: str, beta: float, timeout_s: float, takers: Collection[int]
    ) -> ReplayBatch:
        drawn = [
            part._sample_ahead(count, table, beta, timeout_s, takers)
            for part, count in zip(self.parts, self.counts(batch_size), strict=True)
            if count
        ]
        joined: ReplayBatch = _joined(drawn)
        return joined


def _joined(batches: list[Any]) -> Any:
    """Returns one batch of all rows, in order."""
    first = batches[0]
    if len(batches) == 1:
        return first
    if any(type(each) is not type(first) for each in batches):
        raise SpecError("one replay samples transitions and another sequences: expected the same")
    by_row = {one.name for one in fields(SampleInfo)} | {"policy_state"}
    is_flat = isinstance(first, TransitionBatch)

    def join(name: str, values: list[Any]) -> Any:
        if isinstance(values[0], dict):
            if any(each.keys() != values[0].keys() for each in values):
                raise SpecError(f"the replays' {name} have other names: expected the same")
            return {key: join(name, [each[key] for each in values]) for key in values[0]}
        if isinstance(values[0], tuple):
            return tuple(join(name, list(each)) for each in zip(*values, strict=True))
        if not isinstance(values[0], np.ndarray):
            return values[0]
        return _concatenated(name, values, 0 if is_flat or name in by_row else 1)

    return type(first)(
        **{
            one.name: join(one.name, [getattr(each, one.name) for each in batches])
            for one in fields(first)
        }
    )


def _concatenated(name: str, arrays: list[NDArray[Any]], axis: int) -> NDArray[Any]:
    try:
        return np.concatenate(arrays, axis)
    except ValueError as error:
        shapes = [each.shape for each in arrays]
        raise SpecError(
            f"{name} has the shapes {shapes} in the replays' batches: {error}"
        ) from error
