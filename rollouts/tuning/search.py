# SPDX-License-Identifier: Apache-2.0
"""Chooses the sizes to try from the results of earlier ones, for any kind of trial."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_MIN_GAIN = 1.03  # speed-up from which a larger size counts as faster
_PATIENCE = 2  # consecutive sizes without such a gain that end the search
_SAME = 0.95  # share of the fastest speed from which a size counts as equally fast
_MEMORY_SHARE = 0.8  # share of the free memory
_MARGIN = 1.1  # factor on the expected memory of an environment
_LEAST_GROWTH = 1.25  # a size nearer to the last one is not worth a trial

STOPPED_FASTEST = "larger sizes are not faster"
STOPPED_MOST = "max_num_envs reached"
STOPPED_MEMORY = "the next size would not fit in memory"
STOPPED_FAILED = "the last size failed"


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one size, in a process of its own.

    Attributes:
      num_envs, rollout_length: Environments N and steps T.
      engine: Engine that computed the policy: "native" or "torch".
      env_steps_per_s: Speed in each repeat: steps of environments, with any number of agents.
      memory_bytes: Peak memory of the process, or the memory taken on a GPU.
      usable_bytes: Bytes that were free before.
      failure: The reason why there are no figures; "" if there are.
    """

    num_envs: int
    rollout_length: int
    engine: str = ""
    env_steps_per_s: tuple[float, ...] = ()
    memory_bytes: int = 0
    usable_bytes: int = 0
    failure: str = ""

    @property
    def median(self) -> float:
        """Median of the repeats; 0 for a trial that failed."""
        return statistics.median(self.env_steps_per_s) if self.env_steps_per_s else 0.0

    @property
    def rollout_size(self) -> int:
        """Env-steps N * T of a rollout."""
        return self.num_envs * self.rollout_length


@dataclass(frozen=True, slots=True)
class BatchTuning:
    """All trials and their conclusions.

    Attributes:
      id, policy, device: The environments, the policy, and the device: "cpu" for a C++ pool.
      trials: In their order.
      stopped: rollout_length -> the reason why no larger num_envs was tried.
      note: The reason for the device, if it was chosen automatically.
    """

    id: str
    policy: str
    device: str
    trials: tuple[Trial, ...]
    stopped: dict[int, str]
    note: str = ""

    @property
    def fastest(self) -> Trial | None:
        """The trial with the most env-steps per second; None if every trial failed."""
        found = [one for one in self.trials if not one.failure]
        return max(found, key=lambda one: one.median, default=None)

    @property
    def smallest(self) -> Trial | None:
        """The smallest rollout within 5 % of the fastest: an algorithm learns more from as many
        env-steps when it updates its policy more often."""
        if self.fastest is None:
            return None
        good = [one for one in self.trials if one.median >= _SAME * self.fastest.median]
        return min(good, key=lambda one: (one.rollout_size, -one.median))


def most_trials(rollout_lengths: Sequence[int], *, first: int, most: int) -> int:
    """The number of trials of `search` if every size is tried and fits in memory."""
    sizes, num_envs = 1, min(first, most)
    while num_envs < most:
        num_envs, sizes = min(2 * num_envs, most), sizes + 1
    return sizes * len(rollout_lengths)


def search(
    measure: Callable[[int, int], Trial],
    rollout_lengths: Sequence[int],
    *,
    first: int,
    most: int,
    memory_bytes: int | None = None,
) -> Iterator[Trial | tuple[int, str]]:
    """Doubles num_envs for each rollout length while that is faster and expected to fit in memory.

    Memory per additional environment is assumed to be that between the last two trials. After a
    single trial, a size twice as large is assumed to take twice as much, which is an upper bound.

    Args:
      measure: (num_envs, rollout_length) -> its trial.
      rollout_lengths: Steps T, each of which is tried separately.
      first, most: The smallest and largest num_envs.
      memory_bytes: Most bytes of a trial; None for 80 % of the free memory.

    Yields:
      Each trial, and after the last one of a rollout length (rollout_length, reason for the end).
    """
    for length in rollout_lengths:
        trials: list[Trial] = []
        num_envs = min(first, most)
        while True:
            trial = measure(num_envs, length)
            yield trial
            if trial.failure:
                yield length, STOPPED_FAILED
                break
            trials.append(trial)
            if not _still_gains(trials):
                yield length, STOPPED_FASTEST
                break
            if num_envs == most:
                yield length, STOPPED_MOST
                break
            limit = memory_bytes or int(_MEMORY_SHARE * trial.usable_bytes)
            fits = _largest_that_fits(trials, limit)
            if fits < _LEAST_GROWTH * num_envs:
                yield length, STOPPED_MEMORY
                break
            num_envs = min(2 * num_envs, most, fits)


def _still_gains(trials: Sequence[Trial]) -> bool:
    """Tells if one of the last sizes was faster than all before them."""
    if len(trials) <= _PATIENCE:
        return True
    before, last = trials[:-_PATIENCE], trials[-_PATIENCE:]
    best = max(one.median for one in before)
    return any(one.median > _MIN_GAIN * best for one in last)


def _largest_that_fits(trials: Sequence[Trial], memory_bytes: int) -> int:
    """The number of environments that are expected to fit in this memory."""
    last = trials[-1]
    if len(trials) == 1:
        return int(last.num_envs * memory_bytes / max(1, last.memory_bytes))
    before = trials[-2]
    grown = max(1, last.memory_bytes - before.memory_bytes)
    of_one = _MARGIN * grown / (last.num_envs - before.num_envs)
    return last.num_envs + int((memory_bytes - last.memory_bytes) / of_one)
