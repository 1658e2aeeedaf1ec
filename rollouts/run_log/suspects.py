# SPDX-License-Identifier: Apache-2.0
"""Finds steps that are worth seeing again: numbers that are not finite, rewards far off."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rollouts.batch import RolloutBatch
from rollouts.run_log.fragment_sums import Summary

Array = npt.NDArray[Any]

FAR = 10.0  # a reward this many times as large as the largest before is an outlier
MOST_WARNINGS = 10  # warnings of one collector, over its whole life
_USUAL_STEPS = 10_000  # rewards of a group before any of them is called an outlier


@dataclass(frozen=True, slots=True)
class Suspect:
    """A step that is worth seeing again.

    Attributes:
      t: Step within the fragment.
      column: Environment within the pool; with several agents, the agent's row.
      what: A sentence about the step, without its subject.
    """

    t: int
    column: int
    what: str


class Suspects:
    """Remembers the largest reward of each group so far."""

    def __init__(self) -> None:
        """Begins without rewards."""
        self._largest: dict[str, float] = {}
        self._num_seen: Counter[str] = Counter()

    def find(
        self, batches: Mapping[str, RolloutBatch], known: Mapping[str, Summary]
    ) -> Iterator[tuple[str, Suspect]]:
        """Yields the first suspect of each kind and group in a fragment; most have none."""
        for name, batch in batches.items():
            own = known[name]
            if (found := self._outlier(name, batch.reward, own.largest_reward)) is not None:
                yield name, found
            if own.is_obs_finite:
                continue
            # None if only the last observation is not finite: the next fragment begins with it
            if (found := not_finite(batch.obs, "observation")) is not None:
                yield name, found

    def _outlier(self, name: str, reward: Array, largest: float) -> Suspect | None:
        before, seen = self._largest.get(name, 0.0), self._num_seen[name]
        self._num_seen[name] += reward.size
        if largest <= before:
            return None
        if not math.isfinite(largest):  # a NaN also counts as the largest
            return not_finite(reward, "reward")
        self._largest[name] = largest
        if seen < _USUAL_STEPS or not before or largest < FAR * before:
            return None
        t, column = np.unravel_index(int(np.abs(reward).argmax()), reward.shape)
        value = float(reward[t, column])
        what = (
            f"has the reward {value:g}, {FAR:g} times as large as any before ({before:g}) or more"
        )
        return Suspect(int(t), int(column), what)


def not_finite(array: Array, name: str) -> Suspect | None:
    """Returns the first place where an array (T, B, ...) is not finite; None if all of it is."""
    bad = ~np.isfinite(array.reshape(*array.shape[:2], -1)).all(-1)
    if not bad.any():
        return None
    t, column = (int(one) for one in np.argwhere(bad)[0])
    values = array[t, column].ravel()
    value = float(values[~np.isfinite(values)][0])
    return Suspect(t, column, f"has the {name} {value}")
