# SPDX-License-Identifier: Apache-2.0
"""A limiter over shards against a slow model of Reverb's: nobody goes too far, nobody is stuck."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from acted_shard import LENGTH, NUM_ENVS, NUM_SHARDS, ActedShard, Worker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_world import TABLE

from rollouts.errors import SpecError
from rollouts.replay import Episodes, MinSize, NStep, SampleToInsertRatio, Sequences, TableConfig
from rollouts.replay.items import most_items
from rollouts.replay.shards.admission import Admission
from rollouts.replay.shards.shard_set import ShardSet

pytestmark = pytest.mark.system

NUM_WORKERS = 3
KINDS = [NStep(1), NStep(3), Sequences(3, period=2), Sequences(2, end_of_episode="pad")]


@dataclass
class ReverbsLimiter:
    """The rule as it is written down: one table, one item after the other."""

    limiter: SampleToInsertRatio
    inserts: int = 0
    samples: int = 0

    def may_insert(self) -> bool:
        if self.inserts + 1 <= self.limiter.min_size:
            return True
        ratio = self.limiter.samples_per_insert
        return (self.inserts + 1) * ratio - self.samples <= self.limiter.bounds[1]

    def may_sample(self) -> bool:
        if self.inserts < self.limiter.min_size:
            return False
        ratio = self.limiter.samples_per_insert
        return self.inserts * ratio - (self.samples + 1) >= self.limiter.bounds[0]

    def most_inserts(self) -> int:
        """The number of items that it lets in without a further sample."""
        model = replace(self)
        while model.may_insert():
            model.inserts += 1
        return model.inserts


class Run:
    """Workers, shards and a learner, each of which does a step when told to."""

    def __init__(self, table: TableConfig) -> None:
        assert isinstance(table.limiter, SampleToInsertRatio)
        self.table = table
        self.handles: list[ActedShard] = []
        self.admission = Admission(table)
        self.shards = ShardSet(
            self.launch,
            NUM_SHARDS,
            num_rows=NUM_ENVS,
            admissions={table.name: self.admission},
            max_restarts=10**6,
            wake=lambda: None,
        )
        self.workers = [Worker(i) for i in range(NUM_WORKERS)]
        self.model = ReverbsLimiter(table.limiter)
        self.most_inserts = self.model.most_inserts()

    def launch(self, shard_id: int) -> ActedShard:
        self.handles.append(ActedShard(shard_id, (self.table,)))
        return self.handles[-1]

    def take(self, worker: int) -> bool:
        """Takes a fragment where the driver would; tells whether it was taken."""
        if self.shards.has_room:
            self.shards.add(*self.workers[worker].collect())
            return True
        return False

    def fill(self, first: int) -> int:
        """Takes fragments of one worker after the other as long as there is room."""
        taken = 0
        while self.take((first + taken) % NUM_WORKERS):
            taken += 1
        return taken

    def work(self, shard: int) -> None:
        self.handles[shard].work()
        self.model.inserts = sum(
            handle.shard.report().tables["replay"].inserts for handle in self.handles
        )
        # what all that was admitted may bring at most, however late it comes
        fragment = most_items(self.table.items, LENGTH, NUM_ENVS)
        assert self.model.inserts < self.most_inserts + fragment

    def sample(self, batch_size: int) -> bool:
        """Samples where the driver would; tells whether it did."""
        self.shards.settle()
        if not self.admission.can_sample(batch_size):
            return False
        for _ in range(batch_size):
            assert self.model.may_sample()
            self.model.samples += 1
        self.admission.samples += batch_size
        self.most_inserts = max(self.most_inserts, self.model.most_inserts())
        return True

    def rest(self) -> None:
        """Lets everything arrive that is on its way."""
        while not self.shards.is_idle:
            for shard in range(NUM_SHARDS):
                self.work(shard)
            self.shards.settle()


@contextmanager
def run(table: TableConfig) -> Iterator[Run]:
    it = Run(table)
    yield it
    for handle in it.handles:
        handle.shard.close()


def largest_batch(admission: Admission) -> int:
    """The largest batch that is not refused for its size; 0: none."""
    for batch_size in range(1, 1000):
        try:
            admission.check_batch(batch_size)
        except SpecError:
            return batch_size - 1
    raise AssertionError("no bound found")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    kind=st.sampled_from(KINDS),
    ratio=st.sampled_from([0.25, 1.0, 3.0]),
    min_size=st.integers(1, 40),
    window=st.tuples(st.integers(0, 30), st.integers(4, 40)),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["take", "fill", "work", "settle", "sample"]), st.integers(0, 20)
        ),
        max_size=60,
    ),
)
def test_fragments_overshoot_by_less_than_one_and_nobody_is_stuck(
    kind: Any, ratio: float, min_size: int, window: tuple[int, int], steps: list[tuple[str, int]]
) -> None:
    bounds = (ratio * min_size - window[0], ratio * min_size + window[1])
    limiter = SampleToInsertRatio(ratio, min_size, bounds)
    with run(TableConfig(items=kind, max_size=10_000, limiter=limiter)) as it:
        for what, number in steps:
            match what:
                case "take":
                    it.take(number % NUM_WORKERS)
                case "fill":
                    it.fill(number)
                case "work":
                    it.work(number % NUM_SHARDS)
                case "settle":
                    it.shards.settle()
                case "sample":
                    it.sample(1 + number)
        # with workers and a learner that go on, both go on, whatever was before
        batch_size = largest_batch(it.admission)
        for turn in range(5):
            fragments = 0
            while not it.sample(batch_size):
                it.rest()
                took = it.fill(turn + fragments)
                assert took or it.admission.can_sample(batch_size)
                fragments += took
        it.rest()


def test_what_an_episode_left_open_counts_once_per_worker() -> None:
    admission = Admission(TableConfig(items=NStep(3)))
    # two fragments of one worker and one of another
    admission.expect([2 * LENGTH, LENGTH], NUM_ENVS)
    assert admission.coming == NUM_ENVS * (2 * LENGTH + 3 + LENGTH + 3)
    admission.expect([], NUM_ENVS)
    assert admission.coming == 0


def test_without_a_ratio_as_many_fragments_are_on_their_way_as_shards_take() -> None:
    admission = Admission(replace(TABLE, limiter=MinSize(5)))
    shards = ShardSet(
        lambda shard_id: ActedShard(shard_id, (TABLE,)),
        NUM_SHARDS,
        num_rows=NUM_ENVS,
        admissions={TABLE.name: admission},
        max_restarts=0,
        wake=lambda: None,
    )
    workers = [Worker(i) for i in range(NUM_WORKERS)]
    taken = 0
    while shards.has_room:
        shards.add(*workers[taken % NUM_WORKERS].collect())
        taken += 1
    assert taken == 2 * NUM_SHARDS


@pytest.mark.parametrize("kind", [Episodes(4), *KINDS])
def test_nothing_on_its_way_brings_nothing(kind: Any) -> None:
    assert most_items(kind, 0, 7) == 0
