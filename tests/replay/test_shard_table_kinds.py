# SPDX-License-Identifier: Apache-2.0
"""Kinds of tables over shards: exact over one, in each shard over several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from acted_shard import NUM_ENVS, ActedShard, Worker
from counter_world import weights
from replay_world import STEP, make_coordinator, make_service

from rollouts.errors import SpecError
from rollouts.replay import (
    GoalColumns,
    Hindsight,
    NStep,
    Queue,
    SampleToInsertRatio,
    SparseReward,
    Stack,
    TableConfig,
)
from rollouts.replay.shards.admission import Admission
from rollouts.replay.shards.keys import KeyLayout
from rollouts.replay.shards.requests import Requests
from rollouts.replay.shards.shard_set import ShardSet

TRANSITIONS = NStep(1, 0.5)
# every item once, the oldest of its shard first, and inserts wait while 200 are there
ONCE = TableConfig(
    items=TRANSITIONS,
    sampler="fifo",
    remover="fifo",
    max_times_sampled=1,
    max_size=10_000,
    limiter=SampleToInsertRatio(1.0, min_size=1, error_buffer=(0.0, 200.0)),
)


class TwoShards:
    """Two shards in this process, each of which has fragments of one worker."""

    def __init__(self, table: TableConfig, num_fragments: int = 5) -> None:
        admissions = {table.name: Admission(table)}
        self.handles: list[ActedShard] = []
        self.shards = ShardSet(
            lambda shard_id: self.launch(table),
            2,
            num_rows=NUM_ENVS,
            admissions=admissions,
            max_restarts=0,
            wake=lambda: None,
        )
        most_priority = {table.name: table.most_priority}
        self.requests = Requests(self.shards, admissions, KeyLayout(50_000, 2), most_priority)
        for worker in (Worker(0), Worker(1)):
            for _ in range(num_fragments):
                self.shards.add(*worker.collect())
        self.work()

    def launch(self, table: TableConfig) -> ActedShard:
        self.handles.append(ActedShard(len(self.handles), (table,)))
        return self.handles[-1]

    def work(self) -> None:
        for handle in self.handles:
            while handle.calls:
                handle.work()
        self.shards.settle()

    def sample(self, batch_size: int) -> Any:
        request = self.requests.make("replay", batch_size, 0)
        assert request is not None
        self.work()
        while not self.requests.is_complete(request):
            self.work()
        return self.requests.join(request, 0.0)

    def everything(self, shard_id: int) -> Any:
        buffer = self.handles[shard_id].shard._buffer
        return buffer.gather(buffer.store.keys("replay"))


def test_one_shard_gives_each_item_once_and_in_order() -> None:
    with (
        make_coordinator(num_workers=0) as coordinator,
        make_service(coordinator, num_shards=0, tables=ONCE) as replay,
    ):
        coordinator.publish_weights(weights())
        seen: list[Any] = [[], [], []]
        for _ in range(40):
            batch = replay.sample(16)
            for env_id, obs in zip(batch.env_id, batch.obs, strict=True):
                seen[env_id].append(int(obs[STEP]))
            table = replay.stats()["tables"]["replay"]
            # all that is not there any more was sampled: nothing was removed for want of room
            assert table["deletes"] == table["samples"] == table["inserts"] - table["size"]
    assert sum(map(len, seen)) == 640
    assert all(steps == list(range(len(steps))) for steps in seen)


def test_several_shards_give_each_item_once_and_in_order_of_each_shard() -> None:
    shards = TwoShards(ONCE)
    size = sum(len(shards.everything(i).key) for i in range(2))
    seen: list[Any] = [[] for _ in range(2 * NUM_ENVS)]
    for _ in range(size // 8):
        batch = shards.sample(8)
        for env_id, obs in zip(batch.env_id, batch.obs, strict=True):
            seen[env_id].append(int(obs[STEP]))
    assert sum(map(len, seen)) == size // 8 * 8
    assert all(steps == list(range(len(steps))) for steps in seen)


@pytest.mark.parametrize(("sampler", "place"), [("fifo", 0), ("lifo", -1)])
def test_oldest_and_newest_are_those_of_each_shard(sampler: Any, place: int) -> None:
    shards = TwoShards(TableConfig(items=TRANSITIONS, sampler=sampler))
    batch = shards.sample(8)
    for shard_id in range(2):
        mine = batch.obs[batch.env_id // NUM_ENVS == shard_id]
        assert len(mine) == 4
        # nothing was removed, so the keys are in the order of the inserts
        assert (mine == shards.everything(shard_id).obs[place]).all()


@pytest.mark.parametrize(("sampler", "pick"), [("max_heap", np.max), ("min_heap", np.min)])
def test_heaps_give_the_best_of_each_shard(sampler: Any, pick: Any) -> None:
    shards = TwoShards(TableConfig(items=TRANSITIONS, sampler=sampler))
    for shard_id in range(2):
        every = shards.everything(shard_id)
        shards.handles[shard_id].shard.update_priorities("replay", every.key, every.obs[:, STEP], 0)
    batch = shards.sample(8)
    for shard_id in range(2):
        mine = batch.obs[batch.env_id // NUM_ENVS == shard_id]
        assert (mine[:, STEP] == pick(shards.everything(shard_id).obs[:, STEP])).all()


def test_each_shard_holds_its_part_of_the_size() -> None:
    shards = TwoShards(TableConfig(items=TRANSITIONS, max_size=21))
    assert [len(shards.everything(i).key) for i in range(2)] == [11, 11]


@pytest.mark.parametrize("limiter", [Queue(10), Stack(10)])
def test_queue_and_stack_are_refused_with_what_to_do(limiter: Any) -> None:
    with pytest.raises(SpecError, match=r"whole fragments.*max_times_sampled=1.*ReplayBuffer"):
        Admission(TableConfig(limiter=limiter))


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_shards_relabel_their_parts_of_a_batch(strategy: Any) -> None:
    # observations are env_id, seed, episode, step of it and step: the step of it is achieved
    goal = GoalColumns(achieved_goal=(3, 4), desired_goal=(0, 1), observation=(0, 5))
    items = Hindsight(goal, SparseReward(0), strategy, share=0.5, max_length=50)
    shards = TwoShards(TableConfig(items=items, max_size=10_000))
    # whole numbers, whose distances native code does not compute
    batches = [shards.sample(40) for _ in range(20)]
    assert all(batch.relabelled.shape == (40,) for batch in batches)
    relabelled = np.concatenate([batch.relabelled for batch in batches])
    assert 300 < relabelled.sum() < 500
    for batch in batches:
        took, after = batch.obs[:, 0], batch.next_obs[:, 3]
        assert (took == batch.next_obs[:, 0]).all()
        assert (took[~batch.relabelled] == batch.env_id[~batch.relabelled]).all()
        reached = (after == took)[batch.relabelled]
        assert (batch.reward[batch.relabelled] == np.where(reached, 0, -1)).all()
        if strategy != "episode":
            assert (took >= after)[batch.relabelled].all()
