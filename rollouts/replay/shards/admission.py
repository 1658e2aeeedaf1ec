# SPDX-License-Identifier: Apache-2.0
"""The rate limiter of a table that is spread over shards: one account for all of them."""

from __future__ import annotations

from collections.abc import Iterable

from rollouts.errors import SpecError
from rollouts.replay.config import MinSize, Queue, SampleToInsertRatio, TableConfig
from rollouts.replay.items import most_items


class Admission:
    """Admits inserts and samples by Reverb's formula. Not thread-safe: the owner locks.

    Samples are admitted exactly. Fragments are admitted whole, if one more item would be admitted.
    Fragments on their way count as the most items that they may bring, so inserts exceed the
    limiter's bound by less than the most items of one fragment. With nothing on its way, both
    decisions are Reverb's: a call that Reverb would admit is admitted, so there is no deadlock.
    """

    def __init__(self, table: TableConfig) -> None:
        """Begins with no inserts.

        Raises:
          SpecError: The limiter, Queue or Stack, needs a table in one place.
        """
        if not isinstance(table.limiter, MinSize | SampleToInsertRatio):
            order = "fifo" if isinstance(table.limiter, Queue) else "lifo"
            raise SpecError(
                f"limiter is {table.limiter!r}, expected MinSize or SampleToInsertRatio: a service "
                "inserts whole fragments into shards, so that no table has exactly so many items "
                f'in one order. For each item once pass sampler="{order}", max_times_sampled=1, '
                "limiter=SampleToInsertRatio(1.0, 1, (0.0, most)) and a max_size well above most; "
                "or use a ReplayBuffer"
            )
        limiter = table.limiter
        self._ratio = limiter if isinstance(limiter, SampleToInsertRatio) else None
        self.min_size = limiter.size if isinstance(limiter, MinSize) else limiter.min_size
        self.inserts = 0
        self.samples = 0
        self.size = 0  # items in all shards at present
        self.coming = 0  # the most items that fragments on their way may bring
        self._items = table.items

    @property
    def has_ratio(self) -> bool:
        """Tells if inserts ever wait for samples."""
        return self._ratio is not None

    def expect(self, num_steps: Iterable[int], num_rows: int) -> None:
        """Sets what fragments on their way may bring.

        Args:
          num_steps: Steps of each environment, by worker. A worker's fragments are consecutive, so
            the steps that were open before them count once.
          num_rows: Environments of a worker.
        """
        self.coming = sum(most_items(self._items, steps, num_rows) for steps in num_steps)

    def can_insert(self) -> bool:
        """Returns whether one more item would be admitted, counting all that may still arrive."""
        if self._ratio is None:
            return True
        coming = self.coming + 1
        if self.size + coming <= self.min_size:
            return True
        balance = (self.inserts + coming) * self._ratio.samples_per_insert - self.samples
        return balance <= self._ratio.bounds[1]

    def can_sample(self, batch_size: int) -> bool:
        """Returns whether a whole batch would be admitted."""
        if self.size < self.min_size:
            return False
        if self._ratio is None:
            return True
        balance = self.inserts * self._ratio.samples_per_insert - self.samples
        return balance - batch_size >= self._ratio.bounds[0]

    def check_batch(self, batch_size: int) -> None:
        """Raises SpecError for a batch that might never be admitted."""
        if batch_size < 1:
            raise SpecError(f"batch_size is {batch_size}, expected at least 1")
        if self._ratio is None:
            return
        low, high = self._ratio.bounds
        # inserts stop when one more would exceed the bound
        most = high - low - self._ratio.samples_per_insert
        if batch_size > most:
            raise SpecError(
                f"batch_size is {batch_size}, expected at most {most:g}: the limiter's bounds are "
                f"{low:g} and {high:g}; enlarge its error_buffer"
            )
