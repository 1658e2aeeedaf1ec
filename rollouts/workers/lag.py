# SPDX-License-Identifier: Apache-2.0
"""The age of fragments: the rule for it, the learner's pace that the rule needs, and statistics.

The lag of a step is the newest published version minus the version that chose its action; the lag
of a fragment is that of its oldest step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from rollouts.errors import SpecError
from rollouts.learner.fragment import Fragment, FragmentHandle

SyncMode = Literal["synchronous", "one_step_lag", "free_running"]
LagPolicy = Literal["drop", "block", "pass"]

# the max_policy_lag that a mode stands for
_LAG_OF_MODE: dict[str, int | None] = {"synchronous": 0, "one_step_lag": 1, "free_running": None}

# the histogram's last key stands for this lag and any above
_LAST_BUCKET = 256


@dataclass(frozen=True, slots=True)
class LagRule:
    """The rule for fragments with a lag above `max_lag` (None: there is no limit).

    pass    They are delivered, and counted.
    drop    LearnerQueue.drop_stale discards them, and they are counted as "stale".
    block   Collection stops before it makes them: with F fragments taken per version, no more
            than max_lag * F are in flight and queued together, and with max_lag = 0 only those
            that a `get` is waiting for. Fragments that grow too old nevertheless, because F changed
            or a slow worker was overtaken by others, are discarded as under "drop". Fragments that
            a waiting `get` lacks are always asked for, so that this cannot deadlock.
    """

    max_lag: int | None = None
    policy: LagPolicy = "pass"

    @classmethod
    def of(
        cls, sync_mode: str, max_policy_lag: int | None = None, lag_policy: str | None = None
    ) -> LagRule:
        """Checks and combines RolloutCoordinator's sync_mode and the two fields of its `queue`.

        Raises:
          SpecError: an argument is unknown, or the three contradict each other.
        """
        if sync_mode not in get_args(SyncMode):
            raise SpecError(f"sync_mode is {sync_mode!r}, expected one of {get_args(SyncMode)}")
        if lag_policy is not None and lag_policy not in get_args(LagPolicy):
            raise SpecError(
                f"queue.lag_policy is {lag_policy!r}, expected one of {get_args(LagPolicy)}"
            )
        if max_policy_lag is not None and max_policy_lag < 0:
            raise SpecError(
                f"queue.max_policy_lag is {max_policy_lag}, expected at least 0 versions"
            )
        implied = _LAG_OF_MODE[sync_mode]
        if implied is not None:
            if max_policy_lag not in (None, implied) or lag_policy not in (None, "block"):
                raise SpecError(
                    f"sync_mode={sync_mode!r} means queue.max_policy_lag={implied} and "
                    f'queue.lag_policy="block", got {max_policy_lag} and {lag_policy!r}: leave '
                    'them out, or choose sync_mode="free_running"'
                )
            return cls(implied, "block")
        if max_policy_lag is None:
            if lag_policy not in (None, "pass"):
                raise SpecError(
                    f"queue.lag_policy is {lag_policy!r}, expected queue.max_policy_lag with it"
                )
            return cls()
        return cls(max_policy_lag, lag_policy or "drop")  # type: ignore[arg-type]

    def is_over(self, lag: int) -> bool:
        """Tells whether a fragment of this lag is above the limit."""
        return self.max_lag is not None and lag > self.max_lag

    def discards(self, lag: int) -> bool:
        """Tells whether a fragment of this lag must not be delivered."""
        return self.policy != "pass" and self.is_over(lag)

    def is_stale(self, version: Callable[[], int]) -> Callable[[FragmentHandle], bool]:
        """Returns a LearnerQueue's test for stale fragments; `version` returns the newest one."""
        return lambda handle: self.discards(version() - handle.info.min_policy_version)

    def outstanding_limit(self, *, wanted: int, per_version: int, capacity: int) -> int:
        """Returns how many fragments may be in flight and queued together.

        Args:
          wanted: Fragments that waiting `get` calls want, including those that are queued already.
          per_version: Fragments that the learner takes between two versions; 0 while unknown.
          capacity: The bound without "block".
        """
        if self.policy != "block" or self.max_lag is None:
            return max(capacity, wanted)
        return max(wanted, min(capacity, self.max_lag * per_version))


class Pace:
    """Follows how many fragments the learner takes between two versions."""

    def __init__(self) -> None:
        self._taken_before = 0
        self._last = 0

    def publish(self, num_taken: int) -> None:
        """Notes a new version after `num_taken` fragments in all."""
        if num_taken > self._taken_before:
            self._last = num_taken - self._taken_before
            self._taken_before = num_taken

    def per_version(self, num_taken: int) -> int:
        """Returns the fragments taken between the last two versions, or those since if these are
        more."""
        return max(self._last, num_taken - self._taken_before)


class LagMeter:
    """Counts the lags of delivered fragments. Not thread-safe."""

    def __init__(self, rule: LagRule) -> None:
        self._rule = rule
        self._last: dict[str, float] | None = None
        self._histogram: Counter[int] = Counter()
        self._over = Counter(env_steps=0, fragments=0)

    def add(self, fragments: Sequence[Fragment | FragmentHandle], version: int) -> None:
        """Adds a delivery at the time when `version` was the newest."""
        batch: Counter[int] = Counter()
        for fragment in fragments:
            batch.update(_lags(fragment, version))
            if self._rule.is_over(version - fragment.info.min_policy_version):
                self._over.update(env_steps=fragment.info.num_steps, fragments=1)
        mean = sum(lag * steps for lag, steps in batch.items()) / batch.total()
        self._last = {"min": min(batch), "mean": mean, "max": max(batch)}
        for lag, steps in batch.items():
            self._histogram[min(lag, _LAST_BUCKET)] += steps

    def as_dict(self) -> dict[str, Any]:
        """Returns the meter's part of `RolloutCoordinator.stats`."""
        return {
            "policy_lag": self._last,
            "policy_lag_histogram": dict(sorted(self._histogram.items())),
            "over_max_policy_lag": dict(self._over),
        }


def _lags(fragment: Fragment | FragmentHandle, version: int) -> dict[int, int]:
    """Returns lag -> env-steps; reads the arrays only where the versions of the steps differ.

    Where the arrays are not in this process, all steps count as the oldest of them.
    """
    info = fragment.info
    if isinstance(fragment, FragmentHandle) or info.min_policy_version == info.max_policy_version:
        return {version - info.min_policy_version: info.num_steps}
    versions, counts = np.unique(fragment.policy_version, return_counts=True)
    return {version - int(v): int(count) for v, count in zip(versions, counts, strict=True)}
