# SPDX-License-Identifier: Apache-2.0
"""Shards of a replay under random events: no order of them may tear, repeat or miscount a step."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acted_shard import NUM_ENVS, NUM_SHARDS, ActedShard, Worker
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from replay_world import (
    TABLE,
    assert_replay_balanced,
    assert_whole_sequences,
    assert_whole_transitions,
)

from rollouts.errors import WorkerError
from rollouts.replay import Sequences, TableConfig
from rollouts.replay.shards.admission import Admission
from rollouts.replay.shards.keys import KeyLayout
from rollouts.replay.shards.requests import BatchRequest, Requests
from rollouts.replay.shards.saving import Saving
from rollouts.replay.shards.shard_set import ShardSet

NUM_WORKERS = 3
TABLES = (TABLE, TableConfig("sequences", items=Sequences(3, period=2)))


class RandomShardLives(RuleBasedStateMachine):
    """Every event that can happen to shards, in any order."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.handles: list[ActedShard] = []
        self.admissions = {table.name: Admission(table) for table in TABLES}
        self.shards = ShardSet(
            self.launch,
            NUM_SHARDS,
            num_rows=NUM_ENVS,
            admissions=self.admissions,
            max_restarts=10**6,
            wake=lambda: None,
        )
        self.requests = Requests(
            self.shards,
            self.admissions,
            KeyLayout(50_000, NUM_SHARDS),
            {table.name: table.most_priority for table in TABLES},
        )
        self.workers = [Worker(i) for i in range(NUM_WORKERS)]
        self.asked: list[BatchRequest] = []
        self.saving: Saving | None = None

    def launch(self, shard_id: int) -> ActedShard:
        self.handles.append(ActedShard(shard_id, TABLES))
        return self.handles[-1]

    def living(self, shard_id: int) -> Any:
        return self.shards.shards[shard_id].handle

    @rule(worker=st.integers(0, NUM_WORKERS - 1), is_lost=st.sampled_from([False] * 5 + [True]))
    def collect(self, worker: int, is_lost: bool) -> None:
        named, batch = self.workers[worker].collect()
        self.shards.add(named, None if is_lost else batch)

    @rule(worker=st.integers(0, NUM_WORKERS - 1))
    def worker_dies(self, worker: int) -> None:
        self.workers[worker].begin_life()

    @rule(worker=st.integers(0, NUM_WORKERS - 1))
    def fragment_never_comes(self, worker: int) -> None:
        self.workers[worker].collect()

    @rule(shard=st.integers(0, NUM_SHARDS - 1), num=st.integers(1, 4))
    def work(self, shard: int, num: int) -> None:
        for _ in range(num):
            self.living(shard).work()

    @rule(shard=st.integers(0, NUM_SHARDS - 1), in_the_middle=st.booleans())
    def shard_dies(self, shard: int, in_the_middle: bool) -> None:
        if in_the_middle:
            self.living(shard).work(tells=False)
        self.living(shard).close()

    @rule()
    def settle(self) -> None:
        self.shards.settle()

    @rule(table=st.sampled_from(["replay", "sequences"]), num=st.integers(1, 9))
    def ask(self, table: str, num: int) -> None:
        request = self.requests.make(table, num, 0)
        if request is not None:
            self.asked.append(request)

    @rule()
    def take(self) -> None:
        for request in list(self.asked):
            if self.requests.is_complete(request):
                self.asked.remove(request)
                self.check(request)

    def check(self, request: BatchRequest) -> None:
        batch = self.requests.join(request, 0.5)
        assert len(batch.key) == request.batch_size
        if request.table == "replay":
            assert_whole_transitions(batch)
        else:
            assert_whole_sequences(batch)
        priorities = 1.0 + batch.key % 3
        sent = self.requests.update_priorities(request.table, batch.key, priorities)
        assert 0 <= sent <= len(batch.key)

    @rule()
    def save(self) -> None:
        if self.saving is None:
            self.saving = Saving(
                self.shards, Path(self.directory.name), samples={}, policy_version=0
            )

    @rule()
    def finish_saving(self) -> None:
        if self.saving is None or not self.saving.is_done:
            return
        saving, self.saving = self.saving, None
        self.shards.settle()
        try:
            saving.finish()
        except WorkerError:
            return
        # all that it names is there
        checkpoint = self.shards.checkpoint
        assert checkpoint is not None
        assert {path.name for path in checkpoint.directory.iterdir()} == {
            "service.replay",
            *(mark.file for mark in checkpoint.shards),
        }

    @invariant()
    def accounts_balance(self) -> None:
        if hasattr(self, "shards"):
            stats = {"tables": {}, **self.shards.stats()}
            assert_replay_balanced(stats)
            # nothing is ever inserted twice
            assert stats["steps"]["discarded"].keys() <= {"lost"}
            assert stats["steps"]["lost_with_shards"] >= 0

    def teardown(self) -> None:
        if not hasattr(self, "shards"):
            return
        while not self.shards.is_idle:
            for shard in range(NUM_SHARDS):
                for _ in range(10):
                    self.living(shard).work()
            self.shards.settle()
        stats = self.shards.stats()
        assert stats["steps"]["in_flight"] == 0
        for shard in self.shards.shards:
            self.check_contents(shard)
        for handle in self.handles:
            handle.shard.close()
        self.directory.cleanup()

    def check_contents(self, shard: Any) -> None:
        """Looks at all items that a shard has, and at what the driver knows of them."""
        buffer = shard.handle.shard._buffer
        known = shard.report
        assert known.env_steps == shard.handle.shard.report().env_steps
        for name, table in known.tables.items():
            keys = buffer.store.keys(name)
            assert len(keys) == table.size
            if not len(keys):
                continue
            batch = buffer.gather(keys, table=name)
            if name == "replay":
                assert_whole_transitions(batch)
                assert len(np.unique(batch.obs, axis=0)) == len(keys)
            else:
                assert_whole_sequences(batch)
                starts = np.unique(batch.obs[0], axis=0)
                assert len(starts) == len(keys)


TestRandomShardLives = pytest.mark.system(RandomShardLives.TestCase)
TestRandomShardLives.settings = settings(
    max_examples=200,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
