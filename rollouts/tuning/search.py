# SPDX-License-Identifier: Apache-2.0
"""The sizes to try, given the results of those before. Knows no environment."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_MIN_GAIN = 1.03  # what a larger size must bring, to count as faster
_PATIENCE = 2  # sizes in a row without such a gain
_SAME = 0.95  # share of the fastest: as good
_MEMORY_SHARE = 0.8  # share of what is free
_MARGIN = 1.1  # on what an environment is expected to take
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
      env_steps_per_s: Speed in each repeat: steps of environments, however many agents they have.
      memory_bytes: Most that the process had; on a GPU, what it took there.
      usable_bytes: Bytes that were free before.
      failure: Why there are no figures; "" where there are.
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
        """Median of the repeats; 0 of a trial that failed."""
        return statistics.median(self.env_steps_per_s) if self.env_steps_per_s else 0.0

    @property
    def rollout_size(self) -> int:
        """Env-steps N * T of a rollout."""
        return self.num_envs * self.rollout_length


@dataclass(frozen=True, slots=True)
class BatchTuning:
    """All trials, and what follows from them.

    Attributes:
      id, policy, device: What collected, and where: "cpu" of a C++ pool.
      trials: In their order.
      stopped: rollout_length -> why no larger num_envs was tried.
      note: Why it is this device, where nobody chose it.
    """

    id: str
    policy: str
    device: str
    trials: tuple[Trial, ...]
    stopped: dict[int, str]
    note: str = ""

    @property
    def fastest(self) -> Trial | None:
        """The most env-steps per second; None where every trial failed."""
        found = [one for one in self.trials if not one.failure]
        return max(found, key=lambda one: one.median, default=None)

    @property
    def smallest(self) -> Trial | None:
        """The smallest rollout that comes within 5 % of the fastest: an algorithm learns more from
        as many env-steps when it updates its policy more often."""
        if self.fastest is None:
            return None
        good = [one for one in self.trials if one.median >= _SAME * self.fastest.median]
        return min(good, key=lambda one: (one.rollout_size, -one.median))


def most_trials(rollout_lengths: Sequence[int], *, first: int, most: int) -> int:
    """The number of trials of `search` where every size is tried, memory aside."""
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
    """Doubles num_envs for each rollout length while that pays and is expected to fit in memory.

    Memory is taken to grow by as much for each environment as between the last two trials; after
    one trial alone, a size twice as large to take twice as much, which is the most it can.

    Args:
      measure: (num_envs, rollout_length) -> its trial.
      rollout_lengths: Steps T, each tried by itself.
      first, most: The smallest and largest num_envs.
      memory_bytes: Bytes that a trial may take; None for 80 % of what is free.

    Yields:
      Each trial, and after the last of a rollout length (rollout_length, why it was the last).
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
    """Whether one of the last sizes was faster than all before them."""
    if len(trials) <= _PATIENCE:
        return True
    before, last = trials[:-_PATIENCE], trials[-_PATIENCE:]
    best = max(one.median for one in before)
    return any(one.median > _MIN_GAIN * best for one in last)


def _largest_that_fits(trials: Sequence[Trial], memory_bytes: int) -> int:
    """Environments that are expected to take at most so much memory."""
    last = trials[-1]
    if len(trials) == 1:
        return int(last.num_envs * memory_bytes / max(1, last.memory_bytes))
    before = trials[-2]
    grown = max(1, last.memory_bytes - before.memory_bytes)
    of_one = _MARGIN * grown / (last.num_envs - before.num_envs)
    return last.num_envs + int((memory_bytes - last.memory_bytes) / of_one)
