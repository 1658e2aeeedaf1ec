# SPDX-License-Identifier: Apache-2.0
"""Running statistics that workers share: counted by each, merged by the learner, sent back."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rollouts.envs.statistics import RunningStatistics
from rollouts.errors import SpecError
from rollouts.learner.fragment import FragmentInfo

Statistics = Mapping[str, RunningStatistics]
KINDS = ("observation", "reward")
_FIRST_COUNT = 1e-4  # the count of mean 0 and var 1 with which a pool's own statistics begin


class SharedStatistics:
    """Statistics of all workers' fragments that the learner took. Thread-safe."""

    def __init__(self) -> None:
        """Begins with nothing counted."""
        self._lock = threading.Lock()
        self._common: dict[str, RunningStatistics] = {}

    @property
    def common(self) -> dict[str, RunningStatistics]:
        """The statistics by kind; empty where nothing was counted yet."""
        with self._lock:
            return dict(self._common)

    def set(self, statistics: object) -> None:
        """Replaces them.

        Raises:
          SpecError: No mapping of "observation" and "reward" to RunningStatistics.
        """
        good = isinstance(statistics, Mapping) and all(
            kind in KINDS and isinstance(one, RunningStatistics) for kind, one in statistics.items()
        )
        if not good:
            raise SpecError(
                f"statistics must be a dict of {' and '.join(map(repr, KINDS))} to "
                f"RunningStatistics, such as another coordinator's, got {statistics!r}"
            )
        with self._lock:
            self._common = dict(statistics)  # type: ignore[call-overload]

    def add(self, infos: Iterable[FragmentInfo]) -> None:
        """Merges the statistics that came with fragments."""
        with self._lock:
            for info in infos:
                for kind, counted in info.statistics.items():
                    before = self._common.get(kind)
                    if before is None:
                        zeros = np.zeros(counted.mean.shape)
                        before = RunningStatistics(zeros, zeros + 1, _FIRST_COUNT)
                    self._common[kind] = before.merged(counted)


def go_on_from(env: Any, statistics: Statistics) -> None:
    """Makes a worker's environment scale by the common statistics."""
    for kind, common in statistics.items():
        setattr(env, f"{kind}_statistics", common)


def take_new(env: Any) -> Statistics:
    """Takes what a worker's environment counted since the last call; {} if it counts nothing."""
    # environments of users have no engine
    statistics = getattr(getattr(env, "engine", None), "statistics", None)
    return {} if statistics is None else statistics.take_new()
