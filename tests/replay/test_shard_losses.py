# SPDX-License-Identifier: Apache-2.0
"""Losses with a shard are counted, whatever comes back in its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from acted_shard import NUM_ENVS, NUM_SHARDS, ActedShard, Worker
from replay_world import TABLE

from rollouts.replay import NStep
from rollouts.replay.shards.admission import Admission
from rollouts.replay.shards.saving import Saving
from rollouts.replay.shards.shard_set import ShardSet

# items of one step each, so that few fragments fill a table
SMALL = replace(TABLE, items=NStep(1, 0.5), max_size=2 * NUM_SHARDS * NUM_ENVS)


class Losses:
    """Shards of which the first is filled, saved and killed."""

    def __init__(self) -> None:
        self.shards = ShardSet(
            lambda shard_id: ActedShard(shard_id, (SMALL,)),
            NUM_SHARDS,
            num_rows=NUM_ENVS,
            admissions={SMALL.name: Admission(SMALL)},
            max_restarts=9,
            wake=lambda: None,
        )
        self.worker = Worker(0)

    @property
    def first(self) -> Any:
        return self.shards.shards[0]

    def work(self) -> None:
        for shard in self.shards.shards:
            while shard.handle.calls:
                shard.handle.work()
        self.shards.settle()

    def insert(self, num_fragments: int) -> None:
        for _ in range(num_fragments):
            self.shards.add(*self.worker.collect())
            self.work()

    def save(self, directory: Path) -> None:
        saving = Saving(self.shards, directory, samples={}, policy_version=0)
        self.work()
        saving.finish()

    def kill(self) -> None:
        self.first.handle.close()
        self.shards.lose(self.first, self.first.incarnation, RuntimeError("killed"))
        self.work()
        self.work()


def test_items_that_died_count_although_as_many_older_ones_come_back(tmp_path: Path) -> None:
    here = Losses()
    here.insert(3)
    size = here.first.table(SMALL.name).size
    assert size == SMALL.max_size // NUM_SHARDS
    here.save(tmp_path)
    here.insert(3)
    here.kill()
    assert here.first.table(SMALL.name).size == size
    stats = here.shards.stats()
    assert stats["steps"]["lost_with_shards"] > size
    assert stats["items_lost"] == size
    # and nothing more where nothing more was lost
    here.kill()
    assert here.shards.stats()["items_lost"] == size


def test_counters_do_not_fall_when_a_shard_dies(tmp_path: Path) -> None:
    here = Losses()
    here.insert(3)
    table = here.first.table(SMALL.name)
    assert table.deletes > 0
    here.first.report = replace(here.first.report, episodes_cut=3)
    here.kill()
    assert (
        here.first.loss.deletes[SMALL.name] + here.first.table(SMALL.name).deletes == table.deletes
    )
    assert here.shards.stats()["episodes_cut"] == 3
    assert here.shards.stats()["items_lost"] == table.size
