# SPDX-License-Identifier: Apache-2.0
"""Settings of a replay table: its items, their number, selectors and the rate limiter.

Selectors and rate limiters work as in Reverb, ends of episodes as in Acme's adders.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from rollouts import _native
from rollouts.checks import whole_number
from rollouts.errors import DTypeError, SpecError
from rollouts.replay.goals import GoalColumns, GoalReward
from rollouts.support.keywords import explains_fields

Selector = Literal["uniform", "prioritized", "fifo", "lifo", "max_heap", "min_heap"]
EndOfEpisode = Literal["write", "truncate", "pad"]
GoalStrategy = Literal["future", "final", "episode"]


_MOST = 2**31 - 2  # steps or items, counted in 32 bits by the core


@explains_fields
@dataclass(frozen=True, slots=True)
class MinSize:
    """Samples wait until the table has `size` items; inserts never wait."""

    size: int

    def __post_init__(self) -> None:
        """Checks the size."""
        _at_least("size", self.size, 1)


@explains_fields
@dataclass(frozen=True, slots=True)
class SampleToInsertRatio:
    """Keeps samples / inserts near `samples_per_insert` by making the faster side wait.

    Attributes:
      samples_per_insert: Times an item is sampled on average.
      min_size: Items before the first sample.
      error_buffer: How far inserts * samples_per_insert - samples may lie from
        min_size * samples_per_insert, or the two bounds (min, max) of that difference.
    """

    samples_per_insert: float
    min_size: int
    error_buffer: float | tuple[float, float]

    def __post_init__(self) -> None:
        """Checks what does not depend on the table; the native store checks for deadlocks."""
        _at_least("min_size", self.min_size, 1)
        _between("samples_per_insert", self.samples_per_insert, 0)
        if self.samples_per_insert == 0:
            raise SpecError("samples_per_insert is 0, expected a number above 0")
        bounds = self.error_buffer
        for bound in bounds if isinstance(bounds, Sequence) else (bounds,):
            _between("error_buffer", bound, -math.inf)
        if isinstance(bounds, Sequence) and (isinstance(bounds, str) or len(bounds) != 2):
            raise SpecError(f"error_buffer is {bounds!r}, expected a number or (min, max)")

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and largest value that inserts * samples_per_insert - samples may have."""
        if isinstance(self.error_buffer, Sequence):
            low, high = self.error_buffer
            return float(low), float(high)
        centre = self.samples_per_insert * self.min_size
        return centre - self.error_buffer, centre + self.error_buffer


@explains_fields
@dataclass(frozen=True, slots=True)
class Queue:
    """Each item is sampled once, the oldest first; inserts wait while `size` items are there."""

    size: int

    def __post_init__(self) -> None:
        """Checks the size."""
        _at_least("size", self.size, 1)


@explains_fields
@dataclass(frozen=True, slots=True)
class Stack:
    """Each item is sampled once, the newest first; inserts wait while `size` items are there."""

    size: int

    def __post_init__(self) -> None:
        """Checks the size."""
        _at_least("size", self.size, 1)


Limiter = MinSize | SampleToInsertRatio | Queue | Stack


@explains_fields
@dataclass(frozen=True, slots=True)
class NStep:
    """Transitions over n steps, or fewer where the episode ends: one per environment step.

    reward = r_0 + discount * r_1 + ...; the item's discount applies to the value of the state n
    steps later, and is 0 where the episode terminated. A truncated episode bootstraps from its true
    final observation.
    """

    n: int
    discount: float = 0.99

    def __post_init__(self) -> None:
        """Checks both fields."""
        _at_least("n", self.n, 1)
        _between("discount", self.discount, 0, 1)


def Transitions(discount: float = 0.99) -> NStep:
    """Transitions over one step: NStep(1, discount)."""
    return NStep(1, discount)


@explains_fields
@dataclass(frozen=True, slots=True)
class Sequences:
    """Runs of `length` steps that begin every `period` steps of an episode.

    What is written where an episode ends before its next sequence is complete. In this example,
    length is 3, period is 2, and the episode's six steps have already given the sequences 1 2 3 and
    3 4 5:

      "write"     4 5 6   the last `length` steps; a shorter episode is left out
      "truncate"  5 6     the remaining steps; a batch is as long as its longest sequence
      "pad"       5 6 0   the remaining steps; a batch has `length` rows, of zeros at the end

    Attributes:
      length: Steps of a sequence, including those of the burn-in.
      period: Steps from one beginning to the next; None: length, so that nothing overlaps.
      burn_in: Steps at the beginning that only warm up the recurrent state; for the learner.
      end_of_episode: "write", "truncate" or "pad", see above.
    """

    length: int
    period: int | None = None
    burn_in: int = 0
    end_of_episode: EndOfEpisode = "write"

    def __post_init__(self) -> None:
        """Checks all fields."""
        _at_least("length", self.length, 1)
        _at_least("period", self.step, 1)
        whole_number("burn_in", self.burn_in, 0, self.length - 1)
        _one_of("end_of_episode", self.end_of_episode, get_args(EndOfEpisode))

    @property
    def step(self) -> int:
        """The period; `length` where none was given."""
        return self.length if self.period is None else self.period


@explains_fields
@dataclass(frozen=True, slots=True)
class Episodes:
    """Whole episodes; one longer than `max_length` steps becomes consecutive pieces."""

    max_length: int

    def __post_init__(self) -> None:
        """Checks the length."""
        _at_least("max_length", self.max_length, 1)


@explains_fields
@dataclass(frozen=True, slots=True)
class Hindsight:
    """Transitions whose goal may be one that their own episode achieved.

    As in Andrychowicz et al. 2017. With the probability `share`, a sample gets the goal that a step
    of its episode achieved: with the strategy "future" the same step or a later one, each with
    equal probability, with "final" the last one, with "episode" any step. The sample's rewards are
    computed for this goal; `terminated` and `truncated` stay as they were. Items are made once
    their episode has ended. An episode's rows stay as long as one of its items, and no goal is
    stored. `gather` returns an item with the goal that it had in its last sample.

    Attributes:
      goal: The columns of goals in an observation (D,).
      reward: Reward of a step from the goal achieved after it and the desired goal: `SparseReward`,
        `DenseReward`, or a function of all steps like Gymnasium's `compute_reward`, with {} for
        infos.
      strategy: "future", "final" or "episode", see above.
      share: Part of the samples with new goals: k / (k + 1) for k new goals to each original one.
      n: Steps of a transition, as in `NStep`; each of them is rewarded for the new goal.
      discount: As in `NStep`.
      max_length: Steps of the longest episode; a longer one becomes consecutive pieces.
    """

    goal: GoalColumns
    reward: GoalReward = field(repr=False)
    strategy: GoalStrategy = "future"
    share: float = 0.8
    n: int = 1
    discount: float = 0.99
    max_length: int = 1000

    def __post_init__(self) -> None:
        """Checks all fields."""
        if not isinstance(self.goal, GoalColumns):
            raise DTypeError(f"goal is {self.goal!r}, expected GoalColumns")
        if not callable(self.reward):
            raise DTypeError(
                f"reward is {self.reward!r}, expected SparseReward, DenseReward or a function of "
                "achieved_goal (M, G), desired_goal (M, G) and info"
            )
        _one_of("strategy", self.strategy, get_args(GoalStrategy))
        _between("share", self.share, 0, 1)
        _at_least("n", self.n, 1)
        _between("discount", self.discount, 0, 1)
        _at_least("max_length", self.max_length, self.n)


ItemKind = NStep | Sequences | Episodes | Hindsight


@explains_fields
@dataclass(frozen=True, slots=True)
class TableConfig:
    """One table of a buffer. Tables share the steps: a second table makes no second copy.

    Attributes:
      name: Name of the table.
      items: The kind of item.
      max_size: Most items; one more insert removes an item.
      sampler: Rule for the choice of items to sample.
      remover: Rule for the choice of the item to remove.
      limiter: Rule for waits. Queue and Stack set sampler, remover and max_size.
      max_times_sampled: An item is removed after so many samples; 0: no limit.
      exponent: Exponent of the priorities, if the sampler is "prioritized".
      remover_exponent: Exponent of the priorities, if the remover is "prioritized".
    """

    name: str = "replay"
    items: ItemKind = field(default_factory=lambda: NStep(1))
    max_size: int = 1_000_000
    sampler: Selector = "uniform"
    remover: Selector = "fifo"
    limiter: Limiter = field(default_factory=lambda: MinSize(1))
    max_times_sampled: int = 0
    exponent: float = 0.6
    remover_exponent: float = 1.0

    def __post_init__(self) -> None:
        """Checks fields whose errors the native store could not explain in the user's terms."""
        if not isinstance(self.name, str) or not self.name:
            raise SpecError(f"name of a table is {self.name!r}, expected a few letters")
        for name, kinds in (("items", ItemKind), ("limiter", Limiter)):
            if not isinstance(getattr(self, name), kinds):
                raise SpecError(f"{name} is {getattr(self, name)!r}, expected one of {kinds}")
        _between("exponent", self.exponent, 0)
        _between("remover_exponent", self.remover_exponent, 0)
        _at_least("max_size", self.max_size, 1)
        _at_least("max_times_sampled", self.max_times_sampled, 0)
        for name in ("sampler", "remover"):
            _one_of(name, getattr(self, name), get_args(Selector))

    @property
    def most_priority(self) -> float:
        """The highest priority of an item: sums of priority ** exponent have to stay finite."""
        pairs = (self.sampler, self.exponent), (self.remover, self.remover_exponent)
        exponents = [exponent for selector, exponent in pairs if selector == "prioritized"]
        return min((_native.most_priority(e) for e in exponents), default=sys.float_info.max)

    def to_native(self, seed: int) -> dict[str, Any]:
        """Returns the table in the form that `_native.ReplayStore` takes."""
        table: dict[str, Any] = {
            "name": self.name,
            "max_size": self.max_size,
            "sampler": self.sampler,
            "remover": self.remover,
            "sampler_exponent": self.exponent,
            "remover_exponent": self.remover_exponent,
            "max_times_sampled": self.max_times_sampled,
            "seed": seed,
            "limiter": _native_limiter(self.limiter),
        }
        if isinstance(self.limiter, (Queue, Stack)):
            order = "fifo" if isinstance(self.limiter, Queue) else "lifo"
            table |= {"max_size": self.limiter.size, "max_times_sampled": 1}
            table |= {"sampler": order, "remover": order}
        return table


def _native_limiter(limiter: Limiter) -> tuple[Any, ...]:
    match limiter:
        case MinSize(size):
            return ("min_size", size)
        case Queue(size):
            return ("queue", size)
        case Stack(size):
            return ("stack", size)
        case SampleToInsertRatio(samples_per_insert, min_size, _):
            bounds = limiter.bounds
            return ("sample_to_insert_ratio", float(samples_per_insert), min_size, *bounds)


def _at_least(name: str, value: int, least: int) -> None:
    whole_number(name, value, least, _MOST)


def _between(name: str, value: float, least: float, most: float = math.inf) -> None:
    is_number = isinstance(value, float | int | np.floating | np.integer)
    if not is_number or not (least <= value <= most and math.isfinite(value)):
        most_text = "" if most == math.inf else f" to {most:g}"
        raise SpecError(f"{name} is {value!r}, expected a finite number from {least:g}{most_text}")


def _one_of(name: str, value: str, names: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in names:
        raise SpecError(f"{name} is {value!r}, expected one of {', '.join(map(repr, names))}")
