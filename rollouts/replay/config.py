# SPDX-License-Identifier: Apache-2.0
"""What a replay table is made of: which items, how many, who is sampled, removed and kept waiting.

Selectors and rate limiters have the semantics of Reverb, ends of episodes those of Acme's adders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from rollouts.errors import SpecError

Selector = Literal["uniform", "prioritized", "fifo", "lifo", "max_heap", "min_heap"]
EndOfEpisode = Literal["write", "truncate", "pad"]


@dataclass(frozen=True, slots=True)
class MinSize:
    """Samples wait until the table has `size` items; inserts never wait."""

    size: int

    def __post_init__(self) -> None:
        """Checks the size."""
        _at_least("size", self.size, 1)


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
        """Checks what does not depend on the table; the native store finds deadlocks."""
        _at_least("min_size", self.min_size, 1)
        if not (math.isfinite(self.samples_per_insert) and self.samples_per_insert > 0):
            raise SpecError(
                f"samples_per_insert is {self.samples_per_insert}, expected a number above 0"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and largest inserts * samples_per_insert - samples."""
        if isinstance(self.error_buffer, Sequence):
            low, high = self.error_buffer
            return float(low), float(high)
        centre = self.samples_per_insert * self.min_size
        return centre - self.error_buffer, centre + self.error_buffer


@dataclass(frozen=True, slots=True)
class Queue:
    """Each item is sampled once, the oldest first; inserts wait while `size` items are there."""

    size: int

    def __post_init__(self) -> None:
        """Checks the size."""
        _at_least("size", self.size, 1)


@dataclass(frozen=True, slots=True)
class Stack:
    """Each item is sampled once, the newest first; inserts wait while `size` items are there."""

    size: int

    def __post_init__(self) -> None:
        """Checks the size."""
        _at_least("size", self.size, 1)


Limiter = MinSize | SampleToInsertRatio | Queue | Stack


@dataclass(frozen=True, slots=True)
class NStep:
    """Transitions over n steps, fewer where the episode ends: one per environment step.

    reward = r_0 + discount * r_1 + ...; the item's discount is that of the state n steps on, and 0
    where the episode terminated. A truncated episode bootstraps from its true final observation.
    """

    n: int
    discount: float = 0.99

    def __post_init__(self) -> None:
        """Checks both."""
        _at_least("n", self.n, 1)
        if not 0.0 <= self.discount <= 1.0:
            raise SpecError(f"discount is {self.discount}, expected a number from 0 to 1")


def Transitions(discount: float = 0.99) -> NStep:
    """Transitions over one step: NStep(1, discount)."""
    return NStep(1, discount)


@dataclass(frozen=True, slots=True)
class Sequences:
    """Runs of `length` steps that begin every `period` steps of an episode.

    What is written when an episode ends between two beginnings, for length 3, period 2 and six
    steps, after 1 2 3 and 3 4 5:

      "write"     4 5 6   the last `length` steps; an episode shorter than that is left out
      "truncate"  5 6     what is left; a batch is as long as its longest sequence
      "pad"       5 6 0   what is left; a batch has `length` rows, of zeros at the end

    Attributes:
      length: Steps of a sequence, those of the burn-in included.
      period: Steps from one beginning to the next; None: length, so that nothing overlaps.
      burn_in: Steps at the beginning that only warm up the recurrent state; for the learner.
      end_of_episode: As above.
    """

    length: int
    period: int | None = None
    burn_in: int = 0
    end_of_episode: EndOfEpisode = "write"

    def __post_init__(self) -> None:
        """Checks all of them."""
        _at_least("length", self.length, 1)
        _at_least("period", self.step, 1)
        if not 0 <= self.burn_in < self.length:
            raise SpecError(f"burn_in is {self.burn_in}, expected 0 to length - 1")
        _one_of("end_of_episode", self.end_of_episode, get_args(EndOfEpisode))

    @property
    def step(self) -> int:
        """The period in force."""
        return self.length if self.period is None else self.period


@dataclass(frozen=True, slots=True)
class Episodes:
    """Whole episodes; one longer than `max_length` steps becomes consecutive pieces."""

    max_length: int

    def __post_init__(self) -> None:
        """Checks the length."""
        _at_least("max_length", self.max_length, 1)


ItemKind = NStep | Sequences | Episodes


@dataclass(frozen=True, slots=True)
class TableConfig:
    """One table of a buffer. Tables share the steps: a second one costs no second copy.

    Attributes:
      name: Of the table.
      items: What an item is.
      max_size: Items; one more removes one.
      sampler: Which items are sampled.
      remover: Which item makes room.
      limiter: Who waits for whom. Queue and Stack bring sampler, remover and max_size with them.
      max_times_sampled: An item is removed after so many samples; 0: no limit.
      exponent: Of the priorities, if the sampler is "prioritized".
      remover_exponent: Of the priorities, if the remover is "prioritized".
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
        """Checks what the native store could not name in the user's words."""
        if not self.name:
            raise SpecError("name of a table is empty, expected a few letters")
        _at_least("max_size", self.max_size, 1)
        _at_least("max_times_sampled", self.max_times_sampled, 0)
        for name in ("sampler", "remover"):
            _one_of(name, getattr(self, name), get_args(Selector))

    def to_native(self, seed: int) -> dict[str, Any]:
        """Returns the table as `_native.ReplayStore` takes it."""
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
    if not hasattr(value, "__index__") or value < least:
        raise SpecError(f"{name} is {value!r}, expected a whole number of at least {least}")


def _one_of(name: str, value: str, names: tuple[str, ...]) -> None:
    if value not in names:
        raise SpecError(f"{name} is {value!r}, expected one of {', '.join(map(repr, names))}")
